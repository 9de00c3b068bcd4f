"""Shares reach the store behind their map, in virtual time over a store in memory."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

import pytest

from coordinator.election.contract import Term
from coordinator.leader.doubt import LeaseInDoubt
from coordinator.leader.sharekeeping import REST_SECONDS, ShareKeeper
from coordinator.planning import shares_of
from fleet.model import EpochVersion, LeaderInfo, RingSpec, Share
from fleet.store.contract import Guard, Publication
from fleet.store.memory import MemoryServer, MemoryStore
from tests.contract.election_worlds import LoopClock
from tests.contract.store_fixtures import shard_map

ME = LeaderInfo("me", "me:1", "me:2")
RING = RingSpec("xxh3", 160, {"worker-0": 1, "worker-1": 1})
AFTER = REST_SECONDS + 0.001

pytestmark = pytest.mark.looptime
V = EpochVersion


class NotingStore(MemoryStore):
    """Notes whose shares were to be written; `before` is called once, before the next write."""

    def __init__(self, server: MemoryServer) -> None:
        super().__init__(server.clock, server)
        self.writes: list[set[str]] = []
        self.before: Callable[[], object] | None = None
        self.pauses = False

    async def publish_shares(
        self,
        guard: Guard,
        version: EpochVersion,
        shares: Mapping[str, Share],
        removed: Sequence[str],
    ) -> None:
        self.writes.append(set(shares))
        if self.before is not None:
            before, self.before = self.before, None
            before()
        if self.pauses:
            await asyncio.sleep(0)
        await super().publish_shares(guard, version, shares, removed)


class World:
    """A store server, the lease of epoch 5 in it, and its holder's hand on the shares."""

    def __init__(self) -> None:
        self.server = MemoryServer(LoopClock())
        self.store = NotingStore(self.server)
        self.epoch = 5
        self.doubt = False
        self.begin()

    def begin(self) -> None:
        """Another term."""
        self.keeper = ShareKeeper(self.store, term=self.term, clock=LoopClock())
        self.task = asyncio.create_task(self.keeper.run())

    def unreachable(self) -> None:
        """The store does not answer."""
        self.server.available = False

    def term(self) -> Term:
        if self.doubt:
            raise LeaseInDoubt("played")
        return Term(ME, self.epoch, 1e9)

    async def lead(self, epoch: int = 5) -> None:
        """Take the lease in this epoch."""
        self.epoch = epoch
        lease = await self.store.acquire(
            ME, floor=epoch - 1, ttl_seconds=600.0, request=f"r{epoch}"
        )
        assert lease.epoch == epoch

    def owe(self, version: EpochVersion, *workers: str, removed: tuple[str, ...] = ()) -> None:
        published = shard_map(version)
        of = shares_of(published)
        given = {worker: of[worker] for worker in workers}
        self.keeper.owe(Publication(published, RING, given, removed), Guard(ME.id, self.epoch))

    @property
    def stored(self) -> dict[str, EpochVersion]:
        return {worker: share.version for worker, share in self.server.state.shares.items()}

    async def close(self) -> None:
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    await world.lead()
    yield world
    await world.close()


async def test_of_maps_in_a_row_each_share_is_stored_once(world: World) -> None:
    """The newest of each, half a second after the first of the maps."""
    world.owe(V(5, 1), "worker-0", "worker-1")
    await asyncio.sleep(REST_SECONDS / 2)
    world.owe(V(5, 2), "worker-1")
    await asyncio.sleep(REST_SECONDS / 2 - 0.001)
    assert world.stored == {}
    await asyncio.sleep(0.002)
    assert world.stored == {"worker-0": V(5, 1), "worker-1": V(5, 2)}
    await asyncio.sleep(10.0)
    assert world.store.writes == [{"worker-0", "worker-1"}]


async def test_who_leaves_and_comes_back_has_what_was_said_last(world: World) -> None:
    """A share that is to be deleted is not written, nor the other way round."""
    world.owe(V(5, 1), "worker-0", "worker-1")
    await asyncio.sleep(AFTER)
    world.owe(V(5, 2), "worker-1")
    world.owe(V(5, 3), removed=("worker-0", "worker-1"))
    world.owe(V(5, 4), "worker-0")
    await asyncio.sleep(AFTER)
    assert world.stored == {"worker-0": V(5, 4)}


async def test_what_the_store_did_not_take_stays_owed(world: World) -> None:
    """Beside what is owed since: newer shares, and workers that went or came back."""
    world.owe(V(5, 1), "worker-1")
    await asyncio.sleep(AFTER)
    world.server.available = False
    world.owe(V(5, 2), "worker-0", removed=("worker-1",))
    await asyncio.sleep(3 * AFTER)
    world.owe(V(5, 3), "worker-1")
    world.server.available = True
    await asyncio.sleep(2 * AFTER)
    assert world.stored == {"worker-0": V(5, 2), "worker-1": V(5, 3)}


async def test_news_that_come_while_a_write_fails_outlive_it(world: World) -> None:
    """What was given up is older than they are."""

    def news_and_a_fault() -> None:
        world.owe(V(5, 3), "worker-0", removed=("worker-1",))
        world.server.available = False

    world.store.before = news_and_a_fault
    world.owe(V(5, 2), "worker-0", "worker-1")
    await asyncio.sleep(AFTER)
    assert world.stored == {}
    world.server.available = True
    await asyncio.sleep(2 * AFTER)
    assert world.stored == {"worker-0": V(5, 3)}


async def test_nothing_is_stored_while_the_lease_is_in_doubt_or_of_an_epoch_before(
    world: World,
) -> None:
    """The first map of the new epoch brings all shares; none of the old one is stored after it."""
    world.doubt = True
    world.owe(V(5, 1), "worker-0", "worker-1")
    await asyncio.sleep(3 * AFTER)
    world.doubt = False
    await world.lead(6)
    await asyncio.sleep(3 * AFTER)
    assert world.store.writes == []
    world.owe(V(6, 1), "worker-1")
    await asyncio.sleep(AFTER)
    assert world.stored == {"worker-1": V(6, 1)}


async def test_a_term_that_is_ended_leaves_nothing_owed(world: World) -> None:
    """Its lease is given up only afterwards; by then it counts for nothing else any more."""
    world.owe(V(5, 1), "worker-0")
    world.doubt = True
    await world.close()
    assert world.stored == {"worker-0": V(5, 1)}


async def test_a_write_that_the_end_of_the_term_interrupts_is_done_again(world: World) -> None:
    """Nobody knows whether it landed."""
    world.store.before = world.task.cancel
    world.store.pauses = True
    world.owe(V(5, 1), "worker-0", removed=("worker-1",))
    await asyncio.sleep(AFTER)
    await world.close()
    assert world.stored == {"worker-0": V(5, 1)}
    assert world.store.writes == [{"worker-0"}, {"worker-0"}]


async def test_an_ended_term_that_has_lost_its_lease_stores_nothing(world: World) -> None:
    """Somebody else leads, or the store is away: nothing is raised, and nothing waited for."""
    for close in (world.server.flush, world.unreachable):
        world.owe(V(5, 1), "worker-0")
        close()
        await world.close()
        assert world.server.state.shares == {}
        world.begin()


async def test_a_leader_that_lost_its_lease_stores_nothing(world: World) -> None:
    """Refused, as often as it tries."""
    await world.store.release(Guard(ME.id, 5))
    await world.store.acquire(
        LeaderInfo("other", "o:1", "o:2"), floor=5, ttl_seconds=60.0, request="r"
    )
    world.owe(V(5, 1), "worker-0")
    await asyncio.sleep(5.5 * REST_SECONDS)
    assert world.stored == {}
    assert len(world.store.writes) == 5
