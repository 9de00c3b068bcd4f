"""One line for each decision that matters, and bounded numbers of them."""

import logging
from collections.abc import Sequence
from typing import Any

import pytest

from coordinator.leader.publishing import MOST_TOLD, tell_moves
from coordinator.planning import Change
from coordinator.statuses import Statuses
from coordinator.verdicts import Judged
from epp_worker.bounds import TELL_SECONDS, BoundWatch
from fleet.model import (
    Addresses,
    EpochVersion,
    GroupKey,
    LeaderInfo,
    Member,
    MemberState,
    Reason,
    ShardMap,
    Signal,
)

A_MAP = ShardMap("f", EpochVersion(3, 7), 0.0, LeaderInfo("c", "h:1", "h:2"), {})


def change(number: int, outcome: str = "done", reason: Reason = Reason.DRAIN) -> Change:
    return Change(GroupKey("ns", f"p{number}", 1), "w0", "w1", reason, 0.0, outcome)


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records]


def keys(record: logging.LogRecord, *names: str) -> list[Any]:
    return [getattr(record, name) for name in names]


def test_each_move_has_a_line(caplog: pytest.LogCaptureFixture) -> None:
    """Those that failed are warnings, and come first."""
    caplog.set_level(logging.INFO)
    tell_moves([change(1), change(2, "deadline"), change(3, "cancelled")], A_MAP)
    assert told(caplog) == [
        ("WARNING", "move failed"),
        ("INFO", "group moved"),
        ("INFO", "group moved"),
    ]
    names = ("group", "source", "target", "reason", "outcome", "version")
    assert keys(caplog.records[0], *names) == ["ns/p2:1", "w0", "w1", "drain", "deadline", "3.7"]


def test_many_moves_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    """A join of 10,000 groups fills no disk, and hides no failure."""
    caplog.set_level(logging.INFO)
    tell_moves([*(change(n) for n in range(1000)), change(1000, "gainer_dead")], A_MAP)
    assert len(caplog.records) == MOST_TOLD + 1
    assert told(caplog)[0] == ("WARNING", "move failed")
    assert told(caplog)[-1] == ("INFO", "moves left out")
    assert keys(caplog.records[-1], "count") == [1001 - MOST_TOLD]


def judged(name: str, state: MemberState, why: str = "") -> Judged:
    member = Member(name, "i", Addresses("h:1", "h:2", "h:3", "h:4"))
    signal = Signal.SILENT if why else None
    return Judged(member, state, signal, reached=True, why=why)


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ([MemberState.ALIVE, MemberState.ALIVE], []),
        ([MemberState.ALIVE, MemberState.SUSPECT], ["worker suspect"]),
        (
            [MemberState.SUSPECT, MemberState.SUSPECT, MemberState.ALIVE],
            ["worker suspect", "worker well again"],
        ),
        ([MemberState.SUSPECT, MemberState.DEAD], ["worker suspect"]),
        (
            [MemberState.DRAINING, MemberState.DRAINING, MemberState.ALIVE],
            ["worker draining", "worker takes groups again"],
        ),
        ([MemberState.DRAINING, None], ["worker draining"]),
    ],
)
def test_changes_of_a_workers_state(
    states: Sequence[MemberState | None],
    expected: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Once each; a death has a line of its own elsewhere."""
    caplog.set_level(logging.INFO)
    statuses = Statuses()
    for state in states:
        why = "silent: beat 1.2 s" if state is MemberState.SUSPECT else ""
        statuses.of([] if state is None else [judged("w0", state, why)], None)
    assert [message for _, message in told(caplog)] == expected
    for record in caplog.records:
        assert keys(record, "worker") == ["w0"]


class _Bounds(BoundWatch):
    """Hits as the test says."""

    def __init__(self) -> None:
        self.now_hit: dict[str, int] = {}
        self._told: dict[str, int] = {}
        self._told_at = float("-inf")

    def hits(self) -> dict[str, int]:
        return self.now_hit


def test_bounds_that_are_hit(caplog: pytest.LogCaptureFixture) -> None:
    """What was hit since the last line, not more than one in a while."""
    caplog.set_level(logging.INFO)
    watch = _Bounds()
    for now, hits in (
        (0.0, {"streams": 0}),
        (1.0, {"streams": 2, "body": 1}),
        (2.0, {"streams": 900, "body": 1}),
        (1.0 + TELL_SECONDS, {"streams": 901, "body": 1}),
        (1.0 + 3 * TELL_SECONDS, {"streams": 901, "body": 1}),
    ):
        watch.now_hit = hits
        watch._tell(now)
    said = [keys(record, "bounds", "hits") for record in caplog.records]
    assert said == [["body 1, streams 2", 3], ["streams 899", 899]]
