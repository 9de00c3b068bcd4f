"""Gateways in front of a fleet that routes by EndpointSlices: one real Envoy, wired in two ways.

`slices` as Istio does it: the ext_proc cluster follows the slices (EDS, after a debounce), its name
is the streams' `:authority`, and the pick is taken from metadata. `cluster_ip` as Envoy AI Gateway
does it: the cluster is the Service's own address, to which a connection sticks, and the pick is
taken from the header. Neither hides a missing or a wrong pick: behind the one every endpoint of
every pool is as likely, behind the other there is none. A dead or absent picker is a 500.
"""

import asyncio
import contextlib
import json
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fleet.clock import SystemClock
from fleet.kube.contract import KubeApi
from fleet.local.atomic import write_atomic
from fleet.local.envoy_config import (
    FILTER,
    MESSAGE_TIMEOUT,
    PICK_KEY,
    TYPE,
    Picker,
    discovery_file,
    eds_file_name,
    pods_cluster,
    pool_assignment,
    pool_cluster,
    pool_route,
)
from fleet.model import Endpoint, GroupKey, Pool, PoolRef
from tests.cluster_ips import SYNC_SECONDS, ClusterIps
from tests.envoy import Envoy, eds_cluster, http_listener
from tests.slice_follower import SliceFollower

Json = dict[str, Any]

WAYS = ("slices", "cluster_ip")
DEBOUNCE_SECONDS = 0.1
"""How long Istio waits for further changes before it pushes."""

EVERYTHING = PoolRef("all", "pods")
BY_HEADER = "by-header"


class EdsFiles:
    """The endpoints of groups as files that Envoy follows."""

    def __init__(self, folder: Path, groups: Iterable[GroupKey], debounce_seconds: float) -> None:
        """Write files without endpoints, since Envoy starts only if they are there."""
        self.folder = folder
        self._debounce = debounce_seconds
        self._version = 0
        self._waiting: dict[GroupKey, tuple[str, ...]] = dict.fromkeys(groups, ())
        self._groups = frozenset(self._waiting)
        self._due: asyncio.TimerHandle | None = None
        folder.mkdir()
        self._write()

    def told(self, group: GroupKey, addresses: tuple[str, ...]) -> None:
        """What the slices say now; written after the debounce, with all that changed."""
        if group not in self._groups:
            return
        self._waiting[group] = addresses
        if self._due is None:
            self._due = asyncio.get_running_loop().call_later(self._debounce, self._write)

    def _write(self) -> None:
        self._due = None
        self._version += 1
        for group, addresses in self._waiting.items():
            hosts = [{"endpoint": {"address": socket_of(each)}} for each in addresses]
            assignment = {
                "@type": TYPE + "envoy.config.endpoint.v3.ClusterLoadAssignment",
                "cluster_name": str(group),
                "endpoints": [{"lb_endpoints": hosts}] if hosts else [],
            }
            document = discovery_file(self._version, [assignment])
            write_atomic(self.folder / eds_file_name(group), json.dumps(document))
        self._waiting.clear()

    def close(self) -> None:
        """Write no more."""
        if self._due is not None:
            self._due.cancel()


class SliceGateway:
    """An asynchronous context manager: Envoy is ready inside, and follows the slices.

    Args:
        folder: for its files.
        endpoints: of all the pools.

    Attributes:
        follower: what the slices say.
        services: the addresses of the Services.
        envoy: for its statistics.
        urls: by way (`WAYS`): `http://host:port`; a pool is at `/namespace/name/`.
    """

    def __init__(
        self,
        folder: Path,
        api: KubeApi,
        pools: Sequence[Pool],
        endpoints: Sequence[Endpoint],
        *,
        threads: int = 2,
        debounce_seconds: float = DEBOUNCE_SECONDS,
        sync_seconds: float = SYNC_SECONDS,
    ) -> None:
        self._pools = pools
        self._endpoints = endpoints
        self._folder = folder
        self._threads = threads
        self._files = EdsFiles(folder / "eds", map(_group, pools), debounce_seconds)
        self.services = ClusterIps(sync_seconds=sync_seconds)
        self.follower = SliceFollower(api, self._files.told, self.services.told)
        self._stack = AsyncExitStack()
        self.urls: dict[str, str] = {}

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.services)
            static = await self._static_resources()
            stack.callback(self._files.close)
            following = asyncio.create_task(self.follower.follow())
            stack.push_async_callback(_cancel, following)
            self.envoy = Envoy(self._folder, static, concurrency=self._threads)
            await stack.enter_async_context(self.envoy)
            for way in WAYS:
                self.urls[way] = f"http://{await self.envoy.listener(way)}"
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    async def until_routed(self, seconds: float = 30.0) -> None:
        """Until every pool is led to one worker, and both ways have caught up.

        Raises:
            AssertionError: not in time.
        """
        groups = {_group(pool) for pool in self._pools}
        clock = SystemClock()
        deadline = clock.monotonic() + seconds
        while not all(len(self.follower.addresses.get(each, ())) == 1 for each in groups):
            assert clock.monotonic() < deadline, f"no owners: {self.follower.addresses}"
            await asyncio.sleep(0.05)
        await self.services.settled()

    async def _static_resources(self) -> Json:
        clusters, routes = [], {way: list[Json]() for way in WAYS}
        for pool in self._pools:
            group = _group(pool)
            service, where = group.service, f"{group.namespace}.svc"
            istio = Picker(f"outbound|{group.port}||{service}.{where}.cluster.local", None)
            file = self._files.folder / eds_file_name(group)
            clusters.append(eds_cluster(istio.cluster, file, service=str(group), http2=True))
            everything = pods_cluster(EVERYTHING)
            routes["slices"].append(route_by(pool, istio, everything))
            name = f"envoy.clusters.endpointpicker_{pool.ref.name}_{pool.ref.namespace}_ext_proc"
            own = Picker(name, f"{service}.{where}:{group.port}")
            clusters.append(_static_cluster(name, await self.services.address(group)))
            routes["cluster_ip"].append(route_by(pool, own, BY_HEADER))
        clusters += [all_pods(self._endpoints), ORIGINAL_DST]
        listeners = [
            http_listener(way, filters=(EXT_PROC,), routes=tuple(routes[way])) for way in WAYS
        ]
        return {"listeners": listeners, "clusters": clusters}


EXT_PROC: Json = {
    "name": FILTER,
    "typed_config": {
        "@type": TYPE + "envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor",
        "grpc_service": {"envoy_grpc": {"cluster_name": "dummy"}},
        "processing_mode": {"request_header_mode": "SKIP", "response_header_mode": "SKIP"},
        "failure_mode_allow": True,
        "message_timeout": MESSAGE_TIMEOUT,
        "max_message_timeout": MESSAGE_TIMEOUT,
    },
}
"""Every route overrides it, as gateways do."""

ORIGINAL_DST: Json = {
    "name": BY_HEADER,
    "type": "ORIGINAL_DST",
    "lb_policy": "CLUSTER_PROVIDED",
    "connect_timeout": "1s",
    "original_dst_lb_config": {"use_http_header": True, "http_header_name": PICK_KEY},
}


def all_pods(endpoints: Sequence[Endpoint]) -> Json:
    """One cluster of all endpoints of all pools: whatever is not picked is as likely as any."""
    pool = Pool(EVERYTHING, "", {}, (1,), None)
    cluster = pool_cluster(pool, pool_assignment(EVERYTHING, endpoints))
    return {key: value for key, value in cluster.items() if key != "@type"}


def _group(pool: Pool) -> GroupKey:
    assert pool.group is not None, f"{pool.ref} names no endpoint picker"
    return pool.group


def route_by(pool: Pool, picker: Picker, cluster: str) -> Json:
    """The pool's route, by this picker to a pod of this cluster."""
    route = pool_route(pool, picker, timeout_seconds=30.0)
    route["route"]["cluster"] = cluster
    return route


def _static_cluster(name: str, address: str) -> Json:
    cluster = eds_cluster(name, Path(), http2=True)
    del cluster["eds_cluster_config"]
    endpoints = [{"lb_endpoints": [{"endpoint": {"address": socket_of(address)}}]}]
    assignment = {"cluster_name": name, "endpoints": endpoints}
    return {**cluster, "type": "STATIC", "load_assignment": assignment}


def socket_of(address: str) -> Json:
    """`host:port` as Envoy writes it."""
    host, _, port = address.rpartition(":")
    return {"socket_address": {"address": host.strip("[]"), "port_value": int(port)}}


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
