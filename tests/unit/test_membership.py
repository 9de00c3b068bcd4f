"""Verdicts on workers: each signal alone, and the ones that prove nothing."""

import pytest

from coordinator.membership import Membership
from coordinator.verdicts import Answer, Connect
from fleet.model import MemberState, Signal
from tests.membership_scenes import (
    SETTINGS,
    A,
    R,
    U,
    beat,
    deaths,
    fleet_of,
    listen,
    report,
    states,
    worker,
)


@pytest.mark.parametrize(
    ("attempts", "dead"),
    [
        ([(R, R, 1.0), (R, R, 1.05)], True),
        ([(R, R, 1.0)], False),
        ([(R, A, 1.0), (R, A, 1.05)], False),
        ([(A, R, 1.0), (A, R, 1.05)], False),
        ([(U, U, 1.0), (U, U, 1.05), (U, U, 1.1)], False),
        ([(R, U, 1.0), (R, U, 1.05)], False),
        ([(R, R, 1.0), (A, A, 1.05), (R, R, 1.1)], False),
        ([(R, R, 1.0), (U, R, 1.05), (R, R, 1.1), (R, R, 1.15)], True),
        ([(R, R, 1.0), (R, R, 1.9)], False),
        ([(R, R, 1.0), (R, R, 1.9), (R, R, 1.95)], True),
    ],
)
def test_two_refusals_in_a_row_at_both_ports_kill_once_the_stream_is_down(
    attempts: list[tuple[Connect, Connect, float]], dead: bool
) -> None:
    """Only ECONNREFUSED from both ports, twice, close together, is a proof."""
    membership, (member, other) = fleet_of(2)
    membership.control_down(member, 1.0)
    for ext_proc, health, at in attempts:
        membership.connects(member, ext_proc, health, at)
    assert deaths(membership.judge(1.95)) == ({member.id: Signal.REFUSED} if dead else {})
    assert membership.current(other.id) == other


def test_refusals_prove_nothing_while_the_control_stream_is_up() -> None:
    """A worker that talks to us lives, whatever its ports do."""
    membership, (member, _) = fleet_of(2)
    membership.connects(member, R, R, 1.0)
    membership.connects(member, R, R, 1.05)
    assert not membership.judge(1.1).deaths


def test_a_stream_that_comes_back_takes_refusals_back() -> None:
    """A hello between the second refusal and the verdict wins."""
    membership, (member, _) = fleet_of(2)
    membership.control_down(member, 1.0)
    membership.connects(member, R, R, 1.0)
    membership.connects(member, R, R, 1.05)
    membership.hello(member, 1.06)
    membership.control_down(member, 1.0)
    assert not membership.judge(1.1).deaths


def test_refusals_kill_a_worker_that_was_never_reached() -> None:
    """A control stream that cannot be opened counts like one that broke."""
    membership, (member,) = fleet_of(1, up=False)
    membership.connects(member, R, R, 0.1)
    membership.connects(member, R, R, 0.15)
    assert deaths(membership.judge(0.15)) == {member.id: Signal.REFUSED}


def test_refusals_are_never_doubted_even_if_everyone_refuses() -> None:
    """Self-suspicion is for silence alone."""
    membership, members = fleet_of(3)
    for member in members:
        membership.control_down(member, 1.0)
        membership.connects(member, R, R, 1.0)
        membership.connects(member, R, R, 1.05)
    assert set(deaths(membership.judge(1.05)).values()) == {Signal.REFUSED}
    assert not membership.judge(1.06).deaths, "each death is told once"


def test_a_new_incarnation_buries_the_old_one_whose_stream_is_down() -> None:
    """A container that restarts in 0.3 s would look alive but be cold."""
    membership, (member, _) = fleet_of(2)
    membership.control_down(member, 1.0)
    newcomer = worker(0, "b")
    assert membership.hello(newcomer, 0.3) is Answer.JOINED
    assert deaths(membership.judge(0.3)) == {member.id: Signal.INCARNATION}
    assert membership.current(member.id) == newcomer
    assert membership.is_dead(member)
    assert membership.hello(member, 0.4) is Answer.DEAD


def test_a_newcomer_under_an_id_whose_stream_is_up_is_a_duplicate() -> None:
    """Two workers with one id: the first stays, the second is refused."""
    membership, (member,) = fleet_of(1)
    rival = worker(0, "b", host="10.9.9.9")
    assert membership.hello(rival, 0.5) is Answer.DUPLICATE
    assert membership.current(member.id) == member
    assert not membership.judge(0.5).deaths


def test_silence_of_both_channels_for_the_ttl_kills() -> None:
    """One of three hangs: dead after 2 s, not before."""
    membership, (hung, *others) = fleet_of(3)
    for now in (0.5, 1.0, 1.5, 1.99, 2.0):
        report(membership, others, now)
        membership.store_seen([(hung, now), *[(m, 0.0) for m in others]], now)
        judgement = membership.judge(now)
        assert deaths(judgement) == ({hung.id: Signal.SILENT} if now == 2.0 else {})


@pytest.mark.parametrize("alive_by", ["beat", "report"])
def test_silence_of_one_channel_never_kills(alive_by: str) -> None:
    """A worker heard on either channel is suspect after the TTL, and lives."""
    membership, (quiet, *others) = fleet_of(3)
    for tenth in range(1, 1000):
        now = tenth / 10
        report(membership, others, now)
        age = 0.0 if alive_by == "beat" else now
        membership.store_seen([(quiet, age), *[(m, 0.0) for m in others]], now)
        if alive_by == "report":
            report(membership, [quiet], now)
        judgement = membership.judge(now)
        assert not judgement.deaths
    assert states(judgement)[quiet.id] is MemberState.SUSPECT
    assert states(judgement)[others[0].id] is MemberState.ALIVE


def test_absent_from_the_store_is_unknown_not_dead() -> None:
    """After a FLUSHALL nobody beats for a moment; who reports on its stream lives."""
    membership, members = fleet_of(3)
    for tenth in range(1, 100):
        now = tenth / 10
        beat(membership, [], now)
        report(membership, members, now)
        assert not membership.judge(now).deaths


def test_without_the_store_silence_alone_does_not_kill() -> None:
    """No beat can be known: control silence needs the health check as a second witness."""
    membership, (hung, *others) = fleet_of(3)
    membership.store_unknown()
    for tenth in range(1, 200):
        now = tenth / 10
        report(membership, others, now)
        assert not membership.judge(now).deaths
    assert [m.id for m in membership.to_check(20.0)] == [hung.id]


def test_without_the_store_an_unanswered_health_check_for_two_ttls_kills() -> None:
    """Control silent since 0, checks fail from 1 s on: dead at 4 s."""
    membership, (_hung, *others) = fleet_of(3)
    membership.store_unknown()
    died = None
    for tenth in range(1, 100):
        now = tenth / 10
        report(membership, others, now)
        for member in membership.to_check(now):
            membership.health_checked(member, answered=False, now=now)
        if membership.judge(now).deaths:
            died = now
            break
    assert died == 4.0


def test_without_the_store_an_answered_health_check_keeps_alive() -> None:
    """Whatever the status: an answer is a sign of life."""
    membership, (_hung, *others) = fleet_of(3)
    membership.store_unknown()
    for tenth in range(1, 200):
        now = tenth / 10
        report(membership, others, now)
        for member in membership.to_check(now):
            membership.health_checked(member, answered=True, now=now)
        assert not membership.judge(now).deaths


def test_a_beat_that_an_emptied_store_has_forgotten_was_a_sign_of_life() -> None:
    """Control silent since 0, checks fail; it beats until 5 s, then the store is away and comes
    back empty: two TTLs after the last beat, at 9 s, and not at once."""
    membership, (cut_off, *others) = fleet_of(3)
    died = None
    for tenth in range(1, 120):
        now = tenth / 10
        report(membership, others, now)
        if now <= 5.0:
            beat(membership, [cut_off, *others], now)
        elif now < 6.0:
            membership.store_unknown()
        else:
            beat(membership, others, now)
        for member in membership.to_check(now):
            membership.health_checked(member, answered=False, now=now)
        if membership.judge(now).deaths:
            died = now
            break
    assert died == 9.0


def test_a_store_that_comes_back_gives_beats_a_ttl_to_show() -> None:
    """Old ages right after an outage are the store's silence, not the worker's."""
    membership, (silent, *others) = fleet_of(3)
    membership.store_unknown()
    listen(membership, 0.0, 9.75)
    report(membership, others, 9.9)
    membership.store_seen([(silent, 10.0), *[(m, 10.0) for m in others]], 10.0)
    assert not membership.judge(10.0).deaths
    listen(membership, 10.0, 12.0)
    report(membership, others, 12.0)
    membership.store_seen([(silent, 12.0), *[(m, 0.0) for m in others]], 12.0)
    assert deaths(membership.judge(12.0)) == {silent.id: Signal.SILENT}


def test_the_drain_mark_is_the_workers_own() -> None:
    """It comes with hello, beat and report, and goes the same way."""
    membership, (member,) = fleet_of(1)
    report(membership, [member], 0.5, draining=True)
    assert states(membership.judge(0.5))[member.id] is MemberState.DRAINING
    beat(membership, [member], 0.6)
    assert states(membership.judge(0.6))[member.id] is MemberState.DRAINING, "reports are fresher"
    report(membership, [member], 0.7)
    assert states(membership.judge(0.7))[member.id] is MemberState.ALIVE


def test_dead_is_final_also_for_the_next_leader() -> None:
    """The dead of an earlier map are dead from the start; others under the id are not."""
    membership, (member, _) = fleet_of(2)
    membership.control_down(member, 1.0)
    membership.connects(member, R, R, 1.0)
    membership.connects(member, R, R, 1.05)
    membership.judge(1.05)
    heir = Membership(SETTINGS, now=50.0)
    heir.died_before(membership.dead())
    heir.knew(member, 50.0)
    beat(heir, [member], 50.0)
    assert heir.hello(member, 50.1) is Answer.DEAD
    assert heir.current(member.id) is None
    assert heir.hello(worker(0, "b"), 50.2) is Answer.JOINED


def test_at_most_256_dead_are_remembered() -> None:
    """The oldest are forgotten first."""
    membership = Membership(SETTINGS, now=0.0)
    for number in range(300):
        member = worker(0, f"i{number}")
        membership.hello(member, 0.0)
        membership.control_down(member, 1.0)
    dead = membership.dead()
    assert len(dead) == 256
    assert dead[-1].incarnation == "i298"
    assert dead[0].incarnation == "i43"


def test_the_dead_are_shown_for_a_minute_unless_they_came_back() -> None:
    """One line per id: the present life hides the last one."""
    membership, (first, second) = fleet_of(2)
    for member in (first, second):
        membership.control_down(member, 1.0)
        membership.connects(member, R, R, 1.0)
        membership.connects(member, R, R, 1.05)
    membership.judge(1.05)
    membership.hello(worker(1, "b"), 2.0)
    assert [(j.member.id, j.signal) for j in membership.buried(60.0)] == [
        (first.id, Signal.REFUSED)
    ]
    assert membership.buried(62.0) == ()


def test_contacts_are_the_living_and_whoever_beats_under_their_id() -> None:
    """A rival at another address is dialled to be told; one at the same address is not yet."""
    membership, (member,) = fleet_of(1)
    rival = worker(0, "b", host="10.9.9.9")
    beat(membership, [rival], 1.0)
    assert membership.contacts(1.0) == (member, rival)
    beat(membership, [rival], 9.0, age=3.0)
    assert membership.contacts(9.0) == (member,), "a stale beat is no stranger"
    restarted = worker(0, "b")
    beat(membership, [restarted], 9.0)
    assert membership.contacts(9.0) == (member,)


def test_a_declared_dead_worker_that_beats_again_is_dialled() -> None:
    """It is owed its last word, so that it takes a new incarnation."""
    membership, (member, _) = fleet_of(2)
    membership.control_down(member, 1.0)
    membership.connects(member, R, R, 1.0)
    membership.connects(member, R, R, 1.05)
    membership.judge(1.05)
    beat(membership, [member], 5.0)
    assert member in membership.contacts(5.0)


def test_everyone_is_reached_once_all_known_said_hello_or_died() -> None:
    """What ends a new leader's settling early."""
    membership = Membership(SETTINGS, now=0.0)
    members = [worker(n) for n in range(2)]
    for member in members:
        membership.knew(member, 0.0)
    assert not membership.all_reached()
    membership.hello(members[0], 0.1)
    assert not membership.all_reached()
    membership.connects(members[1], R, R, 0.1)
    membership.connects(members[1], R, R, 0.15)
    membership.judge(0.15)
    assert membership.all_reached()
