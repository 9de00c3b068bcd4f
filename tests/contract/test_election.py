"""What an election promises: over the in-memory store, a real Valkey, and Kubernetes Leases of an
API server that is played in memory or over real HTTP.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from coordinator.election.contract import Term
from coordinator.election.redis import StoreElection
from fleet.kube.client import open_client
from fleet.model import EpochVersion
from fleet.settings.model import KubernetesSettings
from fleet.store.contract import Guard
from fleet.store.memory import MemoryServer, MemoryStore
from tests.contract.election_worlds import (
    SETTINGS,
    Coordinator,
    Home,
    KubeHome,
    LoopClock,
    StoreHome,
    until_one_leads,
)
from tests.contract.store_fixtures import LEADER_A, LEADER_B, ValkeyWorld, publication
from tests.fake_api_server import FakeApiServer
from tests.memory_kube import MemoryApiServer, MemoryKube


class Arena:
    """Three coordinators, each with a client of its own of one lease's home."""

    def __init__(self, homes: list[Home]) -> None:
        self.trace: list[str] = []
        self.homes = homes
        self.fleet = [Coordinator(f"c{n}", home, self.trace) for n, home in enumerate(homes)]

    def others(self, one: Coordinator) -> list[Coordinator]:
        return [coordinator for coordinator in self.fleet if coordinator is not one]

    async def traced(self, *lines: str) -> None:
        """Exactly these things happened, the last of them perhaps in a moment."""
        async with asyncio.timeout(20.0):
            while len(self.trace) < len(lines):
                await asyncio.sleep(0.001)
        assert self.trace == list(lines)

    async def close(self) -> None:
        for coordinator in self.fleet:
            await coordinator.stop()


async def homes_of(kind: str, request: pytest.FixtureRequest, stack: AsyncExitStack) -> list[Home]:
    """Three clients of a new home; the stack closes them."""
    if kind == "memory":
        server = MemoryServer(LoopClock())
        return [StoreHome(MemoryStore(server.clock, server), server) for _ in range(3)]
    if kind == "valkey":
        valkey = request.getfixturevalue("valkey_server")
        valkey.command("FLUSHALL")
        world = ValkeyWorld(valkey)
        stack.push_async_callback(world.close)
        return [StoreHome(world.store(), world) for _ in range(3)]
    if kind == "lease_memory":
        played = MemoryApiServer()
        return [KubeHome(MemoryKube(played)) for _ in range(3)]
    fake = await stack.enter_async_context(FakeApiServer.running())
    folder: Path = request.getfixturevalue("tmp_path")
    settings = KubernetesSettings(kubeconfig=str(fake.kubeconfig(folder)))
    homes: list[Home] = []
    for _ in range(3):
        client = await open_client(settings)
        stack.push_async_callback(client.close)
        homes.append(KubeHome(client))
    return homes


_VIRTUAL = pytest.mark.looptime  # where no byte leaves the process


@pytest.fixture(
    params=[
        pytest.param("memory", marks=_VIRTUAL),
        "valkey",
        pytest.param("lease_memory", marks=_VIRTUAL),
        "lease_fake",
    ]
)
async def arena(request: pytest.FixtureRequest) -> AsyncIterator[Arena]:
    """Running candidates."""
    async with AsyncExitStack() as stack:
        arena = Arena(await homes_of(request.param, request, stack))
        stack.push_async_callback(arena.close)
        yield arena


@pytest.fixture(params=[pytest.param("memory", marks=_VIRTUAL), "valkey"])
async def store_arena(request: pytest.FixtureRequest) -> AsyncIterator[Arena]:
    """Running candidates whose lease lives beside the map."""
    async with AsyncExitStack() as stack:
        arena = Arena(await homes_of(request.param, request, stack))
        stack.push_async_callback(arena.close)
        yield arena


async def test_exactly_one_of_three_leads(arena: Arena) -> None:
    """And the others see who it is."""
    leader = await until_one_leads(arena.fleet)
    assert leader.epoch == 1
    async with asyncio.timeout(20.0):
        while any(c.candidate.standing().leader != leader.info for c in arena.fleet):
            await asyncio.sleep(0.01)
    await arena.traced(f"{leader.info.id} starts 1")


async def test_a_leader_is_not_replaced_while_it_renews(arena: Arena) -> None:
    """While another fleet's lease beside it, acquired later and never renewed, expires."""
    leader = await until_one_leads(arena.fleet)
    beside = arena.homes[0].beside()
    assert await beside.election(LEADER_A).acquire(floor=0) is not None
    heir = beside.election(LEADER_B)
    async with asyncio.timeout(20.0):
        while await heir.acquire(floor=0) is None:
            assert leader.leads()
            await asyncio.sleep(0.01)
    assert leader.leads()
    await arena.traced(f"{leader.info.id} starts 1")


async def test_a_stopped_leader_releases_after_its_work_ended(arena: Arena) -> None:
    """SIGTERM: work ends, then the lease is free, and another leads before it would expire.

    Replays vmware/pinniped#800 (released before it stopped acting).
    """
    leader = await until_one_leads(arena.fleet)
    loop = asyncio.get_running_loop()
    stopped = loop.time()
    await leader.stop()
    heir = await until_one_leads(arena.others(leader))
    # The last renewal was at most `renew_seconds` before.
    assert loop.time() - stopped < SETTINGS.ttl_seconds - SETTINGS.renew_seconds
    await arena.traced(
        f"{leader.info.id} starts 1",
        f"{leader.info.id} ends",
        f"{heir.info.id} starts 2",
    )


async def test_an_emptied_home_gives_a_higher_epoch(arena: Arena) -> None:
    """The holder takes the lease again above all that is known; never are there two."""
    leader = await until_one_leads(arena.fleet)
    async with asyncio.timeout(20.0):
        while any(c.candidate.standing().leader != leader.info for c in arena.fleet):
            await asyncio.sleep(0.01)
    leader.known_epoch = 41  # what workers and routes would report
    await arena.homes[0].empty()
    async with asyncio.timeout(20.0):
        while (await until_one_leads(arena.fleet)).epoch == 1:
            await asyncio.sleep(0.01)
    assert await until_one_leads(arena.fleet) is leader
    assert leader.epoch == 42
    await arena.traced(f"{leader.info.id} starts 1")


async def test_a_reported_epoch_is_overtaken(arena: Arena) -> None:
    """The holder acquires again above an epoch that was seen; its work goes on."""
    leader = await until_one_leads(arena.fleet)
    leader.candidate.require_epoch_above(30)
    async with asyncio.timeout(20.0):
        while leader.epoch <= 30:
            await asyncio.sleep(0.01)
    assert leader.epoch == 31
    await arena.traced(f"{leader.info.id} starts 1")


async def test_a_held_lease_is_not_given(arena: Arena) -> None:
    """Acquire answers None while somebody else holds it; renew of a strange term is lost."""
    leader = await until_one_leads(arena.fleet)
    assert await arena.homes[0].election(LEADER_A).acquire(floor=9) is None
    leadership = leader.candidate.leadership()
    assert leadership is not None
    await leader.stop()
    heir = await until_one_leads(arena.others(leader))
    old = arena.homes[0].election(leader.info)
    term, standing = await old.renew(leadership.term)
    assert term is None
    assert (standing.leader, standing.epoch) == (heir.info, 2)


async def test_a_released_lease_is_free_and_its_epoch_is_kept(arena: Arena) -> None:
    """Releasing what is not held any more does nothing."""
    for coordinator in arena.fleet:
        await coordinator.stop()
    home = arena.homes[0]
    election = home.election(LEADER_A)
    term = await election.acquire(floor=7)
    assert term is not None
    await election.release(term)
    standing = await home.election(LEADER_B).observe()
    assert (standing.leader, standing.epoch) == (None, term.epoch)
    heir = await home.election(LEADER_B).acquire(floor=0)
    assert heir is not None
    assert heir.epoch == term.epoch + 1
    await election.release(term)
    assert (await home.election(LEADER_A).observe()).leader == LEADER_B


async def test_the_holder_acquires_again_with_a_higher_epoch(arena: Arena) -> None:
    """Its former term is lost with that: one term at a time."""
    for coordinator in arena.fleet:
        await coordinator.stop()
    election = arena.homes[0].election(LEADER_A)
    first = await election.acquire(floor=0)
    assert first is not None
    second = await election.acquire(floor=first.epoch + 5)
    assert second is not None
    assert second.epoch == first.epoch + 6
    lost, standing = await election.renew(first)
    assert lost is None
    assert (standing.leader, standing.epoch) == (LEADER_A, second.epoch)
    kept, _ = await election.renew(second)
    assert kept is not None
    assert kept.deadline >= second.deadline


async def test_of_two_that_try_at_once_one_wins(arena: Arena) -> None:
    """Whatever the order in which their requests arrive."""
    for coordinator in arena.fleet:
        await coordinator.stop()
    elections = [arena.homes[0].election(LEADER_A), arena.homes[1].election(LEADER_B)]
    for election in elections:
        await election.observe()
    terms = await asyncio.gather(*(election.acquire(floor=50) for election in elections))
    assert sum(term is not None for term in terms) == 1


async def test_a_rolled_back_map_is_reported(store_arena: Arena) -> None:
    """The stored map is below what the leader published: its hook is called."""
    leader = await until_one_leads(store_arena.fleet)
    home = store_arena.homes[store_arena.fleet.index(leader)]
    assert isinstance(home, StoreHome)
    await home.store.publish(Guard(leader.info.id, 1), publication(EpochVersion(1, 3)))
    leadership = leader.candidate.leadership()
    assert leadership is not None
    leadership.note_published(EpochVersion(1, 4))
    async with asyncio.timeout(20.0):
        while not leader.rolled_back:
            await asyncio.sleep(0.01)
    assert leader.rolled_back[0].map_version == EpochVersion(1, 3)


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
    assert isinstance(term, Term)
    assert term.deadline == pytest.approx(101.0 + 1.9)
