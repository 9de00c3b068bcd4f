"""The shard map on a terminal."""

from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text

from fleet.cli import tables

NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)


def _pool(name: str, phase: str = "owned", owner: str | None = "worker-0") -> dict[str, Any]:
    return {
        "namespace": "acme",
        "name": name,
        "group": f"acme/{name}-epp:9002",
        "owners": [owner] if owner else [],
        "standby": "worker-1",
        "phase": phase,
        "since": "2026-11-30T11:58:00Z",
        "reason": "initial",
    }


def _text(renderable: Any, width: int = 160) -> str:
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()


@pytest.mark.parametrize(
    ("since", "shown"),
    [
        ("2026-11-30T12:00:05Z", "0s"),
        ("2026-11-30T11:58:30Z", "90s"),
        ("2026-11-30T11:58:00Z", "2m"),
        ("2026-11-30T09:30:00+00:00", "2h"),
        ("2026-11-20T12:00:00Z", "10d"),
        ("yesterday", "?"),
    ],
)
def test_ages(since: str, shown: str) -> None:
    """One unit, whole numbers, never negative."""
    assert tables.ago(since, NOW) == shown


def test_what_needs_attention_comes_first() -> None:
    """A screen may end before the list does."""
    pools = [_pool("b"), _pool("a"), _pool("m", "moving"), _pool("z", "unowned", None)]
    assert [pool["name"] for pool in tables.order(pools)] == ["z", "m", "a", "b"]


def test_pools_table_names_everything() -> None:
    """Pool, owner, stand-by, phase, age, reason; a dash where there is none."""
    lines = _text(tables.pools_table([_pool("a"), _pool("b", "unowned", None)], NOW)).splitlines()
    assert lines[0].split() == ["POOL", "OWNER", "STAND-BY", "PHASE", "SINCE", "REASON"]
    assert lines[1].split() == ["acme/a", "worker-0", "worker-1", "owned", "2m", "initial"]
    assert lines[2].split() == ["acme/b", "-", "worker-1", "unowned", "2m", "initial"]


@pytest.mark.parametrize(
    ("width", "columns"),
    [
        (49, ["POOL", "OWNER", "STAND-BY", "PHASE", "SINCE", "REASON"]),
        (48, ["POOL", "OWNER", "STAND-BY", "PHASE", "SINCE"]),
        (39, ["POOL", "OWNER", "STAND-BY", "PHASE"]),
        (33, ["POOL", "OWNER", "STAND-BY", "PHASE"]),
        (32, ["POOL", "OWNER", "PHASE"]),
        (5, ["POOL", "OWNER", "PHASE"]),
    ],
)
def test_a_narrow_terminal_gets_fewer_columns(width: int, columns: list[str]) -> None:
    """6 + 8 + 8 + 5 + 5 + 7 and gaps of 2 are 49; nothing that matters is cut for the rest."""
    lines = _text(tables.pools_table([_pool("a")], NOW, width), max(width, 23)).splitlines()
    assert lines[0].split() == columns
    assert lines[1].startswith("acme/a  worker-0  ")
    assert "…" not in lines[1]


@pytest.mark.parametrize(
    ("load", "shown"),
    [
        ({"streams_per_second": 12.34, "streams_open": 3}, "12.3"),
        (7.0, "7.0"),
        (None, "-"),
    ],
)
def test_workers_table(load: object, shown: str) -> None:
    """State with its signal, load in whichever form the coordinator gives it."""
    worker = {
        "id": "worker-0",
        "state": "dead",
        "signal": "refused",
        "owned": 2,
        "standby": 1,
        "load": load,
        "loop_lag_ms": 0.6,
        "epoch": 3,
        "version": 9,
    }
    line = _text(tables.workers_table([worker])).splitlines()[1]
    assert line.split() == ["worker-0", "dead", "(refused)", "2", "1", shown, "-", "1", "ms", "3.9"]


def test_why_a_worker_is_suspect_or_dead() -> None:
    """A line for each; none for those that are well, or of a coordinator that does not say."""
    workers = [{"id": "w0", "why": ""}, {"id": "w1"}, {"id": "w2", "why": "pod gone; beat 0.1 s"}]
    assert [line.plain for line in tables.concerns(workers)] == ["w2: pod gone; beat 0.1 s"]


def test_a_move_shows_where_it_goes() -> None:
    """The owner, and who opens the pool."""
    pool = {**_pool("a", "moving"), "moving_to": "worker-2"}
    assert "worker-0 -> worker-2  worker-1  moving" in _text(tables.pools_table([pool], NOW))


def test_names_that_do_not_fit_are_folded() -> None:
    """Nothing is cut off that one would have to type again."""
    name, owner = "a-pool-of-" + "x" * 40, "worker-of-" + "y" * 30
    shown = _text(tables.pools_table([_pool(name, owner=owner)], NOW, 40), 40)
    assert "…" not in shown
    columns = list(zip(*(line.ljust(40) for line in shown.splitlines()[1:]), strict=True))
    joined = "".join("".join(column).strip() for column in zip(*columns, strict=True))
    assert joined.count("x") == 40
    assert joined.count("y") == 30


def test_more_of_workers_where_there_is_room() -> None:
    """Weight, zone and program version in `workers`; first to go where it is narrow."""
    worker = {
        "id": "w0",
        "state": "alive",
        "owned": 2,
        "standby": 1,
        "epoch": 1,
        "version": 2,
        "weight": 3,
        "zone": "eu-1",
        "build": "0.2.0",
        "streams_open": 7,
    }
    wide = _text(tables.workers_table([worker], wide=True)).splitlines()[1].split()
    assert wide == ["w0", "alive", "2", "1", "-", "7", "-", "1.2", "3", "eu-1", "0.2.0"]
    narrow = _text(tables.workers_table([worker], 40, wide=True)).splitlines()[0].split()
    assert "ZONE" not in narrow
    assert narrow[:3] == ["WORKER", "STATE", "OWNED"]


def test_plain_lines_are_the_same_table() -> None:
    """As rich draws it, wide characters too; where something must be folded there are none."""
    pools = [_pool("a"), _pool("名前"), _pool("b", "unowned", None)]
    table = tables.pools_table(pools, NOW)
    drawn = [line.rstrip() for line in _text(table).splitlines()]
    assert table.lines(160) == drawn
    assert tables.Rows({"LOAD": [Text("1.0"), Text("10.0")]}).lines(9) == ["LOAD", " 1.0", "10.0"]
    assert table.lines(20) is None
