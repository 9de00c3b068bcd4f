"""Metrics pages over real sockets, as large, broken and hostile as the field has them."""

import asyncio
import contextlib
import os
import random
import socket
import struct
import time
from pathlib import Path

import pytest

from epp_worker.datalayer.engines import VLLM, Engine
from epp_worker.datalayer.fetch import MetricsConnection, ScrapeFailed
from epp_worker.datalayer.metrics_text import EngineMetrics
from epp_worker.datalayer.scraper import Scraper
from epp_worker.scheduling.pool import PoolState
from fleet.clock import SystemClock
from fleet.model.identity import PoolRef
from fleet.model.pools import Endpoint, Pool
from fleet.settings.model import ScrapeSettings
from tests.integration.test_scraper import Answer, good, hang, pick, redirect, served

MIB = 1024 * 1024
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"
WAITING = b"vllm:num_requests_waiting"


def answering(data: bytes, *, reset: bool = False) -> Answer:
    """Sends `data` to each request, then closes, or resets the connection."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(data)
        await writer.drain()
        if reset:
            await asyncio.sleep(0.05)  # what was sent must have been read before the reset
            link = writer.get_extra_info("socket")
            link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    return answer


def connection(address: str, *, limit: int = 64 * MIB) -> MetricsConnection:
    host, _, port = address.rpartition(":")
    return MetricsConnection(host, int(port), limit=limit, now=time.monotonic)


async def fetch(reader: MetricsConnection, engine: Engine = VLLM) -> EngineMetrics:
    """What one fetch comes to."""
    done: asyncio.Future[EngineMetrics | Exception] = asyncio.get_running_loop().create_future()
    reader.fetch(engine, done.set_result)
    async with asyncio.timeout(30):
        result = await done
    if isinstance(result, Exception):
        raise result
    return result


async def fetched(data: bytes, *, reset: bool = False) -> float | str | None:
    """The queue length on a page that was answered with `data`, or what was wrong with it."""
    async with served(answering(data, reset=reset)) as address:
        reader = connection(address)
        try:
            return (await fetch(reader)).waiting
        except ScrapeFailed as error:
            return str(error)
        finally:
            reader.close()


class Lag:
    """The longest time for which the loop was kept busy; not counted is what others did on the CPU
    meanwhile."""

    def __init__(self) -> None:
        self.worst = 0.0
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Lag":
        self._task = asyncio.create_task(self._watch())
        await asyncio.sleep(0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _watch(self) -> None:
        while True:
            began = time.thread_time()
            await asyncio.sleep(0.001)
            self.worst = max(self.worst, time.thread_time() - began)


PAGE = WAITING + b" 3\n"
LINE = b'http_request_duration_seconds_bucket{le="0.1",handler="/v1/chat/completions"} 12.0\n'


@pytest.mark.parametrize(
    ("answer", "waiting"),
    [
        (HEAD % len(PAGE) + PAGE, 3),
        (b"HTTP/1.1 200 OK\r\n\r\n" + PAGE, 3),
        (b"HTTP/1.0 200 OK\r\n\r\n" + PAGE.replace(b"\n", b"\r\n"), 3),
        (HEAD % (len(PAGE) + 1) + PAGE, None),
        (HEAD % (len(PAGE) - 1) + PAGE[:-1], None),
        (b"HTTP/1.1 200 OK\r\n\r\n" + PAGE[:-1], None),
        (b"HTTP/1.1 200 OK\r\n\r\n" + LINE * 9 + WAITING + b" 12", None),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n" + PAGE[:8], None),
        (b"", None),
        (b"HTTP/1.1 503 x\r\n\r\n", None),
    ],
)
async def test_an_incomplete_page_is_a_failed_scrape(answer: bytes, waiting: float | None) -> None:
    """`12` may have been `123`: a page counts only if it is whole (client_python#871)."""
    found = await fetched(answer)
    assert found == waiting if waiting is not None else isinstance(found, str)


async def test_a_reset_is_no_end_of_a_page() -> None:
    """Without a length the end of the connection ends the page; a broken connection does not, even
    between two lines."""
    assert await fetched(b"HTTP/1.1 200 OK\r\n\r\n" + PAGE) == 3
    found = await fetched(b"HTTP/1.1 200 OK\r\n\r\n" + PAGE, reset=True)
    assert isinstance(found, str)


@pytest.mark.parametrize("kind", ["plain", "families", "labels", "quotes", "comments"])
async def test_large_pages_leave_the_loop_to_others(kind: str) -> None:
    """30 MB of ordinary series, and 8 MB of what is slowest to read: no pause of the loop is felt
    (client_python#461, client_python#282)."""
    page = {
        "plain": LINE * (30 * MIB // len(LINE)),
        "families": (WAITING + b'{engine="0"} 1\n') * (8 * MIB // 44),
        "labels": (WAITING + b"{" + b'a="b",' * 10_000 + b"} 1\n") * 130,
        "quotes": (WAITING + b'{a="' + b'\\"}' * 20_000 + b'"} 1\n') * 130,
        "comments": (b"# HELP " + WAITING + b" x\n") * (8 * MIB // 40),
    }[kind]
    page += PAGE
    async with Lag() as lag:
        found = await fetched(HEAD % len(page) + page)
    assert isinstance(found, float)
    assert found >= 3
    assert lag.worst < 0.15


async def test_bad_pods_cost_no_descriptors() -> None:
    """40 pods that hang, redirect, close or break, for 3 s: never more open than one connection
    each, none left afterwards (scylla-manager#2843, kube-state-metrics#2413)."""
    descriptors = Path("/proc/self/fd")

    def opened() -> int:
        return len(os.listdir(descriptors))  # noqa: PTH208

    async with contextlib.AsyncExitStack() as stack:
        kinds = [good, hang, redirect, answering(b""), answering(HEAD % 9 + b"x", reset=True)]
        addresses = [await stack.enter_async_context(served(kind)) for kind in kinds * 8]
        before = opened()
        pool = PoolState(
            Pool(PoolRef("ns", "pool"), "uid", {"a": "b"}, (8000,), None),
            now=time.monotonic,
            rng=random.Random(1),
        )
        pool.set_endpoints([Endpoint(a, a, a, 0) for a in addresses])
        scraper = Scraper(ScrapeSettings(timeout_seconds=0.2), clock=SystemClock())
        scraper.add(pool)
        running = asyncio.create_task(scraper.run())
        most = 0
        end = time.monotonic() + 2.5
        while time.monotonic() < end:
            pick(pool)
            await asyncio.sleep(0.02)
            most = max(most, opened() - before)
        assert most <= 2 * len(addresses)  # this process has both ends of each
        assert scraper.endpoints_failing() == 32
        assert not running.done()
        scraper.remove(pool)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        deadline = time.monotonic() + 5
        while opened() > before and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        assert opened() <= before
