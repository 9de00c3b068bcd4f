"""gRPC health: what a kubelet, a gateway or a person asks about this worker and its pools.

Statuses are a plain mapping that is replaced as a whole; watchers are woken when it changes.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from epp_worker.group import Group
from epp_worker.listeners import GRPC_OPTIONS, HEALTH_CONNECTIONS
from fleet.model import Hold

LIVENESS = "liveness"
READINESS = "readiness"
EXT_PROC_NAMES = ("envoy.service.ext_proc.v3.ExternalProcessor", "inference-extension")
MAX_WATCHES = 1024
"""Watchers at once; each costs a task."""
MAX_CALLS = 2048
"""All calls at once: watchers never keep a Check from being answered."""
MAX_LISTED = 100

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
        self._changed = asyncio.Event()
        self._watches = 0

    def publish(self, statuses: Statuses) -> None:
        """Replace all statuses; watchers hear of what changed for them."""
        if statuses == self._statuses:
            return
        self._statuses = statuses
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def Check(self, request: Any, context: Any) -> Any:  # noqa: N802 - the protocol's name
        """One answer; NOT_FOUND for a name that is not known."""
        serving = self._statuses.get(request.service)
        if serving is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, "unknown service")
        return health_pb2.HealthCheckResponse(status=_status(serving))

    async def List(self, _: Any, context: Any) -> Any:  # noqa: N802 - the protocol's name
        """All names with their status; RESOURCE_EXHAUSTED beyond the protocol's 100."""
        if len(self._statuses) > MAX_LISTED:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many services to list")
        kinds = health_pb2.HealthCheckResponse
        statuses = {name: kinds(status=_status(one)) for name, one in self._statuses.items()}
        return health_pb2.HealthListResponse(statuses=statuses)

    async def Watch(self, request: Any, context: Any) -> None:  # noqa: N802 - the protocol's name
        """Answers for as long as the caller listens; SERVICE_UNKNOWN for an unknown name."""
        if self._watches >= MAX_WATCHES:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many watchers")
        self._watches += 1
        try:
            await self._watch(request, context)
        finally:
            self._watches -= 1

    async def _watch(self, request: Any, context: Any) -> None:
        last: Any = None
        while True:
            changed = self._changed
            status = _status(self._statuses.get(request.service))
            if status != last:
                last = status
                await context.write(health_pb2.HealthCheckResponse(status=status))
            await changed.wait()


def _status(serving: bool | None) -> Any:
    kinds = health_pb2.HealthCheckResponse
    if serving is None:
        return kinds.SERVICE_UNKNOWN
    return kinds.SERVING if serving else kinds.NOT_SERVING


def health_server(service: HealthService) -> grpc.aio.Server:
    """The server of the health port, without its listener."""
    server = grpc.aio.server(
        options=(
            *GRPC_OPTIONS,
            ("grpc.max_allowed_incoming_connections", HEALTH_CONNECTIONS),
            ("grpc.max_receive_message_length", 64 * 1024),
        ),
        maximum_concurrent_rpcs=MAX_CALLS,
    )
    health_pb2_grpc.add_HealthServicer_to_server(service, server)
    return server
