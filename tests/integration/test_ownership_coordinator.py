"""Whole coordinators over an API server: a pool is applied, and everything follows from that."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from coordinator.app import Coordinator, Parts
from fleet.kube.client import KubeClient, open_client
from fleet.model import GroupKey, PoolRef
from fleet.settings.model import CoordinatorSettings, KubernetesSettings, Settings
from fleet.sources.kubernetes import KubeSource
from fleet.store.memory import MemoryServer, MemoryStore
from tests.fake_api_server import FakeApiServer, Status
from tests.fake_api_store import CORE_EVENTS, SERVICES
from tests.fake_worker import FakeWorker
from tests.kube_sources import QUICK, until
from tests.memory_routes import MemoryRoutes
from tests.ownership_estate import CLOCK, controller_of, fleet_settings, pool_body

TOKEN = "test-token"


class Replica:
    """One coordinator in this process."""

    def __init__(self, name: str, fleet: "Fleet") -> None:
        self.source = KubeSource(
            fleet.api, fleet.settings.kubernetes, CLOCK, random.Random(1), pace=QUICK
        )
        parts = Parts(
            MemoryStore(CLOCK, fleet.store),
            fleet.routes,
            self.source,
            CLOCK,
            random.Random(name),
            cluster=fleet.api,
        )
        self.app = Coordinator(name, fleet.settings, TOKEN, parts)
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> "Replica":
        await self.source.start()
        self._task = asyncio.create_task(self.app.run(self._stop))
        return self

    async def stop(self) -> None:
        self._stop.set()
        if self._task is not None:
            await self._task
        await self.source.close()

    async def get(self, path: str) -> tuple[int, Any]:
        """Ask its HTTP side, wherever it listens."""
        leader = self.app.leader()
        assert leader is not None
        assert leader.id == self.app.id, "only the leader's address is known"
        async with (
            aiohttp.ClientSession() as http,
            http.get(f"http://{leader.http}{path}") as answer,
        ):
            if answer.content_type == "application/json":
                return answer.status, await answer.json()
            return answer.status, await answer.text()


class Fleet:
    """Coordinators over one API server, one store and one set of routes."""

    def __init__(self, api: KubeClient) -> None:
        self.api = api
        self.store = MemoryServer(CLOCK)
        self.routes = MemoryRoutes(CLOCK)
        self.settings: Settings = replace(
            fleet_settings("blue", "ns"),
            coordinator=CoordinatorSettings(host="127.0.0.1", http_port=0, internal_port=0),
        )

    @asynccontextmanager
    async def worker(self, name: str) -> AsyncIterator[FakeWorker]:
        worker = FakeWorker(name, MemoryStore(CLOCK, self.store), TOKEN, fleet="blue")
        await worker.start()
        try:
            yield worker
        finally:
            await worker.kill()

    @asynccontextmanager
    async def replica(self, name: str) -> AsyncIterator[Replica]:
        replica = await Replica(name, self).start()
        try:
            yield replica
        finally:
            await replica.stop()


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer.running() as running:
        yield running


@pytest.fixture
async def fleet(server: FakeApiServer, tmp_path: Path) -> AsyncIterator[Fleet]:
    settings = KubernetesSettings(kubeconfig=str(server.kubeconfig(tmp_path)))
    client = await open_client(settings)
    yield Fleet(client)
    await client.close()


def reasons(server: FakeApiServer) -> set[str]:
    return {raw["reason"] for raw in server.store.all(CORE_EVENTS, lambda _: True)}


def owners(replica: Replica, service: str) -> tuple[str, ...]:
    shard_map = replica.app.shard_map()
    key = GroupKey("ns", service, 9002)
    placement = None if shard_map is None else shard_map.placements.get(key)
    return () if placement is None else placement.owners


async def test_from_an_applied_pool_to_a_route(server: FakeApiServer, fleet: Fleet) -> None:
    """Service, owner, route and events; and `explain` tells all of it."""
    async with fleet.worker("w0") as worker, fleet.replica("c0") as leader:
        await until(leader.app.leading, "it leads")
        server.put(pool_body("a"))
        await until(lambda: owners(leader, "epp") == ("w0",), "w0 owns it")
        await server.until(lambda: reasons(server) == {"Claimed", "Served"})
        (made,) = server.store.all(SERVICES, lambda _: True)
        assert made["metadata"]["name"] == "epp"
        status, body = await leader.get("/api/v1/pools/ns/a")
        assert status == 200
        assert body["claim"] == {"state": "claimed", "why": "the fleet claims all pools"}
        (group,) = body["groups"]
        assert (group["group"], group["owners"], group["phase"]) == (
            "ns/epp:9002",
            ["w0"],
            "owned",
        )
        assert group["service"]["state"] == "ours"
        assert group["candidates"] == ["w0"]
        address = (await fleet.routes.read())[GroupKey("ns", "epp", 9002)].addresses
        assert group["route"]["addresses"] == list(address)
        assert group["route"]["version"].startswith(f"{body['epoch']}.")
        assert body["unknown_here"] == []
        assert worker.history[-1].entries[0].group == GroupKey("ns", "epp", 9002)
        status, body = await leader.get("/api/v1/pools/ns/b")
        assert (status, body["error"]["code"]) == (404, "unknown_pool")


async def test_a_pool_that_is_handed_away_loses_its_route(
    server: FakeApiServer, fleet: Fleet
) -> None:
    """Group, route and owner go as soon as the annotation names somebody else."""
    server.put(pool_body("a"))
    async with fleet.worker("w0"), fleet.replica("c0") as leader:
        await until(lambda: owners(leader, "epp") == ("w0",), "w0 owns it")
        server.put(pool_body("a", controller=controller_of("green")))
        await until(lambda: owners(leader, "epp") == (), "nobody owns it")
        async with asyncio.timeout(10):
            while await fleet.routes.read():
                await asyncio.sleep(0.01)
        _, body = await leader.get("/api/v1/pools/ns/a")
        assert body["claim"]["state"] == "not_ours"


async def test_both_services_of_a_pool_lead_to_it(server: FakeApiServer, fleet: Fleet) -> None:
    """also-serve: two groups of one pool, each with an owner and a route."""
    server.put(pool_body("a", also="new"))
    async with fleet.worker("w0"), fleet.worker("w1"), fleet.replica("c0") as leader:
        await until(lambda: bool(owners(leader, "epp") and owners(leader, "new")), "both owned")
        _, body = await leader.get("/api/v1/pools/ns/a")
        assert [(each["group"], each["role"]) for each in body["groups"]] == [
            ("ns/epp:9002", "picker"),
            ("ns/new:9002", "also-serve"),
        ]
        _, shard_map = await leader.get("/api/v1/map")
        assert [row["group"] for row in shard_map["pools"]] == ["ns/epp:9002", "ns/new:9002"]


async def test_a_service_that_cannot_be_created_delays_no_route(
    server: FakeApiServer, fleet: Fleet
) -> None:
    """The error is in `explain`, the refusals in the metrics."""
    server.fail(r"/services$", Status(403, message="services is forbidden"), method="POST")
    server.put(pool_body("a"))
    server.put(pool_body("b", service=None))
    async with fleet.worker("w0"), fleet.replica("c0") as leader:
        await until(lambda: owners(leader, "epp") == ("w0",), "w0 owns it")
        _, body = await leader.get("/api/v1/pools/ns/a")
        service = body["groups"][0]["service"]
        assert service["state"] == "missing"
        assert "forbidden" in service["error"]
        _, text = await leader.get("/metrics")
        assert "epp_fleet_pools_claimed 1.0" in text
        assert 'epp_fleet_pool_refusals{reason="NoEndpointPicker"} 1.0' in text


async def test_a_follower_explains_too(server: FakeApiServer, fleet: Fleet) -> None:
    """The same pool by its own watches; it writes neither Services nor events, until it leads."""
    server.put(pool_body("a"))
    async with fleet.worker("w0"), fleet.replica("c0") as first:
        await until(lambda: owners(first, "epp") == ("w0",), "w0 owns it")
        async with fleet.replica("c1") as second:
            await until(lambda: owners(second, "epp") == ("w0",), "the follower's map")
            await until(lambda: second.app.ready() is None, "it has its lists")
            found = second.app.explain(PoolRef("ns", "a"))
            assert found is not None
            assert not found.leader_known
            assert found.groups[0].served is not None
            assert found.groups[0].served.state.value == "ours"
            await first.stop()
            await until(second.app.leading, "the follower leads")
            server.put(pool_body("b", service="epp-b"))
            await until(lambda: owners(second, "epp-b") == ("w0",), "it serves new pools")
            names = {r["metadata"]["name"] for r in server.store.all(SERVICES, lambda _: True)}
            assert names == {"epp", "epp-b"}
