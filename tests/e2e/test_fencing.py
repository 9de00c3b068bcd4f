"""A leader that is paused (SIGSTOP) in the middle of a publication and wakes after its successor
has taken over changes nothing that matters (kyverno/kyverno#14984)."""

import json
import signal
import time
from pathlib import Path

import pytest

from tests.fleet_processes import Child, Fleet, running_fleet, until

POOLS = 4


def _epoch(stamp: str) -> int:
    return int(stamp.partition(".")[0])


def _start(fleet: Fleet, point: str, armed: Path) -> tuple[Child, Child, Child, Child]:
    """A leading coordinator that can pause, a second one, and two workers that share the pools."""
    fleet.prepare(POOLS)
    workers = (fleet.worker("worker-0"), fleet.worker("worker-1"))
    first = fleet.coordinator(
        "first", module="tests.pausing_coordinator", before=(point, str(armed))
    )

    def leads() -> bool:
        shown = fleet.map(first)
        return shown is not None and (shown["leader"] or {}).get("id") == "first"

    until("the first coordinator leads", leads)
    second = fleet.coordinator("second")
    both = {"worker-0", "worker-1"}
    until("two workers share the pools", lambda: fleet.owned(second, both, POOLS))
    return first, second, *workers


def _pause_at_fail_over(fleet: Fleet, point: str, armed: Path) -> tuple[Child, Child, int, str]:
    """Kill a worker so that the first leader pauses at `point`; wait for its successor's map.

    Returns the two coordinators, the port that all routes must name now, and the paused leader's
    last epoch.
    """
    first, second, survivor, victim = _start(fleet, point, armed)
    shown = fleet.map(first)
    assert shown is not None
    epoch = shown["epoch"]
    armed.touch()
    victim.kill()
    until("the leader pauses itself", first.stopped)
    port = survivor.ports["ext-proc"]
    seconds = until(
        "the successor's routes name the survivor",
        lambda: all(
            ports == (port,) and _epoch(stamp) > epoch for stamp, ports in fleet.routes().values()
        ),
    )
    assert first.stopped()
    assert seconds < 10.0, f"the successor was held up for {seconds:.1f} s"
    until("the successor's map is complete", lambda: fleet.owned(second, {"worker-0"}, POOLS))
    return first, second, port, str(epoch)


@pytest.mark.parametrize("point", ["publication", "files"])
def test_a_woken_leader_changes_neither_store_nor_routes(tmp_path: Path, point: str) -> None:
    """Paused before the store's write, or between two route files: nothing of it lands later."""
    with running_fleet(tmp_path) as fleet:
        first, second, _, _ = _pause_at_fail_over(fleet, point, tmp_path / "armed")
        before = fleet.map(second)
        assert before is not None
        # Whatever changes from here on, epoch and writer stay the successor's.
        files = {path.name: path.read_bytes() for path in fleet.eds.glob("*.json")}
        first.signal(signal.SIGCONT)
        deadline = time.monotonic() + 2.0
        while time.monotonic() < deadline:
            now = {path.name: path.read_bytes() for path in fleet.eds.glob("*.json")}
            assert now == files
            shown = fleet.map(second)
            assert shown is not None
            assert shown["epoch"] == before["epoch"]
            assert shown["leader"]["id"] == "second"
            time.sleep(0.02)

        def follows() -> bool:
            """Just woken, and until it has looked again, it knows of no leader."""
            shown = fleet.map(first)
            return shown is not None and (shown["leader"] or {}).get("id") == "second"

        until("the woken coordinator follows", follows)
        assert first.process.poll() is None, "the woken coordinator goes on as a follower"


def test_a_rename_that_had_passed_its_last_check_is_repaired(
    tmp_path: Path,
) -> None:
    """Paused inside the lock: the successor does not wait for it, and repairs what lands late."""
    with running_fleet(tmp_path) as fleet:
        armed = tmp_path / "armed"
        first, _, port, old = _pause_at_fail_over(fleet, "lock", armed)
        first.signal(signal.SIGCONT)
        # It may be repaired before anybody sees it there: the woken one says what it was.
        landed = armed.with_suffix(".landed")
        until("the stale rename lands", landed.exists)
        assert _epoch(json.loads(landed.read_text())["version_info"]) <= int(old)

        def stale() -> list[str]:
            return [
                name
                for name, (stamp, ports) in fleet.routes().items()
                if _epoch(stamp) <= int(old) or ports != (port,)
            ]

        until("it is repaired", lambda: not stale())
        deadline = time.monotonic() + 1.0
        while time.monotonic() < deadline:
            assert not stale()
            time.sleep(0.02)
