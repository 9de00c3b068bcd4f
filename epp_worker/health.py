"""gRPC health: what a kubelet, a gateway or a person asks about this worker and its pools.

Statuses are a plain mapping that is replaced as a whole; watchers are told when it changes. The
port is served as the gateways' is, but where all connections are taken the oldest one goes: nobody
can keep a probe out, which needs its own for a moment only.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2

from epp_worker.group import Group
from epp_worker.http2.contract import GrpcStream, Service, StreamHandler
from epp_worker.http2.limits import Http2Limits
from epp_worker.http2.server import Http2Server
from epp_worker.listeners import HEALTH_CONNECTIONS
from fleet.model import Hold

LIVENESS = "liveness"
READINESS = "readiness"
EXT_PROC_NAMES = ("envoy.service.ext_proc.v3.ExternalProcessor", "inference-extension")
MAX_WATCHES = 1024
"""Watchers at once; each is a few hundred bytes."""
MAX_LISTED = 100

_SERVICE: Final = "/grpc.health.v1.Health"
NOT_FOUND: Final = 5
RESOURCE_EXHAUSTED: Final = 8
INTERNAL: Final = 13

_LIMITS: Final = Http2Limits(
    max_connections=HEALTH_CONNECTIONS,
    oldest_gives_way=True,
    max_streams=128,
    max_open_streams=2048,
    max_message_bytes=4096,
    max_partial_bytes=1024 * 1024,
    stream_window=65_535,
    connection_window=65_535,
    max_stream_send_bytes=64 * 1024,
    max_connection_send_bytes=1024 * 1024,
    max_send_bytes=16 * 1024 * 1024,
    max_idle_frames=3_000,
    max_unanswered_resets=3_000,
    preface_seconds=5.0,
    farewell_seconds=0.1,
)

Statuses = Mapping[str, bool]


def process_statuses(*, live: bool, ready: bool, serving: bool) -> dict[str, bool]:
    """The names that speak of the whole process.

    Args:
        serving: streams are answered: also by a worker that leaves and is not ready any more.
    """
    statuses = {"": ready, LIVENESS: live, READINESS: ready}
    statuses.update(dict.fromkeys(EXT_PROC_NAMES, serving))
    return statuses


def pool_statuses(groups: Iterable[Group]) -> dict[str, bool]:
    """`<namespace>/<pool>` of each group: serving only where it is owned and synced.

    A pool that two Services lead to is served here if either group is.
    """
    statuses: dict[str, bool] = {}
    for group in groups:
        owned = group.hold is Hold.OWNER and group.serving
        for ref in group.states:
            statuses[str(ref)] = owned or statuses.get(str(ref), False)
    return statuses


class HealthService:
    """grpc.health.v1.Health over a mapping of names."""

    def __init__(self) -> None:
        self._statuses: Statuses = {}
        self._watchers: dict[Watcher, None] = {}

    def publish(self, statuses: Statuses) -> None:
        """Replace all statuses; watchers hear of what changed for them."""
        if statuses == self._statuses:
            return
        self._statuses = statuses
        for watcher in tuple(self._watchers):
            watcher.tell()

    def status(self, name: str) -> bool | None:
        """Whether a name serves; None for one that is not known."""
        return self._statuses.get(name)

    def methods(self) -> Mapping[str, Service]:
        """By their paths."""
        return {
            f"{_SERVICE}/Check": lambda stream: Unary(stream, self._check),
            f"{_SERVICE}/List": lambda stream: Unary(stream, self._list),
            f"{_SERVICE}/Watch": self._watch,
        }

    def left(self, watcher: "Watcher") -> None:
        """Nobody listens to it any more."""
        self._watchers.pop(watcher, None)

    def _check(self, stream: GrpcStream, request: Any) -> None:
        serving = self.status(request.service)
        if serving is None:
            stream.end(NOT_FOUND, "unknown service")
            return
        stream.send(health_pb2.HealthCheckResponse(status=_status(serving)).SerializeToString())
        stream.end()

    def _list(self, stream: GrpcStream, _: Any) -> None:
        if len(self._statuses) > MAX_LISTED:
            stream.end(RESOURCE_EXHAUSTED, "too many services to list")
            return
        kinds = health_pb2.HealthCheckResponse
        statuses = {name: kinds(status=_status(one)) for name, one in self._statuses.items()}
        stream.send(health_pb2.HealthListResponse(statuses=statuses).SerializeToString())
        stream.end()

    def _watch(self, stream: GrpcStream) -> StreamHandler:
        watcher = Watcher(self, stream)
        if len(self._watchers) >= MAX_WATCHES:
            stream.end(RESOURCE_EXHAUSTED, "too many watchers")
        else:
            self._watchers[watcher] = None
        return watcher


class Unary:
    """A call with one request: answered when that is here."""

    __slots__ = ("_answer", "_stream")

    def __init__(self, stream: GrpcStream, answer: Callable[[GrpcStream, Any], None]) -> None:
        self._stream = stream
        self._answer = answer

    def received(self, message: bytes) -> None:
        """See `StreamHandler.received`."""
        request = _read(message)
        if request is None:
            self._stream.end(INTERNAL, "the request cannot be read")
        else:
            self._answer(self._stream, request)

    def half_closed(self) -> None:
        """See `StreamHandler.half_closed`: there was no request, or the call has ended."""
        self._stream.end(INTERNAL, "no request")

    def aborted(self) -> None:
        """See `StreamHandler.aborted`: nothing is kept."""


class Watcher:
    """A call that hears the status of one name, now and whenever it changes, for as long as it
    listens; SERVICE_UNKNOWN for a name that is not known."""

    __slots__ = ("_name", "_service", "_stream", "_told")

    def __init__(self, service: HealthService, stream: GrpcStream) -> None:
        self._service = service
        self._stream = stream
        self._name: str | None = None
        self._told: Any = None

    def received(self, message: bytes) -> None:
        """See `StreamHandler.received`."""
        request = _read(message)
        if request is None:
            self._service.left(self)
            self._stream.end(INTERNAL, "the request cannot be read")
        elif self._name is None:
            self._name = request.service
            self.tell()

    def tell(self) -> None:
        """Say what has changed, if it has."""
        if self._name is None:
            return
        status = _status(self._service.status(self._name))
        if status != self._told:
            self._told = status
            self._stream.send(health_pb2.HealthCheckResponse(status=status).SerializeToString())

    def half_closed(self) -> None:
        """See `StreamHandler.half_closed`: all that it will ask has been asked."""
        if self._name is None:
            self._service.left(self)
            self._stream.end(INTERNAL, "no request")

    def aborted(self) -> None:
        """See `StreamHandler.aborted`."""
        self._service.left(self)


def _read(message: bytes) -> Any:
    """A request for a name; None if it cannot be read."""
    try:
        return health_pb2.HealthCheckRequest.FromString(message)
    except DecodeError:
        return None


def _status(serving: bool | None) -> Any:
    kinds = health_pb2.HealthCheckResponse
    if serving is None:
        return kinds.SERVICE_UNKNOWN
    return kinds.SERVING if serving else kinds.NOT_SERVING


def health_server(service: HealthService) -> Http2Server:
    """The server of the health port, in plaintext."""
    return Http2Server(service.methods(), limits=_LIMITS)
