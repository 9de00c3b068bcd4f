"""What the demo does to a fleet, what is promised for each event, and what came of it: pure.

A request belongs to the first event that happened while it ran, else to the last event before it
began. A recovery is measured by new requests: from the event to the first request that began after
the last bad one and was answered.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

LEAST_SECONDS = 15.0
MOST_SECONDS = 3600.0
FORMAT = 1
SLACK = 3.0
"""The demo fails only when a recovery takes this many times its budget: machines are busy."""


class Outcome(StrEnum):
    """What became of a request."""

    GOOD = "good"
    FAILED = "failed"
    CUT = "cut"


class Event(StrEnum):
    """What is done to the fleet, in this order."""

    DRAIN = "drain"
    WORKER_KILL = "worker_kill"
    LEADER_KILL = "leader_kill"
    REDIS_RESTART = "redis_restart"


@dataclass(frozen=True, slots=True)
class Record:
    """One request; times in seconds of one monotonic clock."""

    began: float
    ended: float
    outcome: Outcome
    why: str = ""


@dataclass(frozen=True, slots=True)
class Promise:
    """What an event may cost.

    Attributes:
        lossless: no request fails and no answer is cut.
        recovery_seconds: how long until all is good again.
        text: for people.
    """

    lossless: bool
    recovery_seconds: float
    text: str


PROMISES = {
    Event.DRAIN: Promise(True, 30.0, "none lost"),
    Event.WORKER_KILL: Promise(False, 1.0, "1 s"),
    Event.LEADER_KILL: Promise(True, 3.0, "none lost, 3 s"),
    Event.REDIS_RESTART: Promise(True, 5.0, "none lost, 5 s"),
}


@dataclass(frozen=True, slots=True)
class Done:
    """An event that was brought about.

    Attributes:
        at: when, on the records' clock.
        settled_seconds: until the fleet itself was in order again; None = it never was.
        note: what happened, for people.
    """

    event: Event
    at: float
    settled_seconds: float | None
    note: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """An event's result.

    Attributes:
        good_again_ms: None = it did not recover while it was watched.
        met: within its budget.
        tolerable: lossless where promised, and recovered within `SLACK` budgets.
    """

    event: Event
    note: str
    requests: int
    failed: int
    cut: int
    good_again_ms: int | None
    met: bool
    tolerable: bool


def _owner(record: Record, events: Sequence[Done]) -> Done | None:
    last = None
    for done in events:
        if record.began <= done.at <= record.ended:
            return done
        if done.at < record.began:
            last = done
    return last


def traffic_recovery(at: float, records: Iterable[Record]) -> float | None:
    """Seconds from `at` until new requests are good for good; 0.0 if none was bad.

    None: the last one that began was bad.
    """
    fresh = [record for record in records if record.began >= at]
    bad = max((r.began for r in fresh if r.outcome is not Outcome.GOOD), default=None)
    if bad is None:
        return 0.0
    good = min((r.began for r in fresh if r.began > bad), default=None)
    return None if good is None else good - at


def _recovery(done: Done, records: Sequence[Record]) -> float | None:
    traffic = traffic_recovery(done.at, records)
    if done.settled_seconds is None or traffic is None:
        return None
    if done.event in (Event.LEADER_KILL, Event.REDIS_RESTART):
        return max(traffic, done.settled_seconds)
    return traffic


def judge(done: Done, records: Sequence[Record]) -> Verdict:
    """The verdict on an event from the requests that belong to it."""
    promise = PROMISES[done.event]
    failed = sum(record.outcome is Outcome.FAILED for record in records)
    cut = sum(record.outcome is Outcome.CUT for record in records)
    recovery = _recovery(done, records)
    kept = not (promise.lossless and (failed or cut)) and bool(records)
    return Verdict(
        event=done.event,
        note=done.note,
        requests=len(records),
        failed=failed,
        cut=cut,
        good_again_ms=None if recovery is None else round(recovery * 1000),
        met=kept and recovery is not None and recovery <= promise.recovery_seconds,
        tolerable=kept and recovery is not None and recovery <= SLACK * promise.recovery_seconds,
    )


@dataclass(frozen=True, slots=True)
class Result:
    """The whole demo.

    Attributes:
        steady_bad: requests that failed or were cut before any event.
        reasons: what bad requests ended with, most frequent first.
    """

    seconds: float
    verdicts: tuple[Verdict, ...]
    epoch_before: int
    epoch_after: int
    requests: int
    steady_bad: int
    reasons: tuple[tuple[str, int], ...] = ()

    @property
    def ok(self) -> bool:
        """Every event came about and was tolerable, and nothing was lost without a reason."""
        events = [verdict.event for verdict in self.verdicts]
        good = all(verdict.tolerable for verdict in self.verdicts)
        return events == list(Event) and good and self.steady_bad == 0

    def as_json(self) -> dict[str, Any]:
        """The document that `--json` writes."""
        return {
            "format": FORMAT,
            "ok": self.ok,
            "seconds": round(self.seconds, 3),
            "events": [
                {
                    "event": verdict.event.value,
                    "requests": verdict.requests,
                    "failed": verdict.failed,
                    "cut": verdict.cut,
                    "good_again_ms": verdict.good_again_ms,
                    "met": verdict.met,
                }
                for verdict in self.verdicts
            ],
            "epoch_before": self.epoch_before,
            "epoch_after": self.epoch_after,
        }


def conclude(
    events: Sequence[Done],
    records: Sequence[Record],
    *,
    seconds: float,
    epochs: tuple[int, int],
) -> Result:
    """Share the requests out among the events and judge each."""
    shares: dict[Event, list[Record]] = {done.event: [] for done in events}
    steady_bad = 0
    reasons: dict[str, int] = {}
    for record in records:
        bad = record.outcome is not Outcome.GOOD
        if bad:
            why = f"{record.outcome}: {record.why}"
            reasons[why] = reasons.get(why, 0) + 1
        done = _owner(record, events)
        if done is not None:
            shares[done.event].append(record)
        else:
            steady_bad += bad
    return Result(
        seconds=seconds,
        verdicts=tuple(judge(done, shares[done.event]) for done in events),
        epoch_before=epochs[0],
        epoch_after=epochs[1],
        requests=len(records),
        steady_bad=steady_bad,
        reasons=tuple(sorted(reasons.items(), key=lambda item: -item[1])[:5]),
    )
