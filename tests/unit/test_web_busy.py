"""Questions that wait for their turn are few: who asks and leaves keeps nobody out for long."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from coordinator.web import start_web
from coordinator.web.reads import MAX_WAITING
from fleet.store.contract import Move
from tests.fake_view import FakeView, empty_map


@pytest.mark.parametrize("path", ["/api/v1/history", "/api/v1/plan?remove=w"])
async def test_who_comes_when_many_wait_is_turned_away(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And when these were answered, others are again; clients that left count until then."""
    view, gate = FakeView(map=empty_map(9)), asyncio.Event()

    async def moves(_: int) -> list[Move]:
        await gate.wait()
        return []

    monkeypatch.setattr(view, "moves", moves, raising=False)
    monkeypatch.setattr(view, "premises", lambda: None, raising=False)
    web = await start_web(view, host="127.0.0.1", port=0, token="t", registry=CollectorRegistry())
    url = f"http://127.0.0.1:{web.port}{path}"
    handlers: list[Any] = [route.handler for route in web._runner.app.router.routes()]
    reads = next(each.__self__ for each in handlers if each.__name__ == "plan")
    try:
        async with aiohttp.ClientSession() as http, asyncio.timeout(20):
            await reads._planning.acquire()
            asked = [asyncio.create_task(http.get(url)) for _ in range(MAX_WAITING)]
            while reads._plans + reads._histories < MAX_WAITING:
                await asyncio.sleep(0)
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
            async with http.get(url) as answer:
                assert (answer.status, (await answer.json())["error"]["code"]) == (503, "busy")
            gate.set()
            reads._planning.release()
            while reads._plans + reads._histories:
                await asyncio.sleep(0)
            async with http.get(url) as answer:
                assert '"busy"' not in await answer.text()
    finally:
        await web.close()


async def test_scrapers_that_wait_share_a_page() -> None:
    """Of forty at once nobody waits for more than two pages, and each is newer than its asking."""

    class Pages(Collector):
        count = 0

        def collect(self) -> Iterator[GaugeMetricFamily]:
            self.count += 1
            threading.Event().wait(0.02)
            yield GaugeMetricFamily("pages", "So many were made.", self.count)

    registry, pages = CollectorRegistry(auto_describe=False), Pages()
    registry.register(pages)
    made = pages.count
    web = await start_web(FakeView(), host="127.0.0.1", port=0, token="t", registry=registry)
    url = f"http://127.0.0.1:{web.port}/metrics"
    connector = aiohttp.TCPConnector(limit=0)
    try:
        async with aiohttp.ClientSession(connector=connector) as http, asyncio.timeout(20):

            async def scrape() -> int:
                before = pages.count
                async with http.get(url) as answer:
                    number = int(float((await answer.text()).split()[-1]))
                assert number > before
                return number

            numbers = await asyncio.gather(*(scrape() for _ in range(40)))
            assert max(numbers) - made < 20
            assert await scrape() == max(numbers) + 1
    finally:
        await web.close()
