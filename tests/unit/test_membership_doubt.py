"""When the leader suspects itself: mass silence, a standstill of its own, a clock that stepped."""

import pytest

from coordinator.membership import Membership
from coordinator.verdicts import Answer, PodAt
from fleet.model import DeadMember, Member, MemberState, Signal
from tests.membership_scenes import (
    SETTINGS,
    R,
    beat,
    deaths,
    fleet_of,
    listen,
    report,
    states,
    worker,
)


def test_if_more_than_half_fall_silent_we_suspect_ourselves_for_two_ttls() -> None:
    """Cut off from 2 of 3 (at slightly different moments): nobody dies before 2 + 4 s."""
    membership, members = fleet_of(3)
    first_deaths = None
    for tenth in range(1, 100):
        now = tenth / 10
        report(membership, [members[2]], now)
        if now <= 0.4:
            report(membership, [members[1]], now)
        ages = [now, max(0.0, now - 0.4), 0.0]
        membership.store_seen(list(zip(members, ages, strict=True)), now)
        judgement = membership.judge(now)
        if judgement.deaths:
            first_deaths = (now, deaths(judgement))
            break
        if now > 2.5:
            assert states(judgement)[members[0].id] is MemberState.SUSPECT
    assert first_deaths == (
        6.0,
        {members[0].id: Signal.SILENT, members[1].id: Signal.SILENT},
    )


def test_a_self_suspicion_that_passes_leaves_everyone_alive() -> None:
    """We were cut off for 3 s and are back."""
    membership, members = fleet_of(3)
    beat(membership, members, 3.0, age=3.0)
    assert not membership.judge(3.0).deaths
    beat(membership, members, 3.1)
    report(membership, members, 3.1)
    assert set(states(membership.judge(3.1)).values()) == {MemberState.ALIVE}


def test_half_is_not_more_than_half() -> None:
    """One of two hangs: dead after the plain TTL."""
    membership, (hung, other) = fleet_of(2)
    listen(membership, 0.0, 2.0)
    report(membership, [other], 2.0)
    membership.store_seen([(hung, 2.0), (other, 0.0)], 2.0)
    assert deaths(membership.judge(2.0)) == {hung.id: Signal.SILENT}


def until_first_death(
    membership: Membership, members: list[Member], silent: int, *, seconds: float, store: bool
) -> tuple[float, int] | None:
    """The first `silent` members hang at 0: when the first verdicts fall, and how many."""
    for tick in range(1, int(seconds / 0.25) + 1):
        now = tick * 0.25
        report(membership, members[silent:], now)
        if store:
            beats = [(m, now) for m in members[:silent]] + [(m, 0.0) for m in members[silent:]]
            membership.store_seen(beats, now)
        else:
            membership.store_unknown()
            for member in membership.to_check(now):
                membership.health_checked(member, answered=False, now=now)
        dead = deaths(membership.judge(now))
        if dead:
            assert set(dead.values()) == {Signal.SILENT}
            return now, len(dead)
    return None


@pytest.mark.parametrize(
    ("silent", "of", "store", "dead_at"),
    [
        (1, 1, True, 6.0),
        (1, 2, True, 2.0),
        (1, 3, True, 2.0),
        (2, 3, True, 6.0),
        (2, 4, True, 2.0),
        (3, 4, True, 6.0),
        (4, 4, True, 6.0),
        (5, 10, True, 2.0),
        (6, 10, True, 6.0),
        (1, 2, False, 4.0),
        (2, 4, False, 4.0),
        (3, 4, False, 8.0),
        (4, 4, False, 8.0),
    ],
)
def test_how_long_a_hung_part_of_the_fleet_lives(
    silent: int, of: int, store: bool, dead_at: float
) -> None:
    """Up to half: the TTL of 2 s (4 s without the store). More than half: two TTLs of doubt on top,
    and then all of them at once."""
    membership, members = fleet_of(of)
    found = until_first_death(membership, members, silent, seconds=12.0, store=store)
    assert found == (dead_at, silent)


def test_more_than_half_that_time_out_and_come_back_within_the_doubt_all_live() -> None:
    """Cut off from 6 of 10 for 5.5 s: longer than the TTL, shorter than the doubt."""
    membership, members = fleet_of(10)
    assert until_first_death(membership, members, 6, seconds=5.5, store=True) is None
    report(membership, members, 5.75)
    beat(membership, members, 5.75)
    judgement = membership.judge(5.75)
    assert not judgement.deaths
    assert set(states(judgement).values()) == {MemberState.ALIVE}


@pytest.mark.parametrize("killed", [3, 4])
def test_refusals_are_believed_in_the_middle_of_a_doubt(killed: int) -> None:
    """Most are silent and doubted; whoever refuses meanwhile is dead at once, by itself."""
    membership, members = fleet_of(4)
    assert until_first_death(membership, members, 3, seconds=3.0, store=True) is None
    for member in members[4 - killed :]:
        membership.control_down(member, 3.1)
        membership.connects(member, R, R, 3.1)
        membership.connects(member, R, R, 3.15)
    dead = deaths(membership.judge(3.15))
    assert dead == {m.id: Signal.REFUSED for m in members[4 - killed :]}


# A leader that stood still.


@pytest.mark.parametrize("paused", [1.0, 2.0, 5.0, 60.0, 3600.0])
@pytest.mark.parametrize("first_heard", [0, 1, 2, 3, 4])
def test_a_leader_that_wakes_up_buries_nobody(paused: float, first_heard: int) -> None:
    """All that it heard is old at once. Some reports are read before its first look, some after:
    so few that are still unread would be no mass silence, and were dead."""
    membership, members = fleet_of(4)
    listen(membership, 0.0, 1.0)
    beat(membership, members, 1.0)
    report(membership, members, 1.0)
    woke = 1.0 + paused
    for member in members[:first_heard]:
        report(membership, [member], woke)
    assert not membership.judge(woke).deaths
    assert not membership.judge(woke + 0.25).deaths
    beat(membership, members, woke + 0.3)
    report(membership, members, woke + 0.3)
    assert set(states(membership.judge(woke + 0.3)).values()) == {MemberState.ALIVE}


def test_a_leader_that_wakes_up_without_the_store_buries_nobody() -> None:
    """Its health checks were unanswered when it fell asleep: that is not four seconds of them."""
    membership, (hung, *others) = fleet_of(3)
    membership.store_unknown()
    listen(membership, 0.0, 1.5)
    report(membership, others, 1.5)
    membership.health_checked(hung, answered=False, now=1.5)
    assert not membership.judge(60.0).deaths


def test_who_hangs_while_the_leader_sleeps_is_dead_a_ttl_after_it_woke() -> None:
    """At the latest: a quarter of the TTL at most was listened to before."""
    membership, (hung, *others) = fleet_of(3)
    membership.judge(0.0)
    died = None
    for tick in range(17):
        now = 30.0 + tick * 0.25
        report(membership, others, now)
        membership.store_seen([(hung, now), *((m, 0.0) for m in others)], now)
        if membership.judge(now).deaths:
            died = now
            break
    assert died == 31.5  # 0.5 s count of the 30 s, 1.5 s are listened to afterwards


def test_a_leader_that_stumbles_all_the_time_still_finds_the_dead() -> None:
    """Its loop stands still for a second again and again: later, but not never."""
    membership, (hung, *others) = fleet_of(3)
    died = None
    for second in range(1, 12):
        now = float(second)
        report(membership, others, now)
        membership.store_seen([(hung, now), *((m, 0.0) for m in others)], now)
        if membership.judge(now).deaths:
            died = now
            break
    assert died == 4.0  # half a second of each counts


def test_the_doubt_is_as_long_when_the_leader_sleeps_in_it() -> None:
    """Two TTLs of listening, not of sleeping."""
    membership, members = fleet_of(3)
    assert until_first_death(membership, members, 2, seconds=3.0, store=True) is None
    for now in (30.0, 30.25, 31.0):
        report(membership, members[2:], now)
        assert not membership.judge(now).deaths


# Clocks and hearsay.


def test_beats_of_the_future_prove_nothing() -> None:
    """The store's clock stepped back by an hour: who beats on is known again with its next beat,
    who hangs is not taken for alive until the hour is over."""
    membership, (hung, *others) = fleet_of(3)
    died = None
    for tick in range(1, 40):
        now = tick * 0.25
        report(membership, others, now)
        membership.store_seen([(hung, now - 3600.0), *((m, 0.0) for m in others)], now)
        for member in membership.to_check(now):
            membership.health_checked(member, answered=False, now=now)
        if membership.judge(now).deaths:
            died = now
            break
    assert died == 4.0


def test_a_store_whose_clock_leaps_ahead_kills_nobody() -> None:
    """All beats are an hour old at once, until the next ones; the streams are up."""
    membership, members = fleet_of(3)
    for tick in range(1, 20):
        now = tick * 0.25
        report(membership, members, now)
        membership.store_seen([(m, 3600.0 if tick < 10 else 0.0) for m in members], now)
        assert not membership.judge(now).deaths


def test_a_store_that_comes_and_goes_hides_no_dead_worker() -> None:
    """It answers every other second: never a TTL of beats that are missing, but health checks."""
    membership, (hung, *others) = fleet_of(3)
    died = None
    for tick in range(1, 40):
        now = tick * 0.25
        report(membership, others, now)
        if tick // 4 % 2:
            membership.store_unknown()
        else:
            membership.store_seen([(hung, now), *((m, 0.0) for m in others)], now)
        for member in membership.to_check(now):
            membership.health_checked(member, answered=False, now=now)
        if membership.judge(now).deaths:
            died = now
            break
    assert died is not None
    assert died <= 6.0


def test_a_death_that_is_heard_of_late_counts() -> None:
    """The worker said hello to a new leader before the store told of its death by the last one."""
    membership = Membership(SETTINGS, now=0.0)
    member = worker(0)
    assert membership.hello(member, 0.1) is Answer.JOINED
    membership.died_before([DeadMember(member.id, member.incarnation, "refused", 1.0)])
    assert membership.current(member.id) is None
    assert membership.judge(0.2).living == ()
    beat(membership, [member], 0.3)
    assert membership.contacts(0.3) == (member,), "it is dialled to be told"
    assert membership.hello(member, 0.4) is Answer.DEAD


# What a verdict says.


def test_the_dead_are_remembered_with_all_that_had_fired() -> None:
    """In the death, in the map's record and in what people are shown: signals, and their ages."""
    membership, (refusing, hung, *others) = fleet_of(5)
    for tick in range(1, 9):
        now = tick * 0.25
        report(membership, [*others, *((hung,) if now < 0.2 else ())], now)
        beats = [(hung, now + 0.1), *((m, 0.0) for m in (refusing, *others))]
        membership.store_seen(beats, now)
        if now < 1.6:
            report(membership, [refusing], now)
    membership.control_down(refusing, 1.8)
    membership.connects(refusing, R, R, 1.85)
    membership.connects(refusing, R, R, 1.9)
    found = {death.member.id: death.why for death in membership.judge(2.0).deaths}
    assert found == {
        refusing.id: "refused: both ports, 0.1 s ago; beat 0.0 s, control down 0.2 s",
        hung.id: "silent: beat 2.0 s, control 2.0 s",
    }
    assert {each.id: each.why for each in membership.dead()} == found
    assert {each.member.id: each.why for each in membership.buried(3.0)} == found


def test_two_signals_at_once_are_both_named() -> None:
    """The pod is gone and its worker had been silent for long."""
    membership, (gone, *others) = fleet_of(4)
    membership.control_down(gone, 0.0)
    for tick in range(1, 8):
        now = tick * 0.25
        report(membership, others, now)
        membership.store_unknown()
        membership.health_checked(gone, answered=False, now=now)
    membership.pods_seen(gone=[PodAt(gone.id, "10.0.0.0")], ending=())
    (death,) = membership.judge(2.0).deaths
    assert death.signal is Signal.POD_GONE
    assert death.why == (
        "pod gone; beat unknown, control down 2.0 s, health check unanswered, last answer never"
    )
