"""What the demo makes of its records."""

import pytest
from rich.console import Console

from fleet.local.demo_events import (
    Done,
    Event,
    Outcome,
    Record,
    conclude,
    judge,
    traffic_recovery,
)
from fleet.local.demo_report import fitting_table

GOOD, FAILED, CUT = Outcome.GOOD, Outcome.FAILED, Outcome.CUT


def _record(began: float, outcome: Outcome = GOOD, lasts: float = 0.1) -> Record:
    return Record(began, began + lasts, outcome, "why" if outcome is not GOOD else "")


def test_recovery_is_the_first_good_request_after_the_last_bad_one() -> None:
    """By the time at which requests began; good ones in between do not count."""
    records = [
        _record(9.9, FAILED),
        _record(10.1, FAILED),
        _record(10.2),
        _record(10.3, CUT, lasts=9.0),
        _record(10.5),
        _record(10.6),
    ]
    assert traffic_recovery(10.0, records) == 0.5
    assert traffic_recovery(10.4, records) == 0.0
    assert traffic_recovery(10.0, records[:4]) is None


def test_a_request_belongs_to_the_event_that_hit_it() -> None:
    """In flight: the event's; else the last event before it; before all: nobody's."""
    events = [Done(Event.DRAIN, 10.0, 0.2, ""), Done(Event.WORKER_KILL, 20.0, 0.2, "")]
    records = [
        _record(5.0),
        _record(9.95),  # runs when the drain begins
        _record(15.0),
        _record(19.0, CUT, lasts=2.0),  # runs when the worker dies
        _record(25.0, FAILED),
        _record(26.0),
    ]
    result = conclude(events, records, seconds=30.0, epochs=(3, 4))
    assert [(v.requests, v.failed, v.cut) for v in result.verdicts] == [(2, 0, 0), (3, 1, 1)]
    assert result.steady_bad == 0
    assert result.reasons == (("cut: why", 1), ("failed: why", 1))


def test_a_lossless_event_loses_its_promise_with_one_request() -> None:
    """A drain with one failed or cut request is neither met nor tolerable."""
    done = Done(Event.DRAIN, 10.0, 1.0, "")
    clean = judge(done, [_record(11.0)])
    assert (clean.met, clean.tolerable, clean.good_again_ms) == (True, True, 0)
    for outcome in (FAILED, CUT):
        verdict = judge(done, [_record(11.0, outcome), _record(12.0)])
        assert (verdict.met, verdict.tolerable) == (False, False)


def test_a_late_recovery_is_missed_first_and_fatal_beyond_three_budgets() -> None:
    """Worker kill: 1 s is the budget, 3 s the limit; losses inside the window are allowed."""
    done = Done(Event.WORKER_KILL, 10.0, 0.3, "")
    for last_bad, good, met, tolerable in (
        (10.4, 10.5, True, True),
        (11.4, 11.5, False, True),
        (13.4, 13.5, False, False),
    ):
        verdict = judge(done, [_record(last_bad, FAILED), _record(good)])
        assert (verdict.met, verdict.tolerable) == (met, tolerable)


def test_a_leader_is_judged_by_the_next_one() -> None:
    """No request failed, but nobody led for 4 s: missed; never: broken."""
    records = [_record(11.0)]
    late = judge(Done(Event.LEADER_KILL, 10.0, 4.0, ""), records)
    assert (late.good_again_ms, late.met, late.tolerable) == (4000, False, True)
    never = judge(Done(Event.LEADER_KILL, 10.0, None, ""), records)
    assert (never.good_again_ms, never.met, never.tolerable) == (None, False, False)


def test_no_traffic_proves_nothing() -> None:
    """An event without a single request is not met."""
    assert not judge(Done(Event.DRAIN, 10.0, 0.1, ""), []).met


def test_the_demo_is_good_only_when_every_event_came_about() -> None:
    """Two of four events, or a failure before any event: not ok."""
    events = [Done(event, 10.0 * n, 0.1, "") for n, event in enumerate(Event, start=1)]
    records = [_record(10.0 * n + 1) for n in range(1, 5)]
    assert conclude(events, records, seconds=50.0, epochs=(1, 3)).ok
    assert not conclude(events[:2], records, seconds=50.0, epochs=(1, 3)).ok
    bad_before = [_record(1.0, FAILED), *records]
    assert not conclude(events, bad_before, seconds=50.0, epochs=(1, 3)).ok


def test_json_document() -> None:
    """Outside tools rely on exactly these members."""
    events = [Done(Event.DRAIN, 10.0, 0.1, "n")]
    document = conclude(events, [_record(11.0)], seconds=12.3456, epochs=(1, 3)).as_json()
    assert document == {
        "format": 1,
        "ok": False,
        "seconds": 12.346,
        "events": [
            {
                "event": "drain",
                "requests": 1,
                "failed": 0,
                "cut": 0,
                "good_again_ms": 0,
                "met": True,
            }
        ],
        "epoch_before": 1,
        "epoch_after": 3,
    }


@pytest.mark.parametrize(
    ("width", "left_out"),
    [(80, set()), (79, set()), (70, {"requests"}), (60, {"requests", "budget"})],
)
def test_the_table_fits_narrow_terminals(width: int, left_out: set[str]) -> None:
    """Whole columns are left out, what the events came to never."""
    events = [Done(event, 10.0 * n, 2.5, "") for n, event in enumerate(Event, start=1)]
    records = [_record(10.0 * n + 1, lasts=0.1) for n in range(1, 5)]
    result = conclude(events, records, seconds=50.0, epochs=(1, 3))
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(fitting_table(result, console))
    lines = [line.rstrip() for line in capture.get().splitlines() if line.strip()]
    every = {"event", "requests", "failed", "cut", "recovery", "budget", "result"}
    assert set(lines[0].split()) == every - left_out
    assert len(lines) == 6
    assert not any("…" in line for line in lines)
