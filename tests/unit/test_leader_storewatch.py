"""What a term reads from the store, in virtual time over a store in memory."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from coordinator.election.contract import Term
from coordinator.leader.doubt import LeaseInDoubt
from coordinator.leader.signals import Signals
from coordinator.leader.storewatch import StoreWatch
from coordinator.membership import Membership
from fleet.errors import FormatError
from fleet.model import EpochVersion, LeaderInfo, RingSpec, ShardMap
from fleet.settings.model import MembershipSettings
from fleet.store.contract import Guard, Lease, Publication
from fleet.store.memory import MemoryServer, MemoryStore
from tests.contract.election_worlds import LoopClock
from tests.contract.store_fixtures import member, shard_map

ME = LeaderInfo("me", "me:1", "me:2")
TICK = 0.25

pytestmark = pytest.mark.looptime


class World:
    """A store server and the watch of one term of epoch 5."""

    def __init__(self, *, in_store: bool) -> None:
        self.server = MemoryServer(LoopClock())
        self.store = MemoryStore(self.server.clock, self.server)
        self.told: list[ShardMap] = []
        self.overtaken: list[int] = []
        self.signals = Signals(
            Membership(MembershipSettings(), now=0.0),
            epoch=lambda: 5,
            higher_epoch=lambda epoch: None,
            clock=LoopClock(),
        )
        self.watch = StoreWatch(
            self.store,
            signals=self.signals,
            term=lambda: Term(ME, 5, 1e9),
            in_store=in_store,
            recall=self.told.append,
            overtake=self.overtaken.append,
            tick_seconds=TICK,
            clock=LoopClock(),
        )
        self.tasks: list[asyncio.Task[None]] = []

    async def has_map(self, epoch: int) -> None:
        guard = Guard("before", epoch, elsewhere=True)
        stored = shard_map(EpochVersion(epoch, 1))
        await self.store.publish(guard, Publication(stored, RingSpec("xxh3", 160, {}), {}))

    def run(self) -> None:
        self.tasks.append(asyncio.create_task(self.watch.run()))

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


@pytest.fixture
async def inside() -> AsyncIterator[World]:
    world = World(in_store=True)
    yield world
    await world.close()


@pytest.fixture
async def elsewhere() -> AsyncIterator[World]:
    world = World(in_store=False)
    yield world
    await world.close()


def now() -> float:
    return LoopClock().monotonic()


async def test_a_lease_in_the_store_waits_for_the_stored_map(inside: World) -> None:
    """Nothing is begun from half a look."""
    await inside.has_map(4)
    inside.server.available = False
    beginning = asyncio.create_task(inside.watch.begin())
    await asyncio.sleep(10.0)
    assert not beginning.done()
    inside.server.available = True
    await beginning
    assert [each.version.epoch for each in inside.told] == [4]


async def test_a_lease_elsewhere_begins_without_a_store_and_hears_of_its_map_later(
    elsewhere: World,
) -> None:
    """Once, and whatever else the store says after that."""
    await elsewhere.has_map(4)
    elsewhere.server.available = False
    began = now()
    await elsewhere.watch.begin()
    assert (now() - began, elsewhere.watch.recalled, elsewhere.told) == (0.0, False, [])
    elsewhere.run()
    await asyncio.sleep(1.0)
    assert elsewhere.signals.store_reads == 0
    elsewhere.server.available = True
    await asyncio.sleep(4 * TICK)
    assert [each.version.epoch for each in elsewhere.told] == [4]
    assert elsewhere.signals.store_reads >= 3


async def test_a_lease_elsewhere_waits_while_somebody_leads_by_the_store(elsewhere: World) -> None:
    """And is told which epoch was given there."""
    rival = LeaderInfo("rival", "r:1", "r:2")
    await elsewhere.store.acquire(rival, floor=6, ttl_seconds=3.0, request="r")
    began = now()
    await elsewhere.watch.begin()
    assert 3.0 <= now() - began <= 3.0 + TICK
    assert elsewhere.overtaken == [7]


async def test_what_cannot_be_read_is_not_there(elsewhere: World) -> None:
    """It must not keep anybody from leading."""

    async def damaged(newer_than: EpochVersion) -> ShardMap | None:
        raise FormatError("map: damaged")

    async def damaged_lease() -> Lease:
        raise FormatError("leader: damaged")

    elsewhere.store.shard_map = damaged  # type: ignore[method-assign]
    elsewhere.store.lease = damaged_lease  # type: ignore[method-assign]
    await elsewhere.watch.begin()
    assert (elsewhere.watch.recalled, elsewhere.told) == (True, [])


@pytest.mark.parametrize("away_first", [False, True])
async def test_the_dead_are_forgotten_as_soon_as_the_store_can(
    elsewhere: World, *, away_first: bool
) -> None:
    """Fenced by the epoch alone: nobody holds a lease there."""
    await elsewhere.store.beat(member("worker-0"))
    await elsewhere.store.beat(member("worker-1"))
    elsewhere.server.available = not away_first
    elsewhere.watch.forget([member("worker-0")])
    elsewhere.run()
    await asyncio.sleep(TICK)
    elsewhere.server.available = True
    await asyncio.sleep(2 * TICK)
    beats = await elsewhere.store.members()
    assert [beat.member.id for beat in beats] == ["worker-1"]
    assert elsewhere.server.state.epoch == 5


async def test_beats_are_told_though_the_dead_cannot_be_forgotten(elsewhere: World) -> None:
    """While the lease is in doubt nothing is written; what was read must not grow old for it."""

    def in_doubt() -> Term:
        raise LeaseInDoubt("for a moment")

    elsewhere.watch._term = in_doubt
    elsewhere.watch.forget([member("worker-9")])
    await elsewhere.store.beat(member("worker-0"))
    elsewhere.run()
    await asyncio.sleep(3 * TICK)
    assert elsewhere.signals.store_reads >= 3
