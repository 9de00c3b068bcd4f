"""A worker's metrics page of many pools, and readers that do not read."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
import pytest

from epp_worker.metrics import Figures
from epp_worker.web import web_app
from fleet.http_listener import HttpListener, listen_http
from fleet.model import PoolRef
from fleet.model.identity import NONE
from fleet.settings.metrics import MetricsSettings

DEADLINE = 20.0
POOLS = 20_000


class LargeWorker:
    """A worker with so many pools that no socket's buffers hold its page."""

    def __init__(self) -> None:
        self._inflight = {
            PoolRef("namespace-of-a-tenant", f"pool-{number}"): {
                f"10.0.0.{pod}:8000": 1 for pod in range(4)
            }
            for number in range(POOLS)
        }

    def figures(self) -> Figures:
        return Figures([0] * 17, 0, 0, {}, {}, 0, {}, self._inflight, 0.0, 0.0, NONE, NONE)

    def unready(self) -> str | None:
        return None

    def unwell(self) -> str | None:
        return None

    def describe(self) -> Mapping[str, Any]:
        return {}


@pytest.fixture
async def server() -> AsyncIterator[HttpListener]:
    """Its HTTP port."""
    listener = await listen_http(
        web_app(LargeWorker(), "token", None, MetricsSettings(max_pools=POOLS)), "127.0.0.1", 0
    )
    yield listener
    await listener.close()


async def read_page(port: int) -> str:
    """The whole page."""
    async with (
        asyncio.timeout(DEADLINE),
        aiohttp.ClientSession() as client,
        client.get(f"http://127.0.0.1:{port}/metrics") as answer,
    ):
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        text = await answer.text()
        assert len(text.encode()) == answer.content_length
        return text


async def test_a_large_page_comes_whole(server: HttpListener) -> None:
    """In pieces that the reader does not see."""
    page = await read_page(server.port)
    assert page.count("epp_fleet_inflight_requests{") == 4 * POOLS
    assert page.endswith("\n")


async def test_readers_that_do_not_read_keep_nobody_from_the_page(server: HttpListener) -> None:
    """Twice as many as pages that may be on their way: the oldest are cut off, and who reads gets
    all of it."""
    stuck = []
    for _ in range(16):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1024)
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
        async with asyncio.timeout(DEADLINE):
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        stuck.append((reader, writer))
    page = await read_page(server.port)
    assert page.count("epp_fleet_inflight_requests{") == 4 * POOLS
    first = stuck[0][0]
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        async with asyncio.timeout(DEADLINE):
            await first.readexactly(len(page))
    for _, writer in stuck:
        writer.close()
