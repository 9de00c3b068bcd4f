"""What the page shows of a fleet: what is wrong, one pool in full, what would be."""

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fleet.model import EpochVersion, GroupKey, MemberState, Phase
from fleet.model import Reason as Why
from fleet.store.contract import Move
from tests.browser import SceneServer, page_of, scene_server, wait, wait_text
from tests.web_scene import FIRST, Scene, change, member, placed, pool_name

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.timeout(180)


def test_what_is_wrong_is_above_all(page: "Page", server: SceneServer) -> None:
    """Pools without owner have a row of their own, the first; each phase counts and filters."""

    def trouble(scene: Scene) -> None:
        made = [scene.placement(pool_name(number)) for number in range(4)]
        lost, moving, sick, fresh = (each for each in made if each is not None)
        scene.workers[2] = replace(member(2, state=MemberState.SUSPECT), why="silent for 1.2 s")
        scene.publish(
            replace(lost, owners=(), standby=None, phase=Phase.UNOWNED, reason=Why.OWNER_DEAD),
            replace(moving, phase=Phase.MOVING, moving_to="worker-2", reason=Why.DRAIN),
            replace(sick, phase=Phase.QUARANTINED, standby=None),
            replace(fresh, phase=Phase.OPENING),
        )

    server.do(trouble)
    wait_text(page, "#alerts", "1 pool without owner")
    wait(page, "document.title === '(1 without owner) EPP Fleet default'")
    wait_text(page, "#alerts", "1 pool in quarantine")
    wait_text(page, "#alerts", "worker-2 is suspect: silent for 1.2 s")
    wait_text(
        page,
        "#alerts .moves",
        "globex/mistral-7b-1 is moving worker-1 → worker-2: its owner was drained, for",
    )
    assert "No owner" in page.locator("#map .row").first.inner_text()
    wait_text(page, "#map .row:nth-child(4) .why", "silent for 1.2 s")
    counts = page.locator("#phases .count").all_inner_texts()
    assert counts == ["1", "1", "1", "1", "8"]
    page.locator("#phases [data-phase=moving]").click()
    wait(page, "document.querySelectorAll('#map .row').length === 1")
    page.locator("#phases [data-phase=moving]").click()
    wait(page, "document.querySelectorAll('#map .row').length === 4")
    server.do(lambda scene: setattr(scene, "who", None))
    server.do(lambda scene: scene.count())
    wait_text(page, "#standing", "nobody leads")
    wait_text(page, "#alerts", "Nobody leads")


def test_before_the_first_map(browser: "Browser") -> None:
    """The page says that there is none, and shows it as soon as it is there."""
    with scene_server(Scene()) as server, page_of(browser, server.url) as page:
        wait_text(page, "#empty", "There is no shard map yet")
        wait_text(page, "#standing", "coordinator-0 leads, no shard map yet")

        def first(scene: Scene) -> None:
            scene.workers = [member(0)]
            scene.publish(placed(FIRST, "worker-0"))

        server.do(first)
        wait_text(page, "#map .facts", "1 pool")
        wait_text(page, "#alerts", "1 pool has no stand-by")
        assert page.locator("#empty").is_hidden()


def test_moves_are_spoken(page: "Page", server: SceneServer) -> None:
    """To those who hear the page; many at once in one sentence."""
    ref = pool_name(1)
    server.do(lambda scene: change(scene, ref, owners=("worker-0",), reason=Why.OWNER_DEAD))
    wait_text(
        page, "#spoken", "globex/mistral-7b-1 went from worker-1 to worker-0: its owner died."
    )

    def many(scene: Scene) -> None:
        scene.publish(*(replace(each, owners=("worker-2",)) for each in scene.placements.values()))

    server.do(many)
    wait_text(page, "#spoken", "8 pools have changed owner.")


def test_the_drill_down(page: "Page", server: SceneServer) -> None:
    """Owner, stand-by, why, history with what was lost, endpoints; it follows changes by itself."""
    past = [
        Move("g", "worker-2", "worker-0", "owner_dead", EpochVersion(1, 2), 1.0, 2.0, "done", "w"),
        Move("g", "", "worker-2", "initial", EpochVersion(1, 1), 1.0, 2.0, "done"),
    ]
    group = str(GroupKey(FIRST.namespace, f"{FIRST.name}-epp", 9002))
    server.do(lambda scene: setattr(scene, "past", [replace(each, group=group) for each in past]))
    page.goto(f"{server.url}#pool={FIRST}")
    panel = page.locator("#panel")
    wait_text(page, "#panel .answer", "worker-0 has owned it for 12 min: first placement.")
    wait_text(page, "#panel", "worker-1 stands by.")
    wait_text(page, "#panel", "as 3.17 in llama-8b-0-epp")
    wait_text(page, "#panel .lost", "what was in flight")
    wait_text(page, "#panel", "4 of 5 endpoints ready, by worker-0's word; 8.3 requests/s")
    row = panel.get_by_role("row").filter(has_text="llama-8b-0-1")
    assert row.inner_text().split() == [
        "llama-8b-0-1", "10.4.0.2:8000", "ready", "4", "1", "30", "%", "0.3", "s",
    ]  # fmt: skip
    wait_text(page, "#panel .lost", "not ready")
    server.do(lambda scene: change(scene, FIRST, owners=("worker-2",), reason=Why.DRAIN))
    wait_text(page, "#panel .answer", "worker-2 has owned it")
    wait_text(page, "#panel .answer", "its owner was drained.")
    server.do(lambda scene: setattr(scene, "mute", True))
    wait_text(page, "#panel .problem", "worker-2, the owner, at 10.0.0.7:9004: no answer")
    page.keyboard.press("Escape")
    panel.wait_for(state="hidden")
    page.goto(f"{server.url}#pool=no/such")
    wait_text(page, "#panel .problem", "there is no InferencePool no/such")


def test_what_if(page: "Page", server: SceneServer) -> None:
    """Before and after, in a picture and in numbers; nothing is done."""
    page.get_by_role("button", name="What if…").click()
    page.get_by_label("…worker").select_option("worker-1")
    page.get_by_role("button", name="Show").first.click()
    wait_text(page, "#panel .answer", "Without worker-1, 4 of 12 route groups would move (33.3 %).")
    rows = page.locator("#panel .plan table").first.locator("tbody tr")
    rows.nth(2).wait_for()
    assert rows.count() == 3
    assert "worker-1 leaves" in rows.nth(1).inner_text()
    assert "4 → 0" in rows.nth(1).inner_text()
    assert page.locator("#panel .before").count() >= 3
    page.get_by_label("…there are").fill("4")
    page.get_by_role("button", name="Show").last.click()
    wait_text(page, "#panel .answer", "With 4 workers,")
    assert page.url.endswith("#plan=workers:4")
    wait_text(page, "#panel .plan em", "joins")
    page.get_by_label("…there are").fill("0")
    page.get_by_role("button", name="Show").last.click()
    wait_text(page, "#panel .problem", "out of range")
    assert server.scene.drains == []
