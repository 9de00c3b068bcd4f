"""What an election promises, over the in-memory store (virtual time) and a real Valkey."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from coordinator.election.redis import StoreElection
from fleet.model import EpochVersion
from fleet.settings.model import ElectionSettings
from fleet.store.contract import Guard, Store
from fleet.store.memory import MemoryServer, MemoryStore
from tests.contract.election_worlds import Coordinator, LoopClock, until_one_leads
from tests.contract.store_fixtures import LEADER_A, LEADER_B, ValkeyWorld, publication

SETTINGS = ElectionSettings(ttl_seconds=2.0, renew_seconds=0.1)


class Arena:
    """Three coordinators on one store."""

    def __init__(self, stores: list[Store], server: MemoryServer | ValkeyWorld) -> None:
        self.trace: list[str] = []
        self.stores = stores
        self.server = server
        self.fleet = [Coordinator(f"c{n}", s, self.trace, SETTINGS) for n, s in enumerate(stores)]

    def others(self, one: Coordinator) -> list[Coordinator]:
        return [coordinator for coordinator in self.fleet if coordinator is not one]


@pytest.fixture(params=["memory", "valkey"])
async def arena(request: pytest.FixtureRequest) -> AsyncIterator[Arena]:
    """Running candidates; the real server was emptied."""
    if request.param == "memory":
        server = MemoryServer(LoopClock())
        arena = Arena([MemoryStore(server.clock, server) for _ in range(3)], server)
        yield arena
    else:
        valkey = request.getfixturevalue("valkey_server")
        valkey.command("FLUSHALL")
        world = ValkeyWorld(valkey)
        arena = Arena([world.store() for _ in range(3)], world)
        yield arena
    for coordinator in arena.fleet:
        await coordinator.stop()
    if isinstance(arena.server, ValkeyWorld):
        await arena.server.close()


async def test_exactly_one_of_three_leads(arena: Arena) -> None:
    """And the others see who it is."""
    leader = await until_one_leads(arena.fleet)
    assert leader.epoch == 1
    async with asyncio.timeout(20.0):
        while any(c.candidate.standing().leader != leader.info for c in arena.fleet):
            await asyncio.sleep(0.01)
    assert arena.trace == [f"{leader.info.id} starts 1"]


async def test_a_stopped_leader_releases_after_its_work_ended(arena: Arena) -> None:
    """SIGTERM: work ends, then the lease is free, and another leads long before the TTL.

    Replays vmware/pinniped#800 (released before it stopped acting).
    """
    leader = await until_one_leads(arena.fleet)
    loop = asyncio.get_running_loop()
    stopped = loop.time()
    await leader.stop()
    heir = await until_one_leads(arena.others(leader))
    assert loop.time() - stopped < SETTINGS.ttl_seconds / 2
    assert arena.trace == [
        f"{leader.info.id} starts 1",
        f"{leader.info.id} ends",
        f"{heir.info.id} starts 2",
    ]


async def test_an_emptied_store_gives_a_higher_epoch(arena: Arena) -> None:
    """The holder takes the lease again above all that is known; never are there two."""
    leader = await until_one_leads(arena.fleet)
    async with asyncio.timeout(20.0):
        while any(c.candidate.standing().leader != leader.info for c in arena.fleet):
            await asyncio.sleep(0.01)
    leader.known_epoch = 41  # what workers and routes would report
    arena.server.flush()
    async with asyncio.timeout(20.0):
        while (await until_one_leads(arena.fleet)).epoch == 1:
            await asyncio.sleep(0.01)
    assert await until_one_leads(arena.fleet) is leader
    assert leader.epoch == 42
    assert arena.trace == [f"{leader.info.id} starts 1"]


async def test_a_reported_epoch_is_overtaken(arena: Arena) -> None:
    """The holder acquires again above an epoch that was seen; its work goes on."""
    leader = await until_one_leads(arena.fleet)
    leader.candidate.require_epoch_above(30)
    async with asyncio.timeout(20.0):
        while leader.epoch <= 30:
            await asyncio.sleep(0.01)
    assert leader.epoch == 31
    assert arena.trace == [f"{leader.info.id} starts 1"]


async def test_a_rolled_back_map_is_reported(arena: Arena) -> None:
    """The stored map is below what the leader published: its hook is called."""
    leader = await until_one_leads(arena.fleet)
    store = arena.stores[arena.fleet.index(leader)]
    await store.publish(Guard(leader.info.id, 1), publication(EpochVersion(1, 3)))
    leadership = leader.candidate.leadership()
    assert leadership is not None
    leadership.note_published(EpochVersion(1, 4))
    async with asyncio.timeout(20.0):
        while not leader.rolled_back:
            await asyncio.sleep(0.01)
    assert leader.rolled_back[0].map_version == EpochVersion(1, 3)


async def test_a_held_lease_is_not_given(arena: Arena) -> None:
    """Acquire answers None while somebody else holds it; renew of a strange term is lost."""
    leader = await until_one_leads(arena.fleet)
    store, clock = arena.stores[0], LoopClock()
    assert await StoreElection(store, LEADER_A, SETTINGS, clock).acquire(floor=9) is None
    leadership = leader.candidate.leadership()
    assert leadership is not None
    await leader.stop()
    heir = await until_one_leads(arena.others(leader))
    old = StoreElection(store, leader.info, SETTINGS, clock)
    term, standing = await old.renew(leadership.term)
    assert term is None
    assert (standing.leader, standing.epoch) == (heir.info, 2)


async def test_the_deadline_counts_from_before_the_request() -> None:
    """A slow answer costs the holder, not the safety: the deadline is sent + 95 % of the TTL."""
    now = [100.0]

    class Ticking(LoopClock):
        def monotonic(self) -> float:
            now[0] += 1.0
            return now[0]

    server = MemoryServer(LoopClock())
    election = StoreElection(MemoryStore(server.clock, server), LEADER_B, SETTINGS, Ticking())
    term = await election.acquire(floor=0)
    assert term is not None
    assert term.deadline == pytest.approx(101.0 + 1.9)
