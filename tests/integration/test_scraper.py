"""The scraper against real sockets: bad pods delay nobody but themselves."""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable

from epp_worker.datalayer.scraper import Scraper
from epp_worker.scheduling.contract import PickRequest, Refusal
from epp_worker.scheduling.endpoint import EndpointState
from epp_worker.scheduling.pool import PoolState
from fleet.clock import SystemClock
from fleet.model.identity import PoolRef
from fleet.model.pools import Endpoint, Pool
from fleet.settings.model import ScrapeSettings
from tests.ports import free_port

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
PAGE = b'vllm:num_requests_waiting{engine="0"} 3\nvllm:kv_cache_usage_perc 0.5\n'


async def good(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while await reader.readuntil(b"\r\n\r\n"):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(PAGE) + PAGE)


async def hang(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def redirect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 302 Found\r\nLocation: /metrics\r\nContent-Length: 0\r\n\r\n")


async def dribble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    for byte in b"HTTP/1.1 200 OK\r\n":
        writer.write(bytes((byte,)))
        await writer.drain()
        await asyncio.sleep(1)


async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"4\r\nx 1\n\r\n" * 1000)
        await writer.drain()


@contextlib.asynccontextmanager
async def served(answer: Answer) -> AsyncIterator[str]:
    tasks: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await answer(reader, writer)
            writer.close()  # drained is not sent: the last 64 KiB may still be here
            await writer.wait_closed()
        writer.transport.abort()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def pick(pool: PoolState) -> None:
    answer = pool.pick(PickRequest("m", None, lambda _: None))
    assert not isinstance(answer, Refusal)
    answer.release()


async def test_bad_pods_delay_nobody() -> None:
    """Of 24 pods 8 hang, dribble, redirect or never end; the others stay fresh at the pace of the
    traffic, the bad ones are last resort (kube-state-metrics#2413)."""
    settings = ScrapeSettings(timeout_seconds=0.3, max_page_bytes=1 << 20, max_in_flight=12)
    pool = PoolState(
        Pool(PoolRef("ns", "pool"), "uid", {"a": "b"}, (8000,), None),
        now=time.monotonic,
        rng=random.Random(1),
    )
    async with contextlib.AsyncExitStack() as stack:
        kinds = [good] * 16 + [hang, dribble, redirect, endless] * 2
        addresses = [await stack.enter_async_context(served(kind)) for kind in kinds]
        endpoints = [Endpoint(a, a, a, 0) for a in addresses]
        pool.set_endpoints(endpoints)
        scraper = Scraper(settings, clock=SystemClock())
        scraper.add(pool)
        await scraper.first(pool)
        running = asyncio.create_task(scraper.run())
        healthy: list[EndpointState] = list(pool.endpoints())[:16]
        bad = list(pool.endpoints())[16:]
        end = time.monotonic() + 2.5  # data of an idle pool is up to 1 s old before a pick asks
        oldest = 0.0
        while time.monotonic() < end:
            pick(pool)
            await asyncio.sleep(0.02)
            if end - time.monotonic() < 1:
                oldest = max(oldest, *(time.monotonic() - s.metrics_at for s in healthy))
        assert oldest < 1.0
        assert all((s.waiting, s.kv, s.failures) == (3, 0.5, 0) for s in healthy)
        assert all(s.failures and s.metrics_at == float("-inf") for s in bad)
        assert scraper.endpoints_failing() == 8
        assert not running.done()
        scraper.remove(pool)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


async def test_refused_then_up() -> None:
    """A port where nobody listens yet is retried until somebody does (sglang#37554)."""
    port = free_port()
    address = f"127.0.0.1:{port}"
    pool = PoolState(
        Pool(PoolRef("ns", "pool"), "uid", {"a": "b"}, (8000,), None),
        now=time.monotonic,
        rng=random.Random(1),
    )
    pool.set_endpoints([Endpoint("pod", "uid", address, 0)])
    (state,) = pool.endpoints()
    scraper = Scraper(ScrapeSettings(), clock=SystemClock())
    scraper.add(pool)
    await scraper.first(pool)
    assert state.refused
    running = asyncio.create_task(scraper.run())

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, asyncio.CancelledError, OSError):
            await good(reader, writer)
        writer.transport.abort()

    server = await asyncio.start_server(handle, "127.0.0.1", port)
    async with asyncio.timeout(10):
        while state.waiting is None:
            pick(pool)
            await asyncio.sleep(0.02)
    assert (state.failures, state.refused) == (0, False)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    server.close()
    await asyncio.sleep(0.05)
