"""A fleet at a glance: what is counted, and that it fits the screen."""

from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console

from fleet.cli.changes import MOST, changes
from fleet.cli.fetching import Snapshot
from fleet.cli.summary import Balance, screen, summarize

NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)


def pool(number: int, phase: str = "owned", **more: Any) -> dict[str, Any]:
    owners = [] if phase == "unowned" else ["worker-0"]
    return {
        "namespace": "acme",
        "name": f"pool-{number:05}",
        "owners": owners,
        "standby": "worker-1",
        "phase": phase,
        "since": "2026-11-30T11:58:00Z",
        "reason": "initial",
        **more,
    }


def worker(number: int, state: str = "alive", owned: int = 2, **more: Any) -> dict[str, Any]:
    return {
        "id": f"worker-{number}",
        "state": state,
        "signal": None,
        "owned": owned,
        "standby": 1,
        "load": 0.0,
        "epoch": 3,
        "version": 9,
        "loop_lag_ms": 0.2,
        **more,
    }


def shard_map(*pools: dict[str, Any], leader: str | None = "coordinator-0") -> dict[str, Any]:
    return {
        "format": 1,
        "fleet": "default",
        "epoch": 3,
        "version": 9,
        "published_at": "2026-11-30T11:59:15.000Z",
        "leader": None if leader is None else {"id": leader, "http": "h:1"},
        "pools": list(pools),
    }


def drawn(found: Any, workers: list[dict[str, Any]], width: int, height: int) -> list[str]:
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(screen(found, workers, NOW, width=width, height=height))
    return [line.rstrip() for line in capture.get().splitlines()]


def test_what_is_counted() -> None:
    """Phases with the urgent ones first, unowned by name, moves under way, ages, balance."""
    pools = [pool(1), pool(2, "unowned"), pool(3, "moving", moving_to="worker-1"), pool(4)]
    workers = [worker(0, owned=3, load=2.0), worker(1, owned=1), worker(2, "draining", owned=0)]
    found = summarize(shard_map(*pools), workers, NOW)
    assert (found.leader, found.map, found.map_age_seconds) == ("coordinator-0", "3.9", 45.0)
    assert list(found.phases.items()) == [("unowned", 1), ("moving", 1), ("owned", 2)]
    assert found.unowned == ["acme/pool-00002"]
    assert found.moves_pending == 1
    assert found.workers == {"alive": 2, "draining": 1}
    # (3 pools + 2 streams/s) against a mean of (5 + 1) / 2.
    assert found.balance == Balance(1, 3, 1.667)


@pytest.mark.parametrize(
    ("workers", "ratio"),
    [
        ([], 0.0),
        ([worker(0, owned=0)], 0.0),
        ([worker(0, owned=3, weight=3), worker(1, owned=1)], 1.0),
        ([worker(0, owned=4), worker(1, "dead", owned=9), worker(2, "suspect", owned=4)], 1.0),
    ],
)
def test_balance(workers: list[dict[str, Any]], ratio: float) -> None:
    """Weights count, and workers that take pools alone."""
    assert summarize(shard_map(), workers, NOW).balance.fullest_to_mean == ratio


@pytest.mark.parametrize(("width", "height"), [(80, 24), (80, 50), (120, 40)])
@pytest.mark.parametrize(("pools", "workers"), [(6, 3), (10_000, 100), (0, 0), (30, 40)])
def test_it_fits_the_screen(width: int, height: int, pools: int, workers: int) -> None:
    """Whatever there is: neither too high nor too wide, and it says where the rest is."""
    some = [pool(n, "unowned" if n % 40 == 1 else "owned") for n in range(pools)]
    everybody = [
        worker(n, "suspect" if n % 9 == 8 else "alive", why="silent: 2 s" if n % 9 == 8 else "")
        for n in range(workers)
    ]
    lines = drawn(shard_map(*some), everybody, width, height - 1)
    assert len(lines) < height, "\n".join(lines)
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    assert "3.9" in text
    if pools == 10_000:
        assert "NO OWNER: acme/pool-00001, acme/pool-00041" in text
        assert "more (epp-fleet pools --phase unowned)" in text.replace("\n", " ")
        assert "more pools: epp-fleet pools" in text
        assert "more workers: epp-fleet workers" in text
        assert "worker-8 " in text, "the suspect ones come first"


def test_ten_thousand_calm_pools_are_one_line() -> None:
    """Nothing of them needs a look."""
    lines = drawn(shard_map(*(pool(n) for n in range(10_000))), [worker(0)], 80, 24)
    assert lines[1] == "10000 pools: 10000 owned"
    assert lines[-1] == "all 10000 have an owner: epp-fleet pools"


def test_of_many_workers_the_unwell_and_the_fullest() -> None:
    """A screen of those that are like each other tells nothing."""
    workers = [worker(n, owned=n) for n in range(40)]
    workers[7] = worker(7, "draining")
    lines = drawn(shard_map(*(pool(n) for n in range(100))), workers, 80, 24)
    shown = [line.split()[0] for line in lines if line.startswith("worker-")]
    assert shown == ["worker-7", "worker-39", "worker-38", "worker-37", "worker-36"]
    assert "... and 35 more workers: epp-fleet workers" in lines


def test_without_leader_it_is_said_loudly() -> None:
    """The map still is what is served."""
    assert "leader NONE" in drawn(shard_map(leader=None), [], 80, 24)[0]


# -- what changed ---------------------------------------------------------------------------------


def look(*pools: dict[str, Any], workers: Any = (), leader: str | None = "c0") -> Snapshot:
    return Snapshot(shard_map(*pools, leader=leader), tuple(workers), "http://h:1")


def test_changes_in_words() -> None:
    """Leader, workers, pools; a line each."""
    before = look(pool(1), pool(2), pool(3), workers=[worker(0), worker(1)])
    after = look(
        pool(1, "moving", moving_to="worker-2"),
        pool(2, owners=["worker-1"], reason="owner_dead", standby=None),
        pool(4),
        workers=[worker(0, "dead", why="refused: 0.1 s"), worker(2)],
        leader="c1",
    )
    assert changes(before, after) == [
        "leader c0 -> c1",
        "worker worker-0: alive -> dead (refused: 0.1 s)",
        "worker worker-2: new, alive",
        "worker worker-1: gone",
        "pool acme/pool-00001: owned -> moving to worker-2",
        "pool acme/pool-00002: owner worker-0 -> worker-1 (owner_dead), stand-by worker-1 -> none",
        "pool acme/pool-00004: new, owned, owner worker-0",
        "pool acme/pool-00003: gone",
    ]


def test_loads_are_no_changes() -> None:
    """They change all the time."""
    before = look(pool(1), workers=[worker(0, load=1.0)])
    assert changes(before, look(pool(1), workers=[worker(0, load=2.0)])) == []


def test_many_changes_are_counted() -> None:
    """A screen of them is enough."""
    before = look(*(pool(n) for n in range(500)))
    after = look(*(pool(n, owners=["worker-9"]) for n in range(500)))
    found = changes(before, after)
    assert len(found) == MOST + 1
    assert found[-1] == "... and 480 more changes"
