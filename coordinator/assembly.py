"""A coordinator's parts, of the kinds that its settings choose; opened in order, closed in reverse.

There is one client of the API server, and only where something needs it.
"""

import contextlib
import random
from collections.abc import AsyncIterator
from pathlib import Path

from coordinator.app import Elect, Parts
from coordinator.election.kube_lease import KubeLeaseElection
from coordinator.routes.contract import Routes
from coordinator.routes.eds import EdsRoutes
from coordinator.routes.slices import EndpointSliceRoutes, PortName
from fleet.certificates import Role, open_certificates
from fleet.clock import Clock
from fleet.kube.client import open_client
from fleet.kube.contract import KubeApi
from fleet.kube.read_access import ReadAccess
from fleet.model import GroupKey, Service
from fleet.picking.folder import ConfigSource
from fleet.settings.kinds import ENDPOINT_SLICES, KUBERNETES, Kinds, kinds_of
from fleet.settings.model import Settings
from fleet.sources.contract import Kind, ObjectKey, Source
from fleet.sources.folder import FolderSource
from fleet.sources.kubernetes import KubeSource
from fleet.store.redis import RedisStore


@contextlib.asynccontextmanager
async def open_parts(
    settings: Settings, *, clock: Clock, rng: random.Random
) -> AsyncIterator[Parts]:
    """The parts for as long as the context lasts; the source has been started.

    Raises:
        FleetError: no credentials for an API server, no such folder, certificates that do not go
            together, or a store's URL that cannot be read.
    """
    kinds = kinds_of(settings)
    async with contextlib.AsyncExitStack() as stack:
        api: KubeApi | None = None
        if kinds.need_api_server:
            api = await open_client(settings.kubernetes)
            stack.push_async_callback(api.close)
        store = RedisStore(settings.redis, settings.fleet)
        stack.push_async_callback(store.close)
        source = _source(kinds, settings, api, clock, rng)
        stack.push_async_callback(source.close)
        await source.start()
        yield Parts(
            store,
            _routes(stack, kinds, settings, api, source, clock, rng),
            source,
            clock,
            rng,
            elect=_elect(kinds, settings, api, clock),
            cluster=api if kinds.source == KUBERNETES else None,
            certificates=open_certificates(settings, Role.COORDINATOR, clock),
            read_access=_read_access(stack, settings, api, clock),
            picking=ConfigSource(settings.picking, clock),
        )


def _source(
    kinds: Kinds, settings: Settings, api: KubeApi | None, clock: Clock, rng: random.Random
) -> Source:
    if api is not None and kinds.source == KUBERNETES:
        return KubeSource(api, settings.kubernetes, clock, rng)
    folder = Path(settings.source.manifests)
    return FolderSource(folder, poll_seconds=settings.source.poll_seconds, clock=clock)


def _read_access(
    stack: contextlib.AsyncExitStack, settings: Settings, api: KubeApi | None, clock: Clock
) -> ReadAccess | None:
    if api is None or settings.security.reads != KUBERNETES:
        return None
    access = ReadAccess(api, clock)
    stack.push_async_callback(access.close)
    return access


def _routes(
    stack: contextlib.AsyncExitStack,
    kinds: Kinds,
    settings: Settings,
    api: KubeApi | None,
    source: Source,
    clock: Clock,
    rng: random.Random,
) -> Routes:
    if api is None or kinds.routes != ENDPOINT_SLICES:
        directory = Path(settings.routes.eds_directory)
        return EdsRoutes(directory, settings=settings.routes, clock=clock)
    service_port = port_names(source)
    routes = EndpointSliceRoutes(api, settings, clock, rng=rng, service_port=service_port)
    stack.push_async_callback(routes.close)
    routes.start()
    return routes


def _elect(kinds: Kinds, settings: Settings, api: KubeApi | None, clock: Clock) -> Elect | None:
    if api is None or kinds.election != KUBERNETES:
        return None
    return lambda me: KubeLeaseElection(api, me, settings.election, settings.fleet, clock)


def port_names(source: Source) -> PortName:
    """How the Services of `source` name their ports."""

    def port_name(group: GroupKey) -> str | None:
        services = source.objects(Kind.SERVICE, namespace=group.namespace)
        service = services.get(ObjectKey(group.namespace, group.service))
        return service.ports.get(group.port) if isinstance(service, Service) else None

    return port_name
