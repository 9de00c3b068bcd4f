"""A model of Redis: the in-memory store behind a network, with everything that goes wrong there.

Each call crosses the network twice. A request that is held back (a cut, a hang) may land long
after its caller has given up. The server can be down, hang, be emptied, or fail over to a replica
that lags: acknowledged writes are lost then.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from fleet.errors import FleetError, StoreUnavailable
from fleet.model import EpochVersion, LeaderInfo, Member, RingSpec, ShardMap, Share
from fleet.store.contract import Guard, Lease, MemberBeat, Move, Publication
from fleet.store.memory import MemoryServer, MemoryStore
from tests.sim.loop import Process, World, WorldClock
from tests.sim.network import STORE, Network

T = TypeVar("T")

Published = Callable[[Guard, Publication], None]


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """The outcome of a coroutine that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    work.close()
    raise AssertionError("the in-memory store waited for something")


class StoreServer:
    """The server's side.

    Attributes:
        down: connections are refused.
        hung: requests are taken and not looked at until it goes on.
        acks: replicas that confirm writes; with 0 whatever asks for one is unknown.
        on_published: told of every publication that landed.
        on_lag: told when the replica hears no more.
        on_rolled_back: told when all that was written since is lost.
        on_emptied: told when all that was ever written is.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.memory = MemoryServer(WorldClock(world))
        self.store = MemoryStore(WorldClock(world), self.memory)
        self.down = False
        self.hung = False
        self.acks = 1
        self.on_published: list[Published] = []
        self.on_lag: list[Callable[[], None]] = []
        self.on_rolled_back: list[Callable[[], None]] = []
        self.on_emptied: list[Callable[[], None]] = []
        self._waiting: list[Callable[[], None]] = []
        self._replica: object | None = None

    def handle(self, request: Callable[[], None]) -> None:
        """A request is here."""
        if self.hung:
            self._waiting.append(request)
        else:
            request()

    def go_on(self) -> None:
        """After a hang: what waited is done now."""
        self.hung = False
        waiting, self._waiting = self._waiting, []
        for request in waiting:
            request()

    def lose_replica(self) -> None:
        """The replica hears no more of what is written."""
        self._replica = self.memory.snapshot()
        self.acks = 0
        for listener in self.on_lag:
            listener()

    def empty(self) -> None:
        """All of it is lost."""
        self.memory.flush()
        for listener in self.on_emptied:
            listener()

    def promote_replica(self) -> None:
        """Fail over: what was written since `lose_replica` never was."""
        if self._replica is not None:
            self.memory.restore(self._replica)
            self._replica = None
            for listener in self.on_rolled_back:
                listener()
        self.acks = 1

    def landed(self, guard: Guard, publication: Publication) -> None:
        for listener in self.on_published:
            listener(guard, publication)


class SimStore:
    """One process' client: `fleet.store.contract.Store`."""

    def __init__(
        self,
        process: Process,
        host: str,
        server: StoreServer,
        network: Network,
        *,
        timeout_seconds: float,
        min_acks: int,
    ) -> None:
        self._process = process
        self._host = host
        self._server = server
        self._network = network
        self._timeout = timeout_seconds
        self._min_acks = min_acks
        self._closed = False

    async def _call(
        self,
        op: Callable[[MemoryStore], Coroutine[Any, Any, T]],
        *,
        acks: bool = False,
    ) -> T:
        if self._closed:
            raise StoreUnavailable("this client is closed")
        answer: asyncio.Future[T] = self._process.loop.create_future()
        network, server, process = self._network, self._server, self._process

        def reply(settle: Callable[[], None]) -> None:
            def there() -> None:
                if process.alive:
                    process.call(lambda: None if answer.done() else settle())

            network.pass_on(STORE, self._host, there)

        def act() -> None:
            try:
                result = at_once(op(server.store))
                if acks and server.acks < self._min_acks:
                    raise StoreUnavailable("too few replicas have confirmed")
            except FleetError as error:
                wrong = error
                reply(lambda: answer.set_exception(wrong))
            else:
                reply(lambda: answer.set_result(result))

        def arrive() -> None:
            if server.down:
                refused = StoreUnavailable("connection refused")
                reply(lambda: answer.set_exception(refused))
            else:
                server.handle(act)

        network.pass_on(self._host, STORE, arrive)
        try:
            async with asyncio.timeout(self._timeout):
                return await answer
        except TimeoutError:
            raise StoreUnavailable("no answer in time; it may have landed") from None

    async def acquire(
        self, leader: LeaderInfo, *, floor: int, ttl_seconds: float, request: str
    ) -> Lease:
        return await self._call(
            lambda store: store.acquire(
                leader, floor=floor, ttl_seconds=ttl_seconds, request=request
            ),
            acks=True,
        )

    async def renew(self, guard: Guard, *, ttl_seconds: float) -> Lease:
        return await self._call(
            lambda store: store.renew(guard, ttl_seconds=ttl_seconds), acks=True
        )

    async def release(self, guard: Guard) -> None:
        await self._call(lambda store: store.release(guard))

    async def lease(self) -> Lease:
        return await self._call(lambda store: store.lease())

    async def beat(self, member: Member) -> None:
        await self._call(lambda store: store.beat(member))

    async def members(self) -> tuple[MemberBeat, ...]:
        return await self._call(lambda store: store.members())

    async def forget(self, guard: Guard, worker: str, incarnation: str) -> None:
        await self._call(lambda store: store.forget(guard, worker, incarnation))

    async def publish(self, guard: Guard, publication: Publication) -> None:
        server = self._server

        async def write(store: MemoryStore) -> None:
            await store.publish(guard, publication)
            server.landed(guard, publication)

        await self._call(write, acks=True)

    async def publish_shares(
        self,
        guard: Guard,
        version: EpochVersion,
        shares: Mapping[str, Share],
        removed: Sequence[str],
    ) -> None:
        await self._call(
            lambda store: store.publish_shares(guard, version, shares, removed), acks=True
        )

    async def shard_map(self, newer_than: EpochVersion) -> ShardMap | None:
        return await self._call(lambda store: store.shard_map(newer_than))

    async def ring(self) -> tuple[RingSpec, EpochVersion] | None:
        return await self._call(lambda store: store.ring())

    async def share(self, worker: str) -> Share | None:
        return await self._call(lambda store: store.share(worker))

    async def moves(self, limit: int) -> tuple[Move, ...]:
        return await self._call(lambda store: store.moves(limit))

    async def close(self) -> None:
        self._closed = True
