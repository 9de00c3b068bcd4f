"""Whatever a pod may answer to `GET /metrics`, over real sockets and through the scraper."""

import asyncio
import contextlib
import gzip
import random
import time
from collections.abc import AsyncIterator

import pytest

from epp_worker.datalayer.engines import engine_of
from epp_worker.datalayer.fetch import ScrapeFailed
from epp_worker.datalayer.scraper import Scraper
from epp_worker.scheduling.endpoint import EndpointState
from epp_worker.scheduling.pool import PoolState
from fleet.clock import SystemClock
from fleet.model.identity import PoolRef
from fleet.model.pools import Endpoint, Pool
from fleet.settings.model import ScrapeSettings
from tests.engine_pages import PAGES
from tests.integration.test_field_scraping import answering, connection, fetch
from tests.integration.test_scraper import Answer, pick, served

PAGE = PAGES["vllm"](49_000).encode()


def response(body: bytes = PAGE, *, head: bytes = b"", status: bytes = b"200 OK") -> bytes:
    length = b"Content-Length: %d\r\n" % len(body)
    return b"HTTP/1.1 " + status + b"\r\n" + head + length + b"\r\n" + body


def chunked(body: bytes, size: int) -> bytes:
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in parts) + b"0\r\n\r\n"


def slowly(data: bytes, size: int) -> Answer:
    """Sends `data` in pieces, each a packet of its own, then closes."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for at in range(0, len(data), size):
            writer.write(data[at : at + size])
            await writer.drain()
            await asyncio.sleep(0.001)

    return answer


GOOD = {
    "plain": answering(response()),
    "pieces": slowly(response(), 1460),
    "chunked": answering(chunked(PAGE, 1000)),
    "chunked slowly": slowly(chunked(PAGE, 300), 700),
    "gzip": answering(response(gzip.compress(PAGE), head=b"Content-Encoding: gzip\r\n")),
    "HTML by its type": answering(response(head=b"Content-Type: text/html\r\n")),
    "no type, no length": answering(b"HTTP/1.0 200 OK\r\n\r\n" + PAGE),
}

BAD = {
    "404": answering(response(b"no\n", status=b"404 Not Found")),
    "500": answering(response(PAGE, status=b"500 Internal Server Error")),
    "204": answering(response(b"", status=b"204 No Content")),
    "redirect": answering(response(b"", head=b"Location: /metrics\r\n", status=b"301 Moved")),
    "reset": answering(response()[:30_000], reset=True),
    "cut": answering(response()[:30_000]),
    "cut chunks": answering(chunked(PAGE, 1000)[:30_000]),
    "cut line": answering(response(PAGE[:-5])),
    "brotli": answering(response(head=b"Content-Encoding: br\r\n")),
    "nothing": answering(b""),
    "no HTTP": answering(b"SSH-2.0-OpenSSH_9.6\r\n\r\n"),
}


@pytest.mark.parametrize("name", GOOD)
async def test_what_is_a_page(name: str) -> None:
    """However it is framed, coded and called."""
    async with served(GOOD[name]) as address:
        reader = connection(address)
        metrics = await fetch(reader)
        reader.close()
    assert (metrics.waiting, metrics.running, metrics.kv, metrics.lora_max) == (3, 5, 0.25, 4)


@pytest.mark.parametrize("name", BAD)
async def test_what_is_none(name: str) -> None:
    """Other statuses, other codings, and every page that is not whole."""
    async with served(BAD[name]) as address:
        reader = connection(address)
        with pytest.raises(ScrapeFailed):
            await fetch(reader)
        reader.close()


async def test_a_page_of_html_is_no_news() -> None:
    """A login page that ends with a newline proves only that somebody answers."""
    async with served(answering(response(b"<html>\n<p>Log in</p>\n</html>\n"))) as address:
        reader = connection(address)
        assert (await fetch(reader))[:3] == (None, None, None)
        reader.close()


async def test_a_kept_connection_that_was_closed_is_replaced_once() -> None:
    """The server closes after each answer without saying so: nobody sees a failure."""
    connections = 0

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(response())
        await reader.readuntil(b"\r\n\r\n")  # the next request is read, and not answered

    async with served(once) as address:
        link = connection(address)
        for number in range(1, 4):
            assert (await fetch(link)).waiting == 3
            assert connections == number
        link.close()


@contextlib.asynccontextmanager
async def scraped(endpoints: list[Endpoint]) -> AsyncIterator[tuple[Scraper, list[EndpointState]]]:
    pool = PoolState(
        Pool(PoolRef("ns", "pool"), "uid", {"a": "b"}, (8000,), None),
        now=time.monotonic,
        rng=random.Random(1),
    )
    pool.set_endpoints(endpoints)
    scraper = Scraper(ScrapeSettings(timeout_seconds=0.5), clock=SystemClock())
    scraper.add(pool)
    running = asyncio.create_task(scraper.run())
    try:
        await scraper.first(pool)
        pick(pool)
        yield scraper, list(pool.endpoints())
        assert not running.done()
    finally:
        scraper.remove(pool)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


async def test_each_pod_is_read_as_its_label_says() -> None:
    """Five engines in one pool: every one's figures are where picks look for them."""
    async with contextlib.AsyncExitStack() as stack:
        endpoints = []
        for name, page in PAGES.items():
            kind = answering(response(page(20_000).encode()))
            address = await stack.enter_async_context(served(kind))
            endpoints.append(Endpoint(name, name, address, 0, engine=name))
        _, states = await stack.enter_async_context(scraped(endpoints))
        assert [(s.waiting, s.running, s.kv, s.block_size, s.blocks) for s in states] == [
            (3, 5, 0.25, 16, 27_500),
            (6, 7, 0.5, 64, 9000),
            (7, 8, 0.75, 32, 4096),
            (3, 7, 0.5, 64, 512),
            (9, 120, None, None, None),
        ]
        vllm = states[0]
        assert engine_of(vllm.endpoint.engine).name == "vllm"
        assert vllm.lora_running == {"sql", "chat"}
        assert vllm.lora_waiting == {"poet"}
        assert vllm.lora_max == 4
        assert [s.lora_max for s in states[1:]] == [None] * 4


async def test_bad_answers_are_told_apart_from_good_ones() -> None:
    """All kinds in one pool: the good ones known, the bad ones failing, none of it an end."""
    async with contextlib.AsyncExitStack() as stack:
        addresses = [
            await stack.enter_async_context(served(kind))
            for kind in [*GOOD.values(), *BAD.values()]
        ]
        endpoints = [Endpoint(a, a, a, 0) for a in addresses]
        scraper, states = await stack.enter_async_context(scraped(endpoints))
        good, bad = states[: len(GOOD)], states[len(GOOD) :]
        assert [s.waiting for s in good] == [3] * len(GOOD)
        assert all(s.failures for s in bad)
        assert not any(s.failures for s in good)
        assert scraper.endpoints_failing() == len(BAD)
