"""The README's pictures of the page, of fleets that are made up: `python -m tests.pictures`."""

import time
from dataclasses import replace
from pathlib import Path

from fleet.model import EpochVersion, MemberState, Phase
from fleet.model import Reason as Why
from fleet.store.contract import Move
from tests.browser import open_browser, page_of, scene_server, wait_text
from tests.web_scene import Scene, pool_name, scene_of

FOLDER = Path(__file__).parent.parent / "docs" / "pictures"
SIZE = {"width": 1280, "height": 900}
MOST_BYTES = 300_000


def eventful(pools: int, workers: int) -> Scene:
    """A fleet in which a worker is being drained and another one has just died."""
    scene = scene_of(pools, workers)
    now = time.time()
    dead, drained = f"worker-{workers - 1}", "worker-2"
    changed = []
    for at, placement in enumerate(scene.placements.values()):
        if placement.owners == (dead,):
            phase = Phase.OPENING if at % 5 == 0 else Phase.OWNED
            heir = f"worker-{at // workers % (workers - 1)}"
            heir = "worker-3" if heir == drained else heir
            heirs_standby = "worker-0" if heir != "worker-0" else "worker-1"
            changed.append(
                replace(
                    placement,
                    phase=phase,
                    reason=Why.OWNER_DEAD,
                    since=now - 6,
                    owners=(heir,),
                    standby=heirs_standby,
                )
            )
        elif placement.owners == (drained,) and at // workers % 3 == 0:
            changed.append(
                replace(placement, phase=Phase.MOVING, moving_to="worker-4", reason=Why.DRAIN)
            )
        elif placement.standby == dead:
            changed.append(replace(placement, standby=f"worker-{(at + 1) % (workers - 1)}"))
    scene.publish(*changed)
    scene.workers = [
        replace(each, state=MemberState.DRAINING)
        if each.member.id == drained
        else replace(each, state=MemberState.DEAD, why="refused: both ports; beat 0.4 s ago")
        if each.member.id == dead
        else each
        for each in scene.workers
    ]
    scene.count()
    return scene


def with_history(scene: Scene, number: int) -> None:
    """Give one pool a past."""
    placement = scene.placement(pool_name(number))
    assert placement is not None
    now, group = time.time(), str(placement.group)

    def move(source: str, target: str, why: Why, ago: float, said: str = "") -> Move:
        at = now - ago
        version = EpochVersion(3, 9)
        return Move(group, source, target, why.value, version, at - 0.3, at, "done", said)

    scene.past = [
        move("worker-7", placement.owners[0], Why.OWNER_DEAD, 6, "refused: both ports"),
        move("worker-5", "worker-7", Why.BALANCE, 8_000),
        move("worker-1", "worker-5", Why.ROLLOUT, 90_000),
        move("", "worker-1", Why.INITIAL, 400_000),
    ]


def main() -> None:
    """Take both."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    scene = eventful(440, 8)
    with_history(scene, 7)
    with open_browser() as browser, scene_server(scene) as server:
        for name, address in (("page", ""), ("drill-down", f"#pool={pool_name(7)}")):
            with page_of(browser, f"{server.url}{address}", viewport=SIZE) as page:
                wait_text(page, "#link", "live")
                if address:
                    wait_text(page, "#panel", "endpoints ready")
                page.wait_for_timeout(500)
                path = FOLDER / f"{name}.png"
                page.screenshot(path=path)
                assert path.stat().st_size < MOST_BYTES


if __name__ == "__main__":
    main()
