"""Every combination of signals against the rules, written as tables.

One worker of five is looked at; the other four are well all the time, so that nobody doubts
themselves. Every signal holds from second 0 to second 4 (two TTLs of 2 s), and the verdict is read
then. The rules:

  1. its pod is gone: dead
  2. control stream down and both ports refused twice: dead
  3. control stream down and another incarnation says hello under its id: dead
  4. beat and control stream both silent for the TTL: dead
  5. the store tells no beat (it is away, or has lost it), and control stream and health check both
     unanswered for two TTLs: dead
  and nothing else is.
"""

from itertools import combinations

import pytest

from coordinator.verdicts import Answer, PodAt
from fleet.model import MemberState, Signal
from tests.membership_scenes import A, R, U, deaths, fleet_of, report, states, worker

NAMES = {
    "P": "its pod is gone",
    "D": "its control stream is down",
    "R": "both of its ports refuse, twice",
    "r": "one of its ports refuses, twice",
    "T": "connecting to both of its ports times out",
    "N": "another incarnation says hello under its id",
    "C": "nothing comes on its control stream",
    "B": "the store says it does not beat",
    "A": "it is absent from the store's members",
    "S": "the store is away",
    "H": "its health check is unanswered",
    "L": "its reports come late, each after 1.5 s",
}

KILLING = {
    "P": Signal.POD_GONE,
    "DN": Signal.INCARNATION,
    "DR": Signal.REFUSED,
    "CB": Signal.SILENT,
    "ACH": Signal.SILENT,
    "CHS": Signal.SILENT,
}
"""What suffices; in a combination that has several the first that is found gives the name."""

PRECEDENCE = (Signal.INCARNATION, Signal.REFUSED, Signal.POD_GONE, Signal.SILENT)

PAIRS = """
      P    D    R    r    T    N    C    B    A    S    H    L
 P   dead dead dead dead dead dead dead dead dead dead dead dead
 D        -    dead -    -    dead -    dead -    -    -    -
 R             -    -    -    -    -    -    -    -    -    -
 r                  -    -    -    -    -    -    -    -    -
 T                       -    -    -    -    -    -    -    -
 N                            -    -    -    -    -    -    -
 C                                 -    dead -    -    -    -
 B                                      -    -    -    -    -
 A                                           -    -    -    -
 S                                                -    -    -
 H                                                     -    -
 L                                                          -
"""
"""Each signal alone (the diagonal) and each pair of them. A stream that is down is silent as well,
so with a beat that is missing it is rule 4."""


def verdict(signals: frozenset[str]) -> tuple[Signal | None, MemberState | None]:
    """What becomes of the worker: the signal of its death, and else its state."""
    membership, (subject, *others) = fleet_of(5)
    rival = worker(0, "b")
    down = "D" in signals
    if down:
        membership.control_down(subject, 0.0)
    if "P" in signals:
        membership.pods_seen(gone=[PodAt(subject.id, "10.0.0.0")], ending=())
    if "N" in signals:
        answer = membership.hello(rival, 0.1)
        assert answer is (Answer.JOINED if down else Answer.DUPLICATE)
    for tick in range(1, 17):
        now = tick * 0.25
        report(membership, others, now)
        talks = not signals & {"C"} and not down
        if talks and ("L" not in signals or tick % 6 == 0):
            report(membership, [subject], now)
        # A beat, a health check and the store's members are each seen every 0.25 s.
        if "S" in signals:
            membership.store_unknown()
        elif "A" in signals:
            membership.store_seen([(m, 0.0) for m in others], now)
        else:
            age = now if "B" in signals else 0.0
            membership.store_seen([(subject, age), *((m, 0.0) for m in others)], now)
        membership.health_checked(subject, answered="H" not in signals, now=now)
        for at in (now - 0.05, now):
            for mark, ports in (("R", (R, R)), ("r", (R, A)), ("T", (U, U))):
                if mark in signals:
                    membership.connects(subject, *ports, at)
        judgement = membership.judge(now)
        dead = deaths(judgement).get(subject.id)
        if dead is not None:
            return dead, None
    return None, states(judgement).get(subject.id)


def expected(signals: frozenset[str]) -> Signal | None:
    """By the rules, applied to what the signals amount to together."""
    effective = set(signals)
    if "S" in effective:
        effective -= {"A", "B"}
    if "A" in effective:
        effective -= {"B"}
    if "D" in effective:
        effective |= {"C"}  # what is down is silent as well
    if effective & {"r", "T"}:
        effective -= {"R"}  # one look that proves nothing breaks the row
    found = {kind for parts, kind in KILLING.items() if set(parts) <= effective}
    return next((kind for kind in PRECEDENCE if kind in found), None)


def table() -> list[tuple[str, str, bool]]:
    head, *lines = PAIRS.strip("\n").splitlines()
    columns = head.split()
    rows = []
    for index, line in enumerate(lines):
        name, *cells = line.split()
        for column, cell in zip(columns[index:], cells, strict=True):
            rows.append((name, column, cell == "dead"))
    return rows


@pytest.mark.parametrize(("one", "other", "dead"), table())
def test_each_signal_alone_and_each_pair(one: str, other: str, dead: bool) -> None:
    """As the table says; a worker that lives is at most suspect."""
    signal, state = verdict(frozenset({one, other}))
    assert (signal is not None) == dead, f"{NAMES[one]}; {NAMES[other]}"
    assert dead or state in (MemberState.ALIVE, MemberState.SUSPECT)


@pytest.mark.parametrize("size", range(len(NAMES) + 1))
def test_every_combination_of_signals(size: int) -> None:
    """Dead exactly if it contains what suffices by a rule, and by that rule's name."""
    for parts in combinations(NAMES, size):
        signals = frozenset(parts)
        signal, _ = verdict(signals)
        assert signal == expected(signals), [NAMES[part] for part in parts]


def test_a_worker_that_is_suspect_says_of_what() -> None:
    """Silent on one channel: it lives, and people are told which one and since when."""
    membership, (quiet, *others) = fleet_of(3)
    for tick in range(1, 13):
        now = tick * 0.25
        report(membership, others, now)
        membership.store_seen([(m, 0.0) for m in (quiet, *others)], now)
        judgement = membership.judge(now)
    judged = next(each for each in judgement.living if each.member == quiet)
    assert (judged.state, judged.signal) == (MemberState.SUSPECT, Signal.SILENT)
    assert judged.why == "silent: beat 0 s, control 3 s"
    assert {each.why for each in judgement.living if each.member != quiet} == {""}
