"""What terms count: worked out by hand over told times."""

from dataclasses import replace

import pytest

from coordinator.metrics import TermFigures
from coordinator.metrics.elections import ElectionFigures
from coordinator.metrics.steps import HandoverSteps, Step
from coordinator.metrics.unowned import longest_unowned
from coordinator.routes.contract import WriteResult
from fleet.model import EpochVersion, Phase, Reason, Signal
from tests.metrics_maps import group, map_of, placement

OWNED = map_of(placement(0, "w0"), placement(1, "w0"), placement(2, "w0"))
TWO_LOST = map_of(
    placement(0, "w0"), placement(1, since=100.0), placement(2, since=130.0), version=2
)


def test_group_seconds_without_an_owner() -> None:
    """Two groups for 3 s, by the map that was public then; a look changes nothing that passed."""
    figures = TermFigures()
    figures.look(OWNED, 0, now=10.0)
    figures.look(OWNED, 0, now=12.0)
    assert figures.unowned.total == 0.0
    figures.look(TWO_LOST, 0, now=13.0)
    assert figures.unowned.total == 0.0
    figures.look(TWO_LOST, 0, now=14.0)
    figures.look(OWNED, 0, now=16.0)
    assert figures.unowned.total == 6.0
    figures.look(OWNED, 0, now=99.0)
    assert figures.unowned.total == 6.0


def test_nobody_counts_between_terms() -> None:
    """Whoever led meanwhile has counted it."""
    figures = TermFigures()
    figures.look(TWO_LOST, 0, now=10.0)
    figures.rest()
    figures.look(TWO_LOST, 0, now=50.0)
    figures.look(TWO_LOST, 0, now=51.0)
    assert figures.unowned.total == 2.0


def test_the_longest_without_an_owner() -> None:
    """By the wall clock, since the map says since when; never below zero, whatever clocks do."""
    assert longest_unowned(TWO_LOST, wall=150.0) == 50.0
    assert longest_unowned(TWO_LOST, wall=90.0) == 0.0
    assert longest_unowned(OWNED, wall=150.0) == 0.0
    assert longest_unowned(None, wall=150.0) == 0.0


def test_moves_that_wait_or_are_under_way() -> None:
    """Queued ones and moving ones; none when the term is over."""
    figures = TermFigures()
    figures.look(map_of(placement(0, "w0", moving_to="w1"), placement(1, "w0")), 3, now=1.0)
    assert figures.moves_pending == 4
    figures.rest()
    assert figures.moves_pending == 0


def test_propagation_is_measured_for_each_worker_and_map() -> None:
    """A newer acknowledgement covers older maps; a report of an older one covers nothing."""
    figures = TermFigures()
    one, two = EpochVersion(1, 1), EpochVersion(1, 2)
    figures.sent(one, ["w0", "w1"], began=10.0)
    figures.sent(two, ["w0"], began=11.0)
    figures.acknowledged("w0", EpochVersion(1, 0), 11.5)
    assert len(figures.propagation.seconds) == 0
    figures.acknowledged("w0", two, 12.0)
    assert (len(figures.propagation.seconds), figures.propagation.seconds.total) == (2, 3.0)
    figures.acknowledged("w0", two, 13.0)
    figures.acknowledged("w1", one, 10.5)
    assert (len(figures.propagation.seconds), figures.propagation.seconds.total) == (3, 3.5)


def test_the_dead_acknowledge_nothing() -> None:
    """Nor is anything kept for them; and a worker that never answers has a bound."""
    figures = TermFigures()
    for version in range(1000):
        figures.sent(EpochVersion(1, version), ["w0", "gone"], began=1.0)
    figures.look(OWNED, 0, now=2.0)
    figures.acknowledged("gone", EpochVersion(2, 0), 3.0)
    assert len(figures.propagation.seconds) == 0
    figures.acknowledged("w0", EpochVersion(2, 0), 3.0)
    assert len(figures.propagation.seconds) == 64


def test_the_steps_of_a_planned_move() -> None:
    """Opened after 2 s, drained 5 s later; groups that stay take no step."""
    steps = HandoverSteps()
    rest = placement(1, "w0")
    maps = [
        map_of(placement(0, "w0"), rest),
        map_of(placement(0, "w0", moving_to="w1", phase=Phase.MOVING), rest, version=2),
        map_of(placement(0, "w1", draining=["w0"]), rest, version=3),
        map_of(placement(0, "w1"), rest, version=4),
    ]
    for before, after, now in zip(maps, maps[1:], (10.0, 12.0, 17.0), strict=False):
        steps.follow(before, after, [group(0)], now)
    assert {step: (len(h), h.total) for step, h in steps.seconds.items()} == {
        Step.OPEN: (1, 2.0),
        Step.ACKNOWLEDGE: (0, 0.0),
        Step.DRAIN: (1, 5.0),
    }


@pytest.mark.parametrize(
    "after",
    [
        placement(0, "w0"),  # given up: the owner keeps it
        placement(0, "w0", moving_to="w2", phase=Phase.MOVING),  # to somebody else
    ],
)
def test_a_step_that_is_given_up_took_no_time(after: object) -> None:
    """It would look like a quick one."""
    steps = HandoverSteps()
    moving = map_of(placement(0, "w0", moving_to="w1", phase=Phase.MOVING), version=2)
    steps.follow(map_of(placement(0, "w0")), moving, [group(0)], 1.0)
    steps.follow(moving, map_of(after), [group(0)], 2.0)  # type: ignore[arg-type]
    assert len(steps.seconds[Step.OPEN]) == 0


def test_the_owner_of_a_fail_over_acknowledges() -> None:
    """From the map that names it to the one that says `owned`."""
    steps = HandoverSteps()
    opening = map_of(placement(0, "w1", phase=Phase.OPENING), version=2)
    steps.follow(map_of(placement(0, "w0")), opening, [group(0)], 1.0)
    steps.follow(opening, map_of(placement(0, "w1"), version=3), [group(0)], 1.25)
    assert steps.seconds[Step.ACKNOWLEDGE].total == 0.25


def test_nothing_is_kept_of_groups_that_are_gone() -> None:
    """A pool that is deleted while it opens."""
    steps = HandoverSteps()
    opening = map_of(placement(0, "w1", phase=Phase.OPENING))
    steps.follow(None, opening, [group(0)], 1.0)
    steps.follow(opening, replace(opening, placements={}), [], 2.0)
    steps.follow(None, map_of(placement(0, "w1")), [group(0)], 3.0)
    assert len(steps.seconds[Step.ACKNOWLEDGE]) == 0


def test_counts_of_moves_verdicts_and_routes() -> None:
    figures = TermFigures()
    figures.move(Reason.DRAIN, "done")
    figures.move(Reason.DRAIN, "done")
    figures.verdict(Signal.SILENT)
    figures.routes_written(WriteResult((group(0), group(1)), (group(2),), (), 1), 0.5)
    figures.routes_failed(7, 1.0)
    assert {key: count for key, count in figures.moves.items() if count} == {("drain", "done"): 2}
    assert len(figures.moves) == 28, (
        "a rate sees the first move only if its series was there before"
    )
    assert figures.verdicts == {"refused": 0, "silent": 1, "incarnation": 0, "pod_gone": 0}
    assert figures.route_writes == {"written": 2, "unchanged": 1, "refused": 0, "failed": 7}
    assert (len(figures.route_write_seconds), figures.route_write_seconds.total) == (2, 1.5)


def test_leaderships_seen_to_begin() -> None:
    """By epoch: the first one seen began before, unless there was none; a rolled-back lease began
    nothing."""
    restarted, fresh = ElectionFigures(), ElectionFigures()
    for epoch in (7, 7, 8, 8, 3, 8, 9):
        restarted.saw(epoch)
    for epoch in (0, 1, 1):
        fresh.saw(epoch)
    assert (restarted.transitions, fresh.transitions) == (2, 1)
