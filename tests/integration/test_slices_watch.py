"""The watched copies of slices and of worker pods, over HTTP, with what goes wrong there."""

import asyncio
import copy
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coordinator.election.contract import Term
from coordinator.routes import slices
from coordinator.routes.contract import Route
from coordinator.routes.slice_format import IPV4, slice_name
from coordinator.routes.slices import EndpointSliceRoutes
from coordinator.verdicts import PodAt
from coordinator.worker_pods import WorkerPods
from fleet.clock import SystemClock
from fleet.errors import RouteError
from fleet.kube.client import KubeClient, open_client
from fleet.model import EpochVersion, GroupKey, LeaderInfo
from fleet.settings.model import KubernetesSettings, Settings
from tests.fake_api_server import SLICES, FakeApiServer, Status

CLOCK = SystemClock()
A, B, C = GroupKey("ns1", "a", 9002), GroupKey("ns2", "b", 9002), GroupKey("ns3", "c", 9002)
ONE = ("192.0.2.1:9002",)


def term() -> Term:
    return Term(LeaderInfo("c0", "h:1", "h:2"), 1, CLOCK.monotonic() + 60.0)


def route(group: GroupKey, version: int = 1) -> Route:
    return Route(group, ONE, EpochVersion(1, version))


class World:
    def __init__(self, server: FakeApiServer, api: KubeClient) -> None:
        self.server = server
        self.api = api

    @asynccontextmanager
    async def publisher(
        self, *, namespaces: str = "", service_port: Callable[[GroupKey], str | None] | None = None
    ) -> AsyncIterator[EndpointSliceRoutes]:
        settings = Settings(kubernetes=KubernetesSettings(watch_namespaces=namespaces))
        named = {} if service_port is None else {"service_port": service_port}
        made = EndpointSliceRoutes(self.api, settings, CLOCK, rng=random.Random(1), **named)
        made.start()
        try:
            yield made
        finally:
            await made.close()

    def raw(self, group: GroupKey) -> dict[str, Any]:
        name = slice_name(group, IPV4, "default")
        return copy.deepcopy(self.server.store.find(SLICES, group.namespace, name))


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with FakeApiServer.running() as server:
        kubeconfig = str(server.kubeconfig(tmp_path))
        client = await open_client(KubernetesSettings(kubeconfig=kubeconfig))
        try:
            yield World(server, client)
        finally:
            await client.close()


async def until_read(
    routes: EndpointSliceRoutes, right: Callable[[Mapping[GroupKey, Route]], bool]
) -> None:
    async with asyncio.timeout(10):
        while not right(await routes.read()):
            await asyncio.sleep(0.005)


async def test_reading_costs_no_request(world: World) -> None:
    """The leader looks four times a second; at rest the API server hears nothing of it."""
    async with world.publisher() as routes:
        await routes.write([route(A), route(B)], term())
        await until_read(routes, lambda found: set(found) == {A, B})
        await world.server.until(lambda: world.server.watches("endpointslices") == 1)
        before = len(world.server.requests)
        for _ in range(100):
            await routes.read()
        await routes.write([route(A, 2), route(B, 2)], term())
        assert len(world.server.requests) == before


async def test_only_the_namespaces_that_are_watched_are_asked(world: World) -> None:
    """So that rights in these suffice."""
    async with world.publisher() as everywhere:
        await everywhere.write([route(A), route(B), route(C)], term())
    world.server.requests.clear()
    async with world.publisher(namespaces="ns1, ns2") as routes:
        assert set(await routes.read()) == {A, B}
        await routes.write([route(A, 2)], term())
        assert set(await routes.read()) == {A, B}
    assert {each.path.split("/")[5] for each in world.server.requests} == {"ns1", "ns2"}


async def test_a_slice_that_vanished_unheard_is_missed(world: World) -> None:
    """We created it; it was deleted while the watch told nothing: the next list shows it."""
    async with world.publisher() as routes:
        await routes.read()
        with world.server.losing_events():
            await routes.write([route(A)], term())
            world.server.remove(world.raw(A))
        assert set(await routes.read()) == {A}
        world.server.cut_watches()
        await until_read(routes, lambda found: found == {})
        assert (await routes.write([route(A)], term())).written == (A,)


async def test_a_service_whose_port_is_named_otherwise_gets_its_slice_again(world: World) -> None:
    """Gateways find the slice's port by the Service's name for it; a coordinator that has not
    heard of the Service yet leaves the name as it stands."""
    name: list[str | None] = [None]
    async with world.publisher(service_port=lambda group: name[0]) as routes:
        await routes.write([route(A)], term())
        assert world.raw(A)["ports"][0]["name"] == "grpc-9002"
        name[0] = "picker"
        await until_read(routes, lambda found: found == {})
        assert (await routes.write([route(A)], term())).written == (A,)
        assert world.raw(A)["ports"][0]["name"] == "picker"
        assert set(await routes.read()) == {A}
    async with world.publisher(service_port=lambda group: None) as started:
        assert set(await started.read()) == {A}
        moved = replace(route(A, 2), addresses=("192.0.2.2:9002",))
        assert (await started.write([moved], term())).written == (A,)
        assert world.raw(A)["ports"][0]["name"] == "picker"


async def test_a_list_that_does_not_come_is_no_empty_list(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader that knows no route must not begin: it is told what keeps them from being read."""
    monkeypatch.setattr(slices, "SYNC_SECONDS", 0.2)
    rule = world.server.fail("endpointslices", Status(403, "Forbidden"))
    async with world.publisher() as routes:
        await world.server.until(lambda: rule.hits >= 1)
        with pytest.raises(RouteError, match=r"not listed yet: .*list.*endpointslices"):
            await routes.read()
        rule.remove()
        monkeypatch.setattr(slices, "SYNC_SECONDS", 10)
        assert await routes.read() == {}


async def test_a_throttling_server_gets_all_slices_in_the_end(world: World) -> None:
    """Twenty answers of 429: nothing fails, nothing is lost."""
    rule = world.server.fail(
        "endpointslices", Status(429, "TooManyRequests", retry_after="0"), times=20, method="POST"
    )
    groups = [GroupKey("ns1", f"s{number}", 9002) for number in range(100)]
    async with world.publisher() as routes:
        result = await routes.write([route(each) for each in groups], term())
    assert result.written == tuple(groups)
    assert (rule.hits, routes.throttled) == (20, 20)


def a_pod(name: str, **labels: str) -> dict[str, Any]:
    ours = {"app.kubernetes.io/name": "epp-fleet", "app.kubernetes.io/component": "worker"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "epp", "labels": ours | labels},
        "status": {"phase": "Running", "podIP": "192.0.2.1"},
    }


async def test_pods_of_workers_are_followed(world: World) -> None:
    """By label; a deletion is told at once, one that was lost with the next list."""
    changed = asyncio.Event()
    pods = WorkerPods(world.api, Settings(), CLOCK, rng=random.Random(1))
    pods.on_change(changed.set)
    for name in ("w-0", "w-1"):
        world.server.put(a_pod(name))
    world.server.put(a_pod("c-0", **{"app.kubernetes.io/component": "coordinator"}))
    pods.start()
    try:
        async with asyncio.timeout(10):
            while len(pods.living()) < 2 or not world.server.watches("/pods"):
                await asyncio.sleep(0.005)
            changed.clear()
            world.server.remove(a_pod("w-0"))
            await changed.wait()
            assert pods.gone() == (PodAt("w-0", "192.0.2.1"),)
            with world.server.losing_events():
                world.server.remove(a_pod("w-1"))
            world.server.cut_watches("/pods")
            while pods.living():
                await asyncio.sleep(0.005)
    finally:
        await pods.close()
    assert [each.name for each in pods.gone()] == ["w-0", "w-1"]
