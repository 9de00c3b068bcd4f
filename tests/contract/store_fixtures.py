"""Worlds in which a store lives: what the contract suite runs in, twice.

A world hands out clients of one server and can do to the server what time and operators do.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Protocol

import pytest

from fleet.model import (
    Addresses,
    EpochVersion,
    GroupKey,
    Hold,
    LeaderInfo,
    Load,
    Member,
    Phase,
    Placement,
    PoolId,
    PoolRef,
    Reason,
    RingSpec,
    ShardMap,
    Share,
    share_of,
)
from fleet.settings.model import RedisSettings
from fleet.store.contract import MemberBeat, Move, Publication, Store
from fleet.store.memory import MemoryServer, MemoryStore
from fleet.store.redis import RedisStore
from tests.redis_users import COORDINATOR, WORKER, rules, set_user, url_of
from tests.valkey import Valkey, running_valkey

FLEET = "blue"
LEADER_A = LeaderInfo("coordinator-a", "10.0.0.1:8080", "10.0.0.1:8081")
LEADER_B = LeaderInfo("coordinator-b", "10.0.0.2:8080", "10.0.0.2:8081")


class ManualClock:
    """Moves when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)


class World(Protocol):
    """A store's server, seen from the test."""

    def store(self) -> Store:
        """A new client, as of another process."""
        ...

    def flush(self) -> None:
        """Everything is gone."""
        ...

    def expire_lease(self) -> None:
        """The lease runs out now."""
        ...

    def age_beat(self, worker: str, seconds: float) -> None:
        """`worker` was last heard of that much earlier."""
        ...

    async def close(self) -> None:
        """Close every client."""
        ...


class MemoryWorld:
    """Clients of one `MemoryServer`."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.server = MemoryServer(self.clock)

    def store(self) -> Store:
        return MemoryStore(self.clock, self.server)

    def flush(self) -> None:
        self.server.flush()

    def expire_lease(self) -> None:
        held = self.server.state.held
        self.clock.now += max(0.0, held.until - self.clock.now) if held else 0.0

    def age_beat(self, worker: str, seconds: float) -> None:
        member, at = self.server.state.beats[worker]
        self.server.state.beats[worker] = (member, at - seconds)

    async def close(self) -> None:
        return None


class ValkeyWorld:
    """Clients of a real server."""

    def __init__(self, server: Valkey) -> None:
        self.server = server
        self._stores: list[RedisStore] = []

    def store(self, fleet: str = FLEET, *, min_acks: int = 0) -> RedisStore:
        # A generous time-out: a busy machine is no fault of the store's.
        settings = RedisSettings(self.server.url, request_timeout_seconds=5.0, min_acks=min_acks)
        store = RedisStore(settings, fleet)
        self._stores.append(store)
        return store

    def flush(self) -> None:
        self.server.command("FLUSHALL")

    def expire_lease(self) -> None:
        self.server.command("PEXPIRE", f"epp:{{{FLEET}}}:leader", "0")

    def age_beat(self, worker: str, seconds: float) -> None:
        self.server.command("ZINCRBY", f"epp:{{{FLEET}}}:beats", str(-seconds), worker)

    async def close(self) -> None:
        for store in self._stores:
            await store.close()


class UsersStore(RedisStore):
    """A coordinator's client by the coordinators' user; what workers do, it does by theirs."""

    def __init__(self, server: Valkey) -> None:
        super().__init__(RedisSettings(url_of(COORDINATOR, server.port), 5.0), FLEET)
        self._worker = RedisStore(RedisSettings(url_of(WORKER, server.port), 5.0), FLEET)

    async def beat(self, member: Member) -> None:
        """As a worker beats."""
        await self._worker.beat(member)

    async def members(self) -> tuple[MemberBeat, ...]:
        """As a worker that leaves looks around."""
        return await self._worker.members()

    async def share(self, worker: str) -> Share | None:
        """As a worker repairs its share."""
        return await self._worker.share(worker)

    async def close(self) -> None:
        """Both."""
        await super().close()
        await self._worker.close()


class UsersWorld(ValkeyWorld):
    """Clients of a real server that have exactly the documented rights."""

    def store(self, fleet: str = FLEET, *, min_acks: int = 0) -> RedisStore:
        store = UsersStore(self.server)
        self._stores.append(store)
        return store


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[Valkey]:
    """One server for the whole run; every test empties it first."""
    with running_valkey() as server:
        yield server


@pytest.fixture
async def valkey_world(valkey_server: Valkey) -> AsyncIterator[ValkeyWorld]:
    """Clients of a real server, empty."""
    valkey_server.command("FLUSHALL")
    valkey_server.command("SCRIPT", "FLUSH")
    world = ValkeyWorld(valkey_server)
    yield world
    await world.close()


@pytest.fixture(params=["memory", "valkey", "users"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """Each kind of store in turn; `users` has the rights that docs/redis.md gives."""
    if request.param == "memory":
        yield MemoryWorld()
        return
    server: Valkey = request.getfixturevalue("valkey_server")
    server.command("FLUSHALL")
    for user in (COORDINATOR, WORKER):
        set_user(server, user, rules(user, fleet=FLEET))
    world = ValkeyWorld(server) if request.param == "valkey" else UsersWorld(server)
    yield world
    await world.close()


def group(number: int) -> GroupKey:
    return GroupKey("tenant", f"pool-{number}-epp", 9002)


def member(worker: str, *, incarnation: str = "i1", seen: EpochVersion | None = None) -> Member:
    return Member(
        id=worker,
        incarnation=incarnation,
        addresses=Addresses("10.1.0.1:9002", "10.1.0.1:9003", "10.1.0.1:9004", "[::1]:9090"),
        zone="zone-1",
        node="node-1",
        version="0.1.0",
        weight=3,
        started=1.5,
        draining=True,
        seen=seen or EpochVersion(2**50, 7),
        holds={group(0): Hold.OWNER, group(1): Hold.STANDBY},
        load=Load(1.25, 3, 0.5),
    )


def shard_map(version: EpochVersion, *, groups: int = 3, fleet: str = FLEET) -> ShardMap:
    workers = ("worker-0", "worker-1")
    placements = {
        group(n): Placement(
            group=group(n),
            pools=(PoolId(PoolRef("tenant", f"pool-{n}"), f"uid-{n}"),),
            phase=Phase.OWNED,
            owners=(workers[n % 2],),
            standby=workers[(n + 1) % 2],
            reason=Reason.INITIAL,
            since=12.25,
        )
        for n in range(groups)
    }
    return ShardMap(
        fleet=fleet,
        version=version,
        published_at=100.5,
        leader=LEADER_A,
        placements=placements,
        incarnations=dict.fromkeys(workers, "i1"),
        addresses=dict.fromkeys(workers, "10.1.0.1:9002"),
    )


def move(number: int, version: EpochVersion) -> Move:
    return Move(str(group(number)), "worker-0", "worker-1", "drain", version, 1.0, 2.5, "done")


def publication(
    version: EpochVersion,
    *,
    groups: int = 3,
    removed: tuple[str, ...] = (),
    moves: tuple[Move, ...] = (),
    fleet: str = FLEET,
) -> Publication:
    published = shard_map(version, groups=groups, fleet=fleet)
    workers = [w for w in ("worker-0", "worker-1") if w not in removed]
    return Publication(
        shard_map=published,
        ring=RingSpec("xxh3", 160, dict.fromkeys(workers, 1)),
        shares={worker: share_of(published, worker) for worker in workers},
        removed_shares=removed,
        moves=moves,
    )
