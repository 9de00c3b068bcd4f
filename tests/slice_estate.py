"""A whole cluster in small: tenants' pools with simulated model servers, the fleet that serves them
on a real control plane, and a real Envoy that finds its workers by EndpointSlices.

Inside `tests.own_network`. `traffic` counts what clients see while something is done to the fleet.
"""

import asyncio
import contextlib
import random
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from fleet.clock import SystemClock
from fleet.kube.contract import KubeApi
from fleet.local.demo_events import Outcome
from fleet.local.model_config import ModelServer, ModelServersConfig, write_config
from fleet.local.model_engine import Speed
from fleet.local.traffic import Target, Traffic
from fleet.model import Endpoint, GroupKey, Pool, PoolRef
from tests.control_plane.cluster import Cluster
from tests.control_plane.objects import eventually, make_namespace
from tests.deployed import installed
from tests.kube_fleet import FLEET, KubeFleet
from tests.own_network import pod_ip
from tests.slice_gateway import WAYS, SliceGateway
from tests.valkey import running_valkey

PODS = 2
PORT = 8000


@dataclass(frozen=True, slots=True)
class TenantPool:
    """A pool as its tenant applies it.

    Attributes:
        service: of its endpointPickerRef; `port` likewise.
    """

    name: str
    service: str
    port: int = 9002

    @property
    def model(self) -> str:
        """What its model servers serve."""
        return f"model-of-{self.name}"


def service_each(count: int) -> tuple[TenantPool, ...]:
    """Pools with a Service each."""
    return tuple(TenantPool(f"own-{number}", f"own-{number}-epp") for number in range(count))


def one_service(count: int, *, first_port: int = 9101) -> tuple[TenantPool, ...]:
    """Pools that share one Service, with a port each."""
    return tuple(
        TenantPool(f"shared-{number}", "shared-epp", first_port + number) for number in range(count)
    )


@dataclass(slots=True)
class Count:
    """What clients saw of one way through the gateway."""

    requests: int = 0
    failed: int = 0
    cut: int = 0

    def __str__(self) -> str:
        return f"{self.requests} requests, {self.failed} failed, {self.cut} cut"


class Counts:
    """Of all ways; filled when the traffic has ended.

    Attributes:
        reasons: why requests were not good.
    """

    def __init__(self) -> None:
        self.by_way: dict[str, Count] = {way: Count() for way in WAYS}
        self.reasons: Counter[str] = Counter()

    @property
    def lost(self) -> int:
        """Requests without a whole and good answer."""
        return sum(each.failed + each.cut for each in self.by_way.values())

    @property
    def least(self) -> int:
        """Requests of the way that had the fewest."""
        return min(each.requests for each in self.by_way.values())

    def add(self, way: str, traffic: Traffic) -> None:
        """What one stream of requests came to."""
        count = self.by_way[way]
        for record in traffic.records:
            count.requests += 1
            count.failed += record.outcome is Outcome.FAILED
            count.cut += record.outcome is Outcome.CUT
            if record.why:
                self.reasons[f"{way}: {record.why}"] += 1

    def __str__(self) -> str:
        ways = "; ".join(f"{way}: {count}" for way, count in self.by_way.items())
        return f"{ways}; {dict(self.reasons)}" if self.reasons else ways


class SliceEstate:
    """All that a test may touch.

    Attributes:
        pools: by `namespace/name`, as the tenant applied them.
    """

    def __init__(
        self,
        fleet: KubeFleet,
        gateway: SliceGateway,
        pools: Mapping[PoolRef, TenantPool],
        http: aiohttp.ClientSession,
    ) -> None:
        self.fleet = fleet
        self.gateway = gateway
        self.pools = pools
        self.http = http

    def group(self, ref: PoolRef) -> GroupKey:
        """Where gateways ask for a pool."""
        return GroupKey(ref.namespace, self.pools[ref].service, self.pools[ref].port)

    def owner(self, ref: PoolRef) -> str:
        """The worker that the pool's slice names.

        Raises:
            AssertionError: not exactly one of those that there are.
        """
        addresses = self.gateway.follower.addresses.get(self.group(ref), ())
        found = [name for name in self.fleet.workers if self.fleet.address_of(name) in addresses]
        assert len(found) == len(addresses) == 1, f"{ref}: {addresses}"
        return found[0]

    def owners(self) -> set[str]:
        """Every worker that a slice names."""
        return {self.owner(ref) for ref in self.pools}

    async def until_owned_by(self, allowed: set[str], what: str) -> None:
        """Until only these own pools, and each pool has an owner."""

        async def settled() -> bool:
            try:
                return self.owners() <= allowed
            except AssertionError:
                return False

        await eventually(settled, f"{what}: {self.gateway.follower.addresses}")

    def targets(self, way: str) -> list[Target]:
        """All pools, through one way."""
        return [
            Target(f"{self.gateway.urls[way]}/{ref}/v1/chat/completions", pool.model, f"{ref}-")
            for ref, pool in self.pools.items()
        ]

    @contextlib.asynccontextmanager
    async def traffic(self, per_second: float, *, seed: int = 7) -> AsyncIterator[Counts]:
        """Steady requests to all pools by all ways; counted when the block has ended.

        Args:
            per_second: on each way.
        """
        counts = Counts()
        running = {
            way: Traffic(self.http, self.targets(way), SystemClock(), random.Random(seed))
            for way in WAYS
        }
        tasks = [asyncio.create_task(each.run(per_second)) for each in running.values()]
        try:
            yield counts
        finally:
            for each in running.values():
                each.stop()
            await asyncio.gather(*tasks)
            for way, each in running.items():
                counts.add(way, each)


@contextlib.contextmanager
def model_servers(folder: Path, servers: Sequence[ModelServer], speed: Speed) -> Iterator[None]:
    """They listen inside."""
    config = folder / "servers.json"
    write_config(config, ModelServersConfig(tuple(servers), speed))
    command = [sys.executable, "-m", "fleet.local.model_server", "--config", str(config)]
    with (folder / "servers.log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.kill()
        process.wait(10)


@contextlib.asynccontextmanager
async def slice_estate(
    folder: Path,
    cluster: Cluster,
    pools: Sequence[TenantPool],
    *,
    workers: int = 3,
    coordinators: int = 2,
    worker_settings: Mapping[str, Mapping[str, object]] | None = None,
    token_seconds: float = 0.1,
) -> AsyncIterator[SliceEstate]:
    """Everything of it, serving.

    Args:
        token_seconds: of the model servers; an answer that is streamed has 12 tokens.
    """
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(cluster.connected(request_timeout_seconds=30.0))
        own, tenant = await make_namespace(api), await make_namespace(api, prefix="tenant")
        home = await stack.enter_async_context(installed(cluster, api, own, fleet=FLEET))
        valkey = stack.enter_context(running_valkey())
        fleet = KubeFleet(folder, api, home, tenant, valkey)
        stack.callback(fleet.stop)
        await fleet.prepare(
            workers=workers, coordinators=coordinators, worker_settings=worker_settings
        )
        fleet.start()
        by_ref = {PoolRef(tenant, pool.name): pool for pool in pools}
        servers = [
            ModelServer(f"{pod_ip(number * PODS + pod)}:{PORT}", f"{ref}-{pod}", (pool.model,))
            for number, (ref, pool) in enumerate(by_ref.items())
            for pod in range(PODS)
        ]
        speed = Speed(token_seconds=token_seconds)
        stack.enter_context(model_servers(folder, servers, speed))
        await _apply(fleet, by_ref, servers)
        http = await stack.enter_async_context(aiohttp.ClientSession())
        gateway = _gateway(folder, api, by_ref, servers)
        await stack.enter_async_context(gateway)
        try:
            await fleet.wait_ready()
            await gateway.until_routed()
            yield SliceEstate(fleet, gateway, by_ref, http)
        except BaseException:
            sys.stderr.write(fleet.logs() + "\n")
            raise


async def _apply(
    fleet: KubeFleet, pools: Mapping[PoolRef, TenantPool], servers: Sequence[ModelServer]
) -> None:
    for ref, pool in pools.items():
        picker = {"name": pool.service, "port": {"number": pool.port}}
        await fleet.apply(ref.name, endpointPickerRef=picker)
    for number, server in enumerate(servers):
        name = server.pod.rpartition("/")[2].rpartition("-")[0]
        await fleet.make_pod(name, number % PODS, server.address.rpartition(":")[0])


def _gateway(
    folder: Path,
    api: KubeApi,
    pools: Mapping[PoolRef, TenantPool],
    servers: Sequence[ModelServer],
) -> SliceGateway:
    known = [
        Pool(ref, "", {"app": ref.name}, (PORT,), GroupKey(ref.namespace, pool.service, pool.port))
        for ref, pool in pools.items()
    ]
    endpoints = [Endpoint(server.pod, "", server.address, 0) for server in servers]
    return SliceGateway(folder, api, known, endpoints)
