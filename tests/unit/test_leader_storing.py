"""How a leader whose lease is elsewhere keeps the store, in virtual time over a store in memory."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import cast

import pytest

from coordinator.election.contract import Term
from coordinator.leader.doubt import LeadershipLost, LeaseInDoubt
from coordinator.leader.sharekeeping import ShareKeeper
from coordinator.leader.storing import StoreBehind, StoreFirst, StoreLag
from coordinator.planning import shares_of
from fleet.errors import StoreRefused
from fleet.model import EpochVersion, LeaderInfo, RingSpec, ShardMap
from fleet.model.identity import NONE
from fleet.store.contract import Guard, Move, Publication
from fleet.store.memory import MemoryServer, MemoryStore
from tests.contract.election_worlds import LoopClock
from tests.contract.store_fixtures import move, shard_map

ME = LeaderInfo("me", "me:1", "me:2")
RING = RingSpec("xxh3", 160, {"worker-0": 1, "worker-1": 1})
LOOK = 0.25

pytestmark = pytest.mark.looptime


class World:
    """A store server and one leader's hand on it."""

    def __init__(self) -> None:
        self.server = MemoryServer(LoopClock())
        self.store = MemoryStore(self.server.clock, self.server)
        self.epoch = 5
        self.doubt = False
        self.saw: list[EpochVersion] = []
        self.again = 0
        self.lag = StoreLag(LoopClock())
        self.behind = StoreBehind(
            self.store,
            term=self.term,
            saw=self.saw.append,
            again=self._again,
            look_seconds=LOOK,
            clock=LoopClock(),
            lag=self.lag,
        )
        self.task = asyncio.create_task(self.behind.run())

    def term(self) -> Term:
        if self.doubt:
            raise LeaseInDoubt("played")
        return Term(ME, self.epoch, 1e9)

    def _again(self) -> None:
        self.again += 1

    async def write(
        self, version: EpochVersion, *, shares: tuple[str, ...] = (), moves: tuple[Move, ...] = ()
    ) -> ShardMap:
        written = shard_map(version)
        of = shares_of(written)
        given = {worker: of[worker] for worker in shares}
        await self.behind.write(Publication(written, RING, given, moves=moves))
        return written

    @property
    def stored(self) -> EpochVersion:
        publication = self.server.state.publication
        return NONE if publication is None else publication.shard_map.version

    async def close(self) -> None:
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError, LeadershipLost):
            await self.task


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    yield world
    await world.close()


V = EpochVersion


class Owing:
    """What is owed to the store."""

    def __init__(self) -> None:
        self.owed: list[tuple[Publication, Guard]] = []

    def owe(self, publication: Publication, guard: Guard) -> None:
        self.owed.append((publication, guard))


async def test_a_map_is_stored_in_the_same_moment(world: World) -> None:
    """The first one with all shares, whatever was handed over: the store may have old ones."""
    await asyncio.sleep(0.1)
    await world.write(V(5, 1))
    await asyncio.sleep(0.001)
    assert world.stored == V(5, 1)
    assert set(world.server.state.shares) == {"worker-0", "worker-1"}
    assert world.server.state.epoch == 5


async def test_how_far_the_store_is_behind_is_known(world: World) -> None:
    """From the first map that waits until the newest is stored, whatever comes between; a store
    that was emptied is behind until it is written again; nothing waits once the term is over."""
    assert world.lag.seconds() == 0.0
    world.server.available = False
    await world.write(V(5, 1))
    await asyncio.sleep(2.0)
    await world.write(V(5, 2))
    await asyncio.sleep(1.0)
    assert world.lag.seconds() == pytest.approx(3.0)
    world.server.available = True
    await asyncio.sleep(LOOK + 0.001)
    assert (world.stored, world.lag.seconds()) == (V(5, 2), 0.0)
    world.server.available = False
    await world.write(V(5, 3))
    await asyncio.sleep(1.0)
    await world.close()
    assert world.lag.seconds() == 0.0


async def test_later_maps_bring_only_what_changed(world: World) -> None:
    """As the leader says; other shares stay as they stand."""
    await world.write(V(5, 1))
    await asyncio.sleep(0.001)
    await world.write(V(5, 2), shares=("worker-1",))
    await asyncio.sleep(0.001)
    versions = {worker: share.version for worker, share in world.server.state.shares.items()}
    assert versions == {"worker-0": V(5, 1), "worker-1": V(5, 2)}


async def test_a_store_that_is_away_is_written_in_whole_when_it_is_back(world: World) -> None:
    """The newest map alone, each move once, within one look."""
    await world.write(V(5, 1))
    await asyncio.sleep(0.001)
    world.server.available = False
    for n in range(2, 6):
        await world.write(V(5, n), moves=(move(n, V(5, n)),))
        await asyncio.sleep(0.2)
    assert world.stored == V(5, 1)
    world.server.flush()
    world.server.available = True
    await asyncio.sleep(LOOK + 0.001)
    assert world.stored == V(5, 5)
    assert {share.version for share in world.server.state.shares.values()} == {V(5, 5)}
    assert [m.version for m in world.server.state.moves] == [V(5, n) for n in range(2, 6)]
    await world.write(V(5, 6))
    await asyncio.sleep(0.001)
    assert len(world.server.state.moves) == 4


async def test_moves_of_a_write_that_landed_unheard_are_not_told_twice(world: World) -> None:
    """The next look shows its version."""
    real = world.store.publish

    async def deaf(guard: Guard, publication: Publication) -> None:
        await real(guard, publication)
        world.server.available = False
        await world.store.lease()

    world.store.publish = deaf  # type: ignore[method-assign]
    await world.write(V(5, 1), moves=(move(1, V(5, 1)),))
    await asyncio.sleep(0.001)
    world.store.publish = real  # type: ignore[method-assign]
    await world.write(V(5, 2), moves=(move(2, V(5, 2)),))
    world.server.available = True
    await asyncio.sleep(2 * LOOK)
    assert [m.version for m in world.server.state.moves] == [V(5, 1), V(5, 2)]


async def test_an_emptied_or_rolled_back_store_is_written_again(world: World) -> None:
    """Found by looking: no lease there tells of it."""
    await world.write(V(5, 1))
    await asyncio.sleep(0.001)
    snapshot = world.server.snapshot()
    await world.write(V(5, 2))
    await asyncio.sleep(0.001)
    world.server.restore(snapshot)
    await asyncio.sleep(LOOK + 0.001)
    assert world.stored == V(5, 2)
    world.server.flush()
    await asyncio.sleep(LOOK + 0.001)
    assert world.stored == V(5, 2)
    assert set(world.server.state.shares) == {"worker-0", "worker-1"}


async def test_a_higher_epoch_in_the_store_is_reported_and_not_overwritten(world: World) -> None:
    """Once the term has passed it, its next map is stored."""
    other = Guard("other", 8, elsewhere=True)
    theirs = shard_map(V(8, 1))
    await world.store.publish(other, Publication(theirs, RING, shares_of(theirs)))
    await world.write(V(5, 1))
    await asyncio.sleep(0.001)
    assert world.saw[0] == V(8, 0)
    assert world.stored == V(8, 1)
    world.epoch = 9
    await asyncio.sleep(2 * LOOK)
    assert world.stored == V(8, 1), "the map of the old epoch is not stored under the new one"
    await world.write(V(9, 1))
    await asyncio.sleep(LOOK)
    assert world.stored == V(9, 1)


async def test_another_map_under_the_same_version_asks_for_a_new_one(world: World) -> None:
    """Whoever stored it: two maps are never one version."""
    mine = Guard(ME.id, 5, elsewhere=True)
    theirs = shard_map(V(5, 1), groups=9)
    await world.store.publish(mine, Publication(theirs, RING, shares_of(theirs)))
    await world.write(V(5, 1))
    await asyncio.sleep(0.001)
    assert world.again == 1
    await world.write(V(5, 2))
    await asyncio.sleep(2 * LOOK)
    assert world.stored == V(5, 2)


async def test_nothing_is_written_without_a_lease(world: World) -> None:
    """What is due is written when the lease covers it again."""
    world.doubt = True
    await world.write(V(5, 1))
    await asyncio.sleep(1.0)
    assert world.stored == NONE
    world.doubt = False
    await asyncio.sleep(2 * LOOK)
    assert world.stored == V(5, 1)


async def test_a_lease_in_the_store_ends_the_term(world: World) -> None:
    """The fleet changes to an election there: one leader at a time."""
    other = LeaderInfo("other", "o:1", "o:2")
    await world.store.acquire(other, floor=5, ttl_seconds=60.0, request="r")
    await asyncio.sleep(2 * LOOK)
    assert world.task.done()
    assert isinstance(world.task.exception(), LeadershipLost)


async def test_where_the_lease_is_in_the_store_it_is_written_first(world: World) -> None:
    """And says no to whoever does not hold it. The shares are owed, once the map is stored."""
    keeper = Owing()
    first = StoreFirst(world.store, world.term, cast("ShareKeeper", keeper))
    published = shard_map(V(5, 1))
    publication = Publication(published, RING, shares_of(published))
    with pytest.raises(StoreRefused):
        await first.write(publication)
    world.doubt = True
    with pytest.raises(LeaseInDoubt):
        await first.write(publication)
    world.doubt = False
    await world.close()
    await world.store.acquire(ME, floor=4, ttl_seconds=60.0, request="r")
    assert keeper.owed == []
    await first.write(publication)
    assert world.stored == V(5, 1)
    assert world.server.state.shares == {}
    assert keeper.owed == [(publication, Guard(ME.id, 5))]
