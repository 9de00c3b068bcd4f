"""Gateways: they follow routes after a while, send streams steadily, and check every answer.

One kind follows endpoint lists for each stream; the other keeps its connection to a worker until
that sends it away or dies, as behind a ClusterIP.
"""

import random
from collections.abc import Callable
from typing import Protocol

from coordinator.routes.contract import Route
from epp_worker.http2.contract import StreamHandler
from fleet.model import GroupKey
from tests.sim.loop import Handle, World
from tests.sim.network import Network
from tests.sim.worker import GatewayConnection, Stream, WorkerLife
from tests.unit.extproc_messages import request_headers
from tests.worker_inprocess import endpoint_in

HEADERS = request_headers({":method": "GET", ":path": "/v1/models"}, end_of_stream=True)

HANG_SECONDS = 8.0
"""A stream on which nothing comes for this long is given up."""

_endpoints: dict[bytes, str] = {}


def endpoint_of(reply: bytes) -> str:
    """The endpoint that an answer names; the same bytes are parsed once."""
    found = _endpoints.get(reply)
    if found is None:
        found = _endpoints[reply] = endpoint_in(reply)
        if len(_endpoints) > 4096:
            _endpoints.clear()
    return found


class Judges(Protocol):
    """Who hears of what became of requests."""

    def answered(self, request: "Request", endpoint: str) -> None:
        """With this endpoint."""
        ...

    def failed(self, request: "Request", why: str) -> None:
        """No answer, or one that says so."""
        ...


class Request:
    """One request's stream."""

    __slots__ = ("done", "group", "handler", "life", "picked", "started", "stream", "timer")

    def __init__(self, group: GroupKey, started: float) -> None:
        self.group = group
        self.started = started
        self.life: WorkerLife | None = None
        self.stream: Stream | None = None
        self.handler: StreamHandler | None = None
        self.timer: Handle | None = None
        self.picked = False
        self.done = False


class Gateway:
    """One gateway.

    Attributes:
        seen: the addresses that it knows of each group.
        groups: for which it sends streams.
    """

    def __init__(
        self,
        world: World,
        name: str,
        network: Network,
        rng: random.Random,
        judges: Judges,
        lives: Callable[[str], WorkerLife | None],
        *,
        sticky: bool,
        gap_seconds: float,
        propagation_seconds: float,
        response_seconds: float,
    ) -> None:
        """Args:
        lives: the worker life that is at a host now.
        """
        self.world = world
        self.name = name
        self.network = network
        self.judges = judges
        self.sticky = sticky
        self.seen: dict[GroupKey, tuple[str, ...]] = {}
        self.groups: dict[GroupKey, None] = {}
        self.sent = 0
        self._rng = rng
        self._lives = lives
        self._gap = gap_seconds
        self._propagation = propagation_seconds
        self._response = response_seconds
        self._learned = 0.0
        self._connections: dict[object, tuple[WorkerLife, GatewayConnection]] = {}

    # -- routes ---------------------------------------------------------------------------------

    def route_changed(
        self, group: GroupKey, before: Route | None, after: Route | None, writer: str
    ) -> None:
        """Told at once, known a while later, in order."""
        when = self.world.now + self._propagation * (0.1 + 0.9 * self._rng.random())
        self._learned = max(self._learned, when)
        addresses = () if after is None else after.addresses
        self.world.at(self._learned, self.world.outside, self._learn, group, addresses)

    def _learn(self, group: GroupKey, addresses: tuple[str, ...]) -> None:
        self.seen[group] = addresses
        if addresses and group not in self.groups:
            self.groups[group] = None
            self._next(group)

    def forget(self, group: GroupKey) -> None:
        """Send no more streams for it."""
        self.groups.pop(group, None)
        self.seen.pop(group, None)

    # -- requests -------------------------------------------------------------------------------

    def _next(self, group: GroupKey) -> None:
        self.world.later(self._gap * (0.5 + self._rng.random()), self._send, group)

    def _send(self, group: GroupKey) -> None:
        if group not in self.groups or self.world.over:
            return
        self._next(group)
        self.sent += 1
        request = Request(group, self.world.now)
        found = self._connection(group)
        if found is None:
            self._fail(request, "no address")
            return
        life, connection = found
        request.life = life
        request.timer = self.world.later(HANG_SECONDS, self._fail, request, "hangs")
        self.network.pass_on(
            self.name, life.host.name, lambda: self._arrive(request, life, connection)
        )

    def _connection(self, group: GroupKey) -> tuple[WorkerLife, GatewayConnection] | None:
        if self.sticky:
            known = self._connections.get(group)
            if known is not None and self._usable(known):
                return known
        addresses = self.seen.get(group, ())
        if not addresses:
            return None
        host = self.network.host_of(self._rng.choice(addresses))
        life = None if host is None else self._lives(host.name)
        if host is None or life is None:
            return None
        key: object = group if self.sticky else host.name
        known = self._connections.get(key)
        if known is None or known[0] is not life or not self._usable(known):
            known = self._connections[key] = (life, self._connect(key, life))
        return known

    def _connect(self, key: object, life: WorkerLife) -> GatewayConnection:
        def sent_away() -> None:
            life.connections.pop(connection, None)
            self.network.pass_on(life.host.name, self.name, gone)

        def gone() -> None:
            known = self._connections.get(key)
            if known is not None and known[1] is connection:
                del self._connections[key]

        connection = GatewayConnection(
            f"{self.name}:{self.world.number()}", self.world.now, sent_away
        )
        life.connections[connection] = None
        return connection

    def _usable(self, known: tuple[WorkerLife, GatewayConnection]) -> bool:
        """A connection to a dead process is known to be gone; one to a vanished host is not."""
        process = known[0].process
        if process.alive:
            return True
        assert process.died is not None
        return known[0].host.gone and self.world.now - process.died < HANG_SECONDS

    def _arrive(self, request: Request, life: WorkerLife, connection: GatewayConnection) -> None:
        if request.done or life.host.gone:
            return
        refused = not life.host.accepts or not life.up or connection.opened > life.closed
        if not life.process.alive or refused:
            self.network.pass_on(
                life.host.name, self.name, lambda: self._fail(request, "connection refused")
            )
            return
        life.requests[request] = self
        life.process.call(self._begin, request, life, connection)

    def _begin(self, request: Request, life: WorkerLife, connection: GatewayConnection) -> None:
        """In the worker."""
        name, far = self.name, life.host.name
        group = request.group

        def on_send(message: bytes) -> None:
            self.network.pass_on(far, name, lambda: self._answered(request, message))

        def on_end(status: int, text: str) -> None:
            life.requests.pop(request, None)
            self.network.pass_on(far, name, lambda: self._ended(request, status, text))

        stream = request.stream = Stream(
            f"{group.service}.{group.namespace}.svc:{group.port}",
            connection,
            life.worker.counters,
            on_send,
            on_end,
        )
        request.handler = life.worker.ext_proc(stream)
        request.handler.received(HEADERS)

    def _answered(self, request: Request, message: bytes) -> None:
        if request.picked or request.done:
            return
        request.picked = True
        self.judges.answered(request, endpoint_of(message))
        self.world.later(self._response * self._rng.random(), self._finish, request)

    def _finish(self, request: Request) -> None:
        """The response is through: the gateway resets the stream, its normal end."""
        if self._close(request) and request.life is not None:
            life = request.life
            self.network.pass_on(
                self.name, life.host.name, lambda: life.process.call(self._reset, request, life)
            )

    def _reset(self, request: Request, life: WorkerLife) -> None:
        """In the worker."""
        life.requests.pop(request, None)
        if request.stream is not None and request.stream.closed() and request.handler is not None:
            request.handler.aborted()

    def _ended(self, request: Request, status: int, text: str) -> None:
        if request.picked and status == 0:
            self._close(request)
        else:
            self._fail(request, f"status {status}: {text}")

    def lost(self, request: Request) -> None:
        """The worker's process died with the stream open."""
        self._fail(request, "cut" if request.picked else "connection reset")

    def _close(self, request: Request) -> bool:
        was, request.done = request.done, True
        if request.timer is not None:
            request.timer.cancel()
        return not was

    def _fail(self, request: Request, why: str) -> None:
        if self._close(request):
            self.judges.failed(request, why)
