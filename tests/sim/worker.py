"""Workers: the real `epp_worker.worker.Worker`, its departure, and streams that reach it."""

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from epp_worker.datalayer.counts import ScrapeCounts
from epp_worker.http2.counters import Counters
from epp_worker.scheduling.pool import PoolState
from epp_worker.stopping import Departure
from epp_worker.surroundings import Surroundings
from epp_worker.worker import Worker
from fleet.control.messages import CONTROL_METHOD
from fleet.model import Addresses
from fleet.settings.model import Settings
from tests.memory_source import MemorySource
from tests.sim.calls import CallContext, SimChannel, serve_call
from tests.sim.loop import Process, ProcessClock, World
from tests.sim.network import End, Ended, Host, Metadata, Network
from tests.sim.store import SimStore

if TYPE_CHECKING:
    from tests.sim.gateway import Gateway, Request

TOKEN = "the-fleets-token"

OPEN_SECONDS = 0.05
"""Between a process' start and its ports."""


class SimScraper:
    """First scrapes take a while; nothing else matters here."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def add(self, pool: PoolState) -> None:
        """Nothing to do."""

    def remove(self, pool: PoolState) -> None:
        """Nothing to do."""

    def refresh(self, pool: PoolState) -> None:
        """Nothing to do."""

    async def run(self) -> None:
        await asyncio.Event().wait()

    def counts(self) -> ScrapeCounts:
        return ScrapeCounts()

    async def first(self, pool: PoolState) -> None:
        await asyncio.sleep(0.002 + 0.05 * self._rng.random())


class GatewayConnection:
    """`epp_worker.http2.contract.GrpcConnection`: one gateway's connection to one worker."""

    def __init__(self, peer: str, opened: float, on_goaway: Callable[[], None]) -> None:
        self.peer = peer
        self.opened = opened
        self.closing = False
        self._on_goaway = on_goaway

    def go_away(self) -> None:
        if not self.closing:
            self.closing = True
            self._on_goaway()


class Stream:
    """`epp_worker.http2.contract.GrpcStream`: one request's stream, at the worker."""

    __slots__ = ("_counters", "_on_end", "_on_send", "authority", "connection", "headers", "open")
    path = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"

    def __init__(
        self,
        authority: str,
        connection: GatewayConnection,
        counters: Counters,
        on_send: Callable[[bytes], None],
        on_end: Callable[[int, str], None],
    ) -> None:
        self.authority = authority
        self.connection = connection
        self.headers: Mapping[str, str] = {}
        self.open = True
        self._counters = counters
        self._on_send = on_send
        self._on_end = on_end
        counters.streams_open += 1

    def send(self, *messages: bytes) -> None:
        for message in messages:
            self._on_send(message)

    def end(self, status: int = 0, message: str = "") -> None:
        if self.closed():
            self._on_end(status, message)

    def closed(self) -> bool:
        """Count its end once."""
        was, self.open = self.open, False
        if was:
            self._counters.streams_open -= 1
        return was

    def fits(self, size: int) -> bool:
        return True

    def when_sent(self, callback: Callable[[], None]) -> None:
        callback()

    def hold_back(self, *, on: bool) -> None:
        """What comes is taken at once."""


class Doors:
    """What a departing worker closes: no connection is left, streams may end until then."""

    def __init__(self, life: "WorkerLife") -> None:
        self._life = life

    async def close(self, grace_seconds: float) -> None:
        life = self._life
        life.closed = life.world.now
        for connection in list(life.connections):
            connection.go_away()
        until = life.process.loop.time() + grace_seconds
        while life.worker.counters.streams_open and life.process.loop.time() < until:
            await asyncio.sleep(0.02)


class WorkerLife:
    """One life of a worker.

    Attributes:
        ended: how it exited, once it has: `left`, `refused` or `failed: ...`.
        connections: gateways' connections, while they are open.
    """

    def __init__(
        self,
        world: World,
        host: Host,
        settings: Settings,
        network: Network,
        store: SimStore,
        source: MemorySource,
        rng: random.Random,
        process: Process,
    ) -> None:
        self.world = world
        self.host = host
        self.network = network
        self.process = process
        self.settings = settings
        self.source = source
        self.store = store
        self.rng = rng
        self.ended: str | None = None
        self.connections: dict[GatewayConnection, None] = {}
        self.worker: Worker
        self.requests: dict[Request, Gateway] = {}
        self.told = float("inf")
        """When it was told to stop."""
        self.closed = float("inf")
        """When it began to refuse new connections."""
        self.up = False
        self.on_up: list[Callable[[WorkerLife], None]] = []
        self._drain: asyncio.Event

    def start(self) -> None:
        """Called outside."""
        self.process.call(self._start)

    def _start(self) -> None:
        self._drain = asyncio.Event()
        self.process.loop.create_task(self._live(), name="worker")

    async def _live(self) -> None:
        process, settings = self.process, self.settings
        self.worker = worker = Worker(
            self.host.name,
            settings,
            TOKEN,
            Surroundings(
                self.source,
                self.store,
                SimScraper(self.rng),
                ProcessClock(process),
                self.rng,
            ),
            fatal=lambda reason: self._exit(f"failed: {reason}"),
            refused=lambda reason: self._exit("refused"),
        )
        untyped: Any = worker
        untyped.http2 = Doors(self)
        untyped.peers.dial = lambda address: SimChannel(
            process, self.host.name, self.network, address
        )
        self._handlers = {service.method: service.handler() for service in worker.services}
        await asyncio.sleep(OPEN_SECONDS * (0.5 + self.rng.random()))
        await worker.open_source()
        address = self.host.address
        worker.addresses = Addresses(*(f"{address}:{port}" for port in (9002, 9003, 9004, 9090)))
        self.host.serve = self._serve
        self.host.listening = True
        await worker.join()
        worker.publish_health()
        self.up = True
        for listener in self.on_up:
            listener(self)
        await self._drain.wait()
        await Departure(worker, self.store).run()
        self._exit("left")

    def leave(self) -> None:
        """SIGTERM; called outside."""
        self.told = self.world.now
        self.process.call(lambda: self._drain.set())

    def _exit(self, how: str) -> None:
        if self.ended is None:
            self.ended = how
            if how.startswith("failed"):
                self.process.failed(how)
            self.world.later(0.0, self.die)

    def die(self, *, vanished: bool = False) -> None:
        """The process is no more."""
        if not self.process.alive:
            return
        self.process.kill()
        self.host.gone = vanished
        self.host.listening = False
        self.network.died(self.process, vanished=vanished)
        requests, self.requests = self.requests, {}
        if not vanished:
            for request, gateway in requests.items():
                self.network.pass_on(self.host.name, gateway.name, partial(gateway.lost, request))

    def _serve(self, method: str, metadata: Metadata, end: End) -> None:
        """A call to the internal port."""
        context = CallContext(self.network, end, metadata)
        work = self._work(method, context, end)
        if work is None:
            self.network.close(end, Ended("UNIMPLEMENTED"))
            return
        task = self.process.loop.create_task(
            serve_call(self.process, self.network, end, context, work), name=method
        )

        def reset() -> None:
            task.cancel()

        end.on_over = reset

    def _work(
        self, method: str, context: CallContext, end: End
    ) -> Coroutine[Any, Any, None] | None:
        worker = self.worker
        if method == CONTROL_METHOD:
            return worker.control.serve(None, context)
        handler: Any = self._handlers.get(method)
        if handler is None:
            return None
        if handler.stream_stream is not None:
            served: Coroutine[Any, Any, None] = handler.stream_stream(None, context)
            return served
        return self._answer(handler, context)

    async def _answer(self, handler: Any, context: CallContext) -> None:
        await context.write(await handler.unary_unary(await context.read(), context))
