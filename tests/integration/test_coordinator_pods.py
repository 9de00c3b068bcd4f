"""A coordinator in a (fake) cluster: worker pods that go, and slices that follow."""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from coordinator.app import Coordinator, Parts
from coordinator.routes.slices import EndpointSliceRoutes
from coordinator.verdicts import PodAt
from coordinator.worker_pods import WorkerPods
from fleet.clock import SystemClock
from fleet.kube.client import KubeClient, open_client
from fleet.model import MemberState, Signal
from fleet.settings.model import (
    CoordinatorSettings,
    KubernetesSettings,
    MembershipSettings,
    RedisSettings,
    Settings,
    SourceSettings,
)
from fleet.sources.folder import FolderSource
from fleet.store.redis import RedisStore
from tests.coordinators import TOKEN, manifest, until
from tests.fake_api_server import SLICES, FakeApiServer
from tests.fake_worker import FakeWorker
from tests.valkey import Valkey, running_valkey

CLOCK = SystemClock()
POOLS = 6
TTL = MembershipSettings().ttl_seconds


@pytest.fixture(scope="module")
def server() -> Iterator[Valkey]:
    with running_valkey() as valkey:
        yield valkey


class World:
    """One coordinator, three workers in pods, six pools; slices at a fake API server."""

    def __init__(self, folder: Path, api: FakeApiServer, kube: KubeClient, redis: str) -> None:
        self.api = api
        self.settings = Settings(
            redis=RedisSettings(url=redis),
            coordinator=CoordinatorSettings(host="127.0.0.1", http_port=0, internal_port=0),
            source=SourceSettings(manifests=str(folder)),
        )
        self.store = RedisStore(self.settings.redis, self.settings.fleet)
        self.source = FolderSource(folder, poll_seconds=0.05, clock=CLOCK)
        self.routes = EndpointSliceRoutes(kube, self.settings, CLOCK, rng=random.Random(1))
        parts = Parts(self.store, self.routes, self.source, CLOCK, random.Random(1), cluster=kube)
        self.app = Coordinator("coordinator-0", self.settings, TOKEN, parts)
        self.workers: dict[str, FakeWorker] = {}

    def put_pod(self, name: str, **metadata: Any) -> None:
        labels = {"app.kubernetes.io/name": "epp-fleet", "app.kubernetes.io/component": "worker"}
        self.api.put(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": "epp", "labels": labels} | metadata,
                "status": {"phase": "Running", "podIP": "127.0.0.1"},
            }
        )

    def remove_pod(self, name: str) -> None:
        metadata = {"name": name, "namespace": "epp"}
        self.api.remove({"apiVersion": "v1", "kind": "Pod", "metadata": metadata})

    async def start_worker(self, name: str) -> None:
        self.workers[name] = await FakeWorker(name, self.store, TOKEN).start()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        for number in range(3):
            self.put_pod(f"worker-{number}")
            await self.start_worker(f"worker-{number}")
        async with self.leading():
            await until(lambda: len(self.owners()) == POOLS)
            await until(lambda: all(self.routed().values()) and len(self.routed()) == POOLS)
            yield

    @contextlib.asynccontextmanager
    async def leading(self) -> AsyncIterator[None]:
        self.routes.start()
        await self.source.start()
        stop = asyncio.Event()
        task = asyncio.create_task(self.app.run(stop))
        try:
            await until(self.app.leading)
            yield
        finally:
            stop.set()
            await task
            for worker in self.workers.values():
                await worker.kill()
            await self.source.close()
            await self.routes.close()
            await self.store.close()

    def owners(self) -> dict[str, str]:
        """The owner by Service, as the map says."""
        shard_map = self.app.shard_map()
        placements = {} if shard_map is None else shard_map.placements
        return {key.service: p.owners[0] for key, p in placements.items() if p.owners}

    def routed(self) -> dict[str, list[int]]:
        """The ports of live owners by Service, as gateways see them."""
        found = {}
        for raw in self.api.store.all(SLICES, lambda raw: True):
            service = raw["metadata"]["labels"]["kubernetes.io/service-name"]
            found[service] = [raw["ports"][0]["port"]] if raw["endpoints"] else []
        return found

    def leads_to(self, name: str) -> bool:
        """Whether any slice leads to this worker."""
        port = int(self.workers[name].member.addresses.ext_proc.rpartition(":")[2])
        return any(port in ports for ports in self.routed().values())


@pytest.fixture
async def world(still: World) -> AsyncIterator[World]:
    """Three workers that share the pools."""
    async with still.running():
        yield still


@pytest.fixture
async def still(tmp_path: Path, server: Valkey) -> AsyncIterator[World]:
    """Nothing of it runs yet."""
    server.command("FLUSHALL")
    folder = tmp_path / "manifests"
    folder.mkdir()
    for number in range(POOLS):
        (folder / f"p{number}.yaml").write_text(manifest(f"p{number}"))
    async with FakeApiServer.running() as api:
        settings = KubernetesSettings(kubeconfig=str(api.kubeconfig(tmp_path)))
        kube = await open_client(settings)
        try:
            yield World(folder, api, kube, server.url)
        finally:
            await kube.close()


async def test_a_worker_whose_pod_vanished_is_replaced_at_once(world: World) -> None:
    """Though it still beats and answers: no slice leads to it within a second."""
    gone = world.owners()["p0-epp"]
    world.remove_pod(gone)
    await until(lambda: not world.leads_to(gone))
    assert all(world.routed().values())
    signals = {Signal.POD_GONE, None}
    await until(lambda: {each.signal for each in world.app.members()} == signals)
    (why,) = [each.why for each in world.app.members() if each.signal is Signal.POD_GONE]
    assert why.startswith("pod gone; ")
    # It still beats. Told that it is dead it would come back as somebody who is dead at once.
    for _ in range(15):
        await asyncio.sleep(0.1)
        assert len(world.workers[gone].verdicts) <= 1, "told again and again"


async def test_a_worker_whose_pod_is_being_deleted_hands_over(world: World) -> None:
    """Before it says so itself: it drains, and owns nothing in the end; nobody is dead. Also a pod
    of a lost node is Ready while it is being deleted (opentelemetry-operator#5576, #3807)."""
    leaving = world.owners()["p0-epp"]
    world.put_pod(leaving, deletionTimestamp="2026-01-01T00:00:00Z")
    await until(lambda: leaving not in world.owners().values())
    await until(lambda: not world.leads_to(leaving))
    states = {each.member.id: each.state for each in world.app.members()}
    assert states.pop(leaving) is MemberState.DRAINING
    assert set(states.values()) == {MemberState.ALIVE}


async def test_a_first_placement_waits_for_the_pods_that_are_starting(still: World) -> None:
    """The second of two comes a second after the first, as processes of a cold cluster do: each
    gets its part at once, and nothing moves afterwards (opentelemetry-operator#2477)."""
    still.put_pod("worker-0")
    still.put_pod("worker-1")
    async with still.leading():
        await still.start_worker("worker-0")
        await asyncio.sleep(1.0)
        assert not still.owners()
        await still.start_worker("worker-1")
        await until(lambda: len(still.owners()) == POOLS)
        assert set(still.owners().values()) == {"worker-0", "worker-1"}
        await until(lambda: all(still.routed().values()) and len(still.routed()) == POOLS)
        assert {move.source for move in await still.store.moves(100)} == {""}


async def test_a_pod_that_never_runs_delays_a_first_placement_by_one_ttl(still: World) -> None:
    """Pending, or in a crash loop: it is given nothing (opentelemetry-operator#3781, #2201)."""
    still.put_pod("worker-0")
    still.put_pod("worker-9")
    async with still.leading():
        began = time.monotonic()
        await still.start_worker("worker-0")
        await until(lambda: len(still.owners()) == POOLS)
        waited = time.monotonic() - began
        assert 0.8 * TTL <= waited < TTL + 10.0, "a TTL, and what a busy machine needs"
        assert set(still.owners().values()) == {"worker-0"}


async def test_a_list_of_pods_that_lost_them_all_stops_nobody(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ray-project/ray#34281: every worker still talks to the leader, so all stay."""
    before, looks = world.owners(), []
    gone = WorkerPods.gone

    def looked(self: WorkerPods) -> tuple[PodAt, ...]:
        found = gone(self)
        looks.append(len(found))
        return found

    monkeypatch.setattr(WorkerPods, "gone", looked)
    with world.api.losing_events():
        for name in world.workers:
            world.remove_pod(name)
    world.api.cut_watches("/pods")
    await until(lambda: looks[-3:] == [3, 3, 3])
    assert world.owners() == before
    assert {each.state for each in world.app.members()} == {MemberState.ALIVE}
