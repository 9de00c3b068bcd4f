"""Gateways in front of a fleet that routes by EDS files: one real Envoy, wired in two ways.

`eds` reads the leader's own files, as local mode does. `sticky` has an address of its own for each
Service, which keeps a connection with the worker that it was opened to and lets new ones follow the
owner a second late, as kube-proxy does. As in `tests.slice_gateway`, neither hides a wrong pick.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from fleet.local.envoy_config import Picker, picker_cluster, pods_cluster
from fleet.model import Endpoint, GroupKey, Pool
from tests.cluster_ips import ClusterIps
from tests.envoy import Envoy, http_listener
from tests.slice_gateway import (
    BY_HEADER,
    EVERYTHING,
    EXT_PROC,
    ORIGINAL_DST,
    Json,
    all_pods,
    route_by,
    socket_of,
)

WAYS = ("eds", "sticky")
THREADS = 2
LOOK_SECONDS = 0.05

Routes = Callable[[], Mapping[GroupKey, str]]


def resources(
    pools: Mapping[GroupKey, Pool],
    endpoints: Sequence[Endpoint],
    eds: Path,
    addresses: Mapping[GroupKey, str],
) -> Json:
    """Listeners and clusters of both ways.

    Args:
        eds: folder of the leader's files.
        addresses: of each Service's own, `host:port`.
    """
    clusters, routes = [all_pods(endpoints), ORIGINAL_DST], {way: list[Json]() for way in WAYS}
    for group, pool in pools.items():
        where = f"{group.service}.{group.namespace}.svc"
        istio = Picker(f"outbound|{group.port}||{where}.cluster.local", None)
        clusters.append(_plain(picker_cluster(istio, group, eds)))
        routes["eds"].append(route_by(pool, istio, pods_cluster(EVERYTHING)))
        own = Picker(f"own/{group}", f"{where}:{group.port}")
        cluster = _plain(picker_cluster(own, group, eds))
        del cluster["eds_cluster_config"]
        hosts = [{"endpoint": {"address": socket_of(addresses[group])}}]
        assignment = {"cluster_name": own.cluster, "endpoints": [{"lb_endpoints": hosts}]}
        clusters.append({**cluster, "type": "STATIC", "load_assignment": assignment})
        routes["sticky"].append(route_by(pool, own, BY_HEADER))
    listeners = [http_listener(way, filters=(EXT_PROC,), routes=tuple(routes[way])) for way in WAYS]
    return {"listeners": listeners, "clusters": clusters}


class Gateway:
    """Inside `gateway`.

    Attributes:
        addresses: by way: `host:port`.
        moves: how often a group's route went from one worker to another.
    """

    def __init__(self, envoy: Envoy, addresses: Mapping[str, str], services: ClusterIps) -> None:
        self.envoy = envoy
        self.addresses = addresses
        self.moves = 0
        self._services = services
        self._routes: Mapping[GroupKey, str] = {}

    async def follow(self, routes: Routes) -> None:
        """Tell the Services' addresses what the routes say, until cancelled."""
        while True:
            now = await asyncio.to_thread(routes)
            for group, address in now.items():
                if self._routes.get(group) != address:
                    self.moves += group in self._routes
                    self._services.told(group, (address,))
            self._routes = now
            await asyncio.sleep(LOOK_SECONDS)


@contextlib.asynccontextmanager
async def gateway(
    folder: Path,
    pools: Mapping[GroupKey, Pool],
    endpoints: Sequence[Endpoint],
    eds: Path,
    routes: Routes,
) -> AsyncIterator[Gateway]:
    """Ready, and following.

    Args:
        folder: an existing one, for Envoy's files.
        eds: where the leader has written a file of each group.
        routes: reads each group's one address from there; called in a thread.
    """
    async with AsyncExitStack() as stack:
        services = await stack.enter_async_context(ClusterIps())
        own = {group: await services.address(group) for group in pools}
        envoy = Envoy(folder, resources(pools, endpoints, eds, own), concurrency=THREADS)
        await stack.enter_async_context(envoy)
        made = Gateway(envoy, {way: await envoy.listener(way) for way in WAYS}, services)
        following = asyncio.create_task(made.follow(routes))
        try:
            await asyncio.sleep(2 * LOOK_SECONDS)
            await services.settled()
            yield made
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


def _plain(cluster: Json) -> Json:
    return {key: value for key, value in cluster.items() if key != "@type"}
