"""EDS files in front of a real Envoy: what the leader writes is where requests go."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from coordinator.election.contract import Term
from coordinator.routes.contract import Route
from coordinator.routes.eds import EdsRoutes
from coordinator.routes.envoy_format import file_name
from fleet.clock import SystemClock
from fleet.model import EpochVersion, GroupKey, LeaderInfo
from fleet.settings.model import RouteSettings
from tests.envoy import Envoy, eds_cluster, http_listener

GROUP = GroupKey("ns1", "epp", 9002)
TERM = Term(LeaderInfo("c", "", ""), 1, time.monotonic() + 3600)
DEADLINE_SECONDS = 10.0


@asynccontextmanager
async def server(name: str) -> AsyncIterator[str]:
    """An HTTP server that answers with its name; yields its address."""

    async def answer(request: web.Request) -> web.Response:
        return web.Response(text=name)

    app = web.Application()
    app.router.add_get("/", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


class Traffic:
    """Requests without a pause; remembers failures, and the latest answers."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.count = 0
        self.failures: list[str] = []
        self.latest: deque[str] = deque(maxlen=20)

    async def run(self) -> None:
        """Until cancelled."""
        async with aiohttp.ClientSession() as client:
            while True:
                try:
                    async with client.get(self._url) as response:
                        self.latest.append(await response.text())
                        if response.status != 200:
                            self.failures.append(self.latest[-1])
                except aiohttp.ClientError as error:
                    self.failures.append(repr(error))
                self.count += 1

    async def until(self, met: Callable[["Traffic"], bool]) -> None:
        """Bounded."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not met(self):
                await asyncio.sleep(0.01)

    async def until_all_from(self, name: str) -> None:
        """The latest answers are all from one server."""
        await self.until(lambda it: len(it.latest) == 20 and set(it.latest) == {name})


class Publisher:
    """The leader, as far as this one group goes."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / file_name(GROUP)
        self._routes = EdsRoutes(folder, settings=RouteSettings(), clock=SystemClock())
        self._version = EpochVersion(1, 0)

    async def publish(self, *addresses: str) -> None:
        self._version = self._version.next()
        result = await self._routes.write([Route(GROUP, addresses, self._version)], TERM)
        assert result.written == (GROUP,)


@pytest.fixture
def publisher(tmp_path: Path) -> Publisher:
    return Publisher(tmp_path / "eds")


@asynccontextmanager
async def traffic_through_envoy(
    folder: Path, publisher: Publisher
) -> AsyncIterator[tuple[Envoy, Traffic]]:
    resources = {
        "listeners": [http_listener("in", "picker")],
        "clusters": [eds_cluster("picker", publisher.file, service=str(GROUP))],
    }
    async with Envoy(folder, resources) as envoy:
        traffic = Traffic(f"http://{await envoy.listener('in')}/")
        task = asyncio.create_task(traffic.run())
        try:
            yield envoy, traffic
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_replacing_the_file_moves_traffic_without_a_failed_request(
    tmp_path: Path, publisher: Publisher
) -> None:
    """There and back again, under load: no request fails, and none stays behind."""
    async with server("a") as a, server("b") as b:
        await publisher.publish(a)
        async with traffic_through_envoy(tmp_path, publisher) as (envoy, traffic):
            for name, address in (("b", b), ("a", a), ("b", b)):
                await publisher.publish(address)
                await traffic.until_all_from(name)
            assert traffic.failures == []
            assert traffic.count >= 60
            stats = await envoy.stats("picker.*update")
            assert stats["cluster.picker.update_success"] == 4
            assert stats["cluster.picker.update_rejected"] == 0


async def test_an_empty_route_leaves_the_decision_to_the_gateway(
    tmp_path: Path, publisher: Publisher
) -> None:
    """No owner: Envoy knows of no endpoint and says so at once; an owner repairs it."""
    async with server("a") as a:
        await publisher.publish()
        async with traffic_through_envoy(tmp_path, publisher) as (_, traffic):
            await traffic.until_all_from("no healthy upstream")
            await publisher.publish(a)
            await traffic.until_all_from("a")
            await publisher.publish()
            await traffic.until_all_from("no healthy upstream")
