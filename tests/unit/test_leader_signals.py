"""What links and the store tell, and what of it wakes the leader or raises its epoch."""

import asyncio
from dataclasses import replace

import msgspec
import pytest

from coordinator.leader.signals import GATHER_SECONDS, Signals
from coordinator.membership import Membership
from fleet.clock import Clock, SystemClock
from fleet.control.messages import HoldReport, Report
from fleet.model import Addresses, EpochVersion, GroupKey, Hold, Load, Member
from fleet.settings.model import MembershipSettings
from fleet.store.contract import MAX_EPOCH, MemberBeat
from tests.contract.election_worlds import LoopClock

A = GroupKey("ns", "a", 1)
WORKER = Member("w0", "i", Addresses("w0:1", "w0:2", "w0:3", "w0:4"))


class World:
    def __init__(self, clock: Clock | None = None) -> None:
        clock = clock or SystemClock()
        self.higher: list[int] = []
        self.signals = Signals(
            Membership(MembershipSettings(), now=clock.monotonic()),
            epoch=lambda: 5,
            higher_epoch=self.higher.append,
            clock=clock,
        )
        self.signals.hello(WORKER)

    async def woke(self) -> bool:
        """Whether the leader was woken since the last call."""
        woken = self.signals._wake.is_set()
        await self.signals.woken(0)
        return woken


def report(
    *, synced: bool = True, rate: float = 1.0, draining: bool = False, seen: int = 5
) -> Report:
    held = HoldReport(A, Hold.OWNER, synced=synced, streams_per_second=rate)
    return Report(EpochVersion(5, 1), EpochVersion(seen, 3), (held,), draining, Load())


async def test_a_heartbeat_without_news_does_not_wake_the_leader() -> None:
    """A hundred workers report twice a second; only changes are worth a look."""
    world = World()
    world.signals.reported(WORKER, report(synced=False))
    assert await world.woke()
    world.signals.reported(WORKER, report(synced=False, rate=7.0))
    assert not await world.woke()
    assert world.signals.loads == {A: 7.0}
    world.signals.reported(WORKER, report(synced=True))
    assert await world.woke()
    world.signals.reported(WORKER, report(draining=True))
    assert await world.woke()


async def test_reports_that_say_the_same_leave_the_same_object() -> None:
    """Also where only the share that was applied is another; any other word is a new one."""
    world = World()
    world.signals.reported(WORKER, report())
    first = world.signals.told["w0"]
    world.signals.reported(WORKER, msgspec.structs.replace(report(), version=EpochVersion(5, 2)))
    second = world.signals.told["w0"]
    assert second.version == EpochVersion(5, 2)
    assert second.holds is first.holds
    world.signals.reported(WORKER, report(synced=False))
    assert not world.signals.told["w0"].holds[A].synced
    world.signals.reported(WORKER, report())
    assert world.signals.told["w0"].holds == first.holds


@pytest.mark.looptime
async def test_a_rate_that_stays_the_same_is_counted_again_after_a_while() -> None:
    """What a new owner counts is believed once it has counted long enough, also if it never
    changes (see `GroupLoads`)."""
    world = World(LoopClock())
    other = replace(WORKER, id="w1")
    world.signals.hello(other)
    world.signals.reported(WORKER, report(rate=9.0))
    world.signals.reported(other, report(rate=1.0))
    assert world.signals.loads == {A: 9.0}
    for _ in range(70):
        await asyncio.sleep(0.5)
        world.signals.reported(other, report(rate=1.0))
    assert world.signals.loads == {A: 1.0}


async def test_loads_of_groups_that_are_no_more_are_dropped() -> None:
    """With other groups, and where a late report brings one back."""
    world = World()
    world.signals.reported(WORKER, report(rate=9.0))
    groups = {A: ()}
    world.signals.keep_loads(groups)
    assert world.signals.loads == {A: 9.0}
    none: dict[GroupKey, tuple[()]] = {}
    world.signals.keep_loads(none)
    assert world.signals.loads == {}
    world.signals.reported(WORKER, report(rate=3.0))
    assert world.signals.loads == {A: 3.0}
    world.signals.keep_loads(none)
    assert world.signals.loads == {}


async def test_a_report_of_another_incarnation_is_ignored() -> None:
    """It cannot speak for the present one."""
    world = World()
    other = Member("w0", "j", WORKER.addresses)
    world.signals.reported(other, report())
    assert world.signals.told == {}


@pytest.mark.parametrize("rate", [float("nan"), float("inf"), -1.0])
def test_impossible_rates_are_ignored(rate: float) -> None:
    """Placement must not be led astray by one reporter."""
    world = World()
    world.signals.reported(WORKER, report(rate=rate))
    assert world.signals.loads == {}


def test_a_higher_epoch_from_anywhere_must_be_passed() -> None:
    """Reports, hellos, beats and refused streams alike; lower and equal ones are no matter."""
    world = World()
    world.signals.reported(WORKER, report(seen=5))
    assert world.higher == []
    assert world.signals.seen_version == 3
    world.signals.reported(WORKER, report(seen=6))
    world.signals.hello(Member("w1", "i", WORKER.addresses, seen=EpochVersion(7, 1)))
    beat = Member("w2", "i", WORKER.addresses, seen=EpochVersion(8, 1))
    world.signals.beats([MemberBeat(beat, 0.1)])
    world.signals.epoch_seen(9)
    assert world.higher == [6, 7, 8, 9]


def test_an_impossible_epoch_is_refused_loudly(caplog: pytest.LogCaptureFixture) -> None:
    """One damaged worker must not use up all epochs."""
    world = World()
    world.signals.epoch_seen(MAX_EPOCH + 1)
    assert world.higher == []
    assert "impossible epoch" in caplog.text


def test_loads_of_groups_that_are_gone_are_dropped() -> None:
    """What peers report stays bounded by what there is."""
    world = World()
    world.signals.reported(WORKER, report())
    world.signals.keep_loads({})
    assert world.signals.loads == {}


@pytest.mark.looptime
async def test_it_wakes_at_the_latest_after_the_tick() -> None:
    """Time passes without events."""
    world = World()
    await world.signals.woken(1.0)
    began = asyncio.get_running_loop().time()
    await world.signals.woken(0.25)
    assert asyncio.get_running_loop().time() - began == pytest.approx(0.25)


@pytest.mark.looptime
async def test_acknowledgements_are_gathered_for_a_moment() -> None:
    """Seventy come at nearly the same time: one look is enough for those that do. Whatever else
    happens is looked at without delay, also while they are gathered."""
    world = World(LoopClock())
    loop = asyncio.get_running_loop()
    await world.signals.woken(1.0)
    began = loop.time()
    world.signals.reported(WORKER, report(synced=False))
    await world.signals.woken(1.0)
    assert loop.time() - began == pytest.approx(GATHER_SECONDS)
    began = loop.time()
    world.signals.reported(WORKER, report(synced=True))
    loop.call_later(GATHER_SECONDS / 2, world.signals.wake)
    await world.signals.woken(1.0)
    assert loop.time() - began == pytest.approx(GATHER_SECONDS / 2)
    began = loop.time()
    world.signals.reported(WORKER, report(draining=True))
    await world.signals.woken(1.0)
    assert loop.time() == began


@pytest.mark.looptime
async def test_while_it_listens_silence_is_silence() -> None:
    """Nothing comes for the TTL from one of two: that this process ran all the time is told, so it
    is the worker's silence, not a standstill of ours."""
    clock = LoopClock()
    membership = Membership(MembershipSettings(), now=clock.monotonic())
    signals = Signals(membership, epoch=lambda: 5, higher_epoch=lambda _: None, clock=clock)
    other = Member("w1", "i", WORKER.addresses)
    for member in (WORKER, other):
        signals.hello(member)
    listening = asyncio.create_task(signals.listen(0.25))
    await asyncio.sleep(2.0)
    listening.cancel()
    signals.reported(other, report())
    signals.beats([MemberBeat(WORKER, 2.0), MemberBeat(other, 0.0)])
    known_since = clock.monotonic()
    assert not membership.judge(known_since).deaths, "the store has told of beats only now"
    listening = asyncio.create_task(signals.listen(0.25))
    await asyncio.sleep(2.0)
    listening.cancel()
    signals.reported(other, report())
    signals.beats([MemberBeat(WORKER, 4.0), MemberBeat(other, 0.0)])
    (death,) = membership.judge(clock.monotonic()).deaths
    assert (death.member.id, death.why) == ("w0", "silent: beat 2.0 s, control 4.0 s")
