"""Whom a stray is forwarded to, when the leader is asked, and what is remembered of owners."""

import pytest

from epp_worker.forwarding.rules import Decision, Known, Past, decide
from epp_worker.whereabouts import MAX_REMEMBERED, Whereabouts
from fleet.control.messages import MAX_ASKED, OwnerOf
from fleet.model import GroupKey

A, B = GroupKey("ns", "a", 9002), GroupKey("ns", "b", 9002)
UNKNOWN: Known | None = None


@pytest.mark.parametrize(
    ("known", "asked", "leader", "wanted"),
    [
        # Nobody ever said anything: a leader is asked, once per half a second.
        (UNKNOWN, None, True, Decision(None, ask=True)),
        (UNKNOWN, 0.4, True, Decision(None, ask=False)),
        (UNKNOWN, 0.6, True, Decision(None, ask=True)),
        (UNKNOWN, None, False, Decision(None, ask=False)),
        # Just said.
        (Known("w1", 0.9), None, True, Decision("w1", ask=False)),
        (Known(None, 0.9), None, True, Decision(None, ask=False)),
        # A while ago: used, and asked about beside it.
        (Known("w1", 1.1), None, True, Decision("w1", ask=True)),
        (Known("w1", 1.1), 0.2, True, Decision("w1", ask=False)),
        # Long ago: asked about first; a leader that does not answer is not waited for.
        (Known("w1", 3.1), None, True, Decision(None, ask=True)),
        (Known("w1", 3.1), 0.2, True, Decision(None, ask=False)),
        (Known("w1", 3.1), 0.6, True, Decision("w1", ask=True)),
        # Nobody to ask: what was said last, however long ago.
        (Known("w1", 9999.0), None, False, Decision("w1", ask=False)),
        (Known(None, 9999.0), None, False, Decision(None, ask=False)),
    ],
)
def test_what_is_done_with_a_stray(
    known: Known | None, asked: float | None, leader: bool, wanted: Decision
) -> None:
    """Fresh answers are used, old ones asked about, and without a leader all are good."""
    assert decide(known, asked, leader=leader) == wanted


def test_an_owner_that_failed_a_stream_is_not_tried_for_it_again() -> None:
    """Another owner is, or another life of the same one; a third one is not."""
    past = Past(1.0)
    assert past.may_try("w1", "i1")
    once = past.after("w1", "i1")
    assert not once.may_try("w1", "i1")
    assert once.may_try("w1", "i2")
    twice = once.after("w2", "i3")
    assert not twice.may_try("w3", "i4")
    assert twice.since == 1.0


def test_a_stream_that_was_forwarded_here_goes_no_further() -> None:
    """One hop, whatever is known."""
    assert not Past(1.0, onward=False).may_try("w1", "i1")


class Clock:
    """Seconds that the test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_an_answer_is_known_with_its_age() -> None:
    """Also the answer that nobody owns a group."""
    clock = Clock()
    found = Whereabouts(clock)
    assert found.known(A) is None
    found.learn([OwnerOf(A, "w1"), OwnerOf(B, None)])
    clock.now += 2.0
    assert found.known(A) == Known("w1", 2.0)
    assert found.known(B) == Known(None, 2.0)
    found.remember(B, "w2")
    assert found.known(B) == Known("w2", 0.0)


def test_each_group_is_asked_for_once_until_an_answer_is_overdue() -> None:
    """While it waits to be asked, and for half a second after."""
    clock = Clock()
    found = Whereabouts(clock)
    assert found.want(A)
    assert not found.want(A)
    assert found.asking() == (A,)
    assert found.asking() == ()
    clock.now += 0.4
    assert found.asked(A) == pytest.approx(0.4)
    assert not found.want(A)
    clock.now += 0.2
    assert found.want(A)
    found.asking()
    found.learn([OwnerOf(A, "w1")])
    assert found.asked(A) is None


def test_an_owner_that_did_not_answer_is_doubted_once() -> None:
    """The leader is asked at once, though it has just answered; its next answer is fresh again."""
    found = Whereabouts(Clock())
    found.learn([OwnerOf(A, "w1")])
    found.doubt(A)
    found.doubt(B)
    known = found.known(A)
    assert decide(known, None, leader=True) == Decision("w1", ask=True)
    assert found.known(B) is None
    found.learn([OwnerOf(A, "w1")])
    assert decide(found.known(A), None, leader=True) == Decision("w1", ask=False)


def test_no_more_is_asked_at_once_than_a_leader_answers() -> None:
    """The others' turn comes with the next question."""
    found = Whereabouts(Clock())
    groups = [GroupKey("ns", f"s{n}", 1) for n in range(MAX_ASKED + 1)]
    assert [found.want(group) for group in groups] == [True] * MAX_ASKED + [False]
    assert len(found.asking()) == MAX_ASKED
    assert found.want(groups[-1])


def test_what_is_remembered_is_bounded_and_the_longest_unused_goes() -> None:
    """Names can be made up without end."""
    found = Whereabouts(Clock())
    found.learn([OwnerOf(A, "w1")])
    found.learn([OwnerOf(GroupKey("ns", f"s{n}", 1), "w") for n in range(MAX_REMEMBERED - 1)])
    assert found.known(A) is not None  # used
    found.learn([OwnerOf(B, "w2")])
    assert found.known(A) == Known("w1", 0.0)
    assert found.known(GroupKey("ns", "s0", 1)) is None


def test_whoever_waits_for_an_answer_hears_of_it() -> None:
    """After the answer is known."""
    found = Whereabouts(Clock())
    heard: list[Known | None] = []
    found.on_learned(lambda: heard.append(found.known(A)))
    found.learn([OwnerOf(A, "w1")])
    assert heard == [Known("w1", 0.0)]
