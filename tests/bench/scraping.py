"""What reading metrics costs a worker, and what picks feel of it.

The model servers are one process of their own on the other core: one socket on all addresses of
127.0.0.0/8, one prepared 49 kB page. Costs are processor time of this process, so that neighbours
on the machine count little; what picks feel is wall time, and is told without a target.
"""

import asyncio
import contextlib
import gc
import os
import random
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

from epp_worker.datalayer.scraper import Scraper
from epp_worker.scheduling.contract import PickRequest, Refusal
from epp_worker.scheduling.pool import RATE_SECONDS, PoolState
from fleet.clock import SystemClock
from fleet.model.identity import PoolRef
from fleet.model.pools import Endpoint, Pool
from fleet.settings.model import ScrapeSettings
from tests.bench.rows import Row
from tests.engine_pages import vllm

PAGE_BYTES = 49_000
_WARM_SECONDS = 1.5
_ASK = PickRequest("m", None, lambda _: None)


class _Server(asyncio.Protocol):
    """Answers every request with the page."""

    answer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(self.answer * data.count(b"\r\n\r\n"))


async def _serve() -> None:
    page = vllm(PAGE_BYTES).encode()
    head = b"HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-length: %d\r\n" % len(page)
    head += b"content-type: text/plain; version=0.0.4; charset=utf-8\r\n\r\n"
    _Server.answer = head + page
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Server, "0.0.0.0", 0, backlog=4096)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await loop.run_in_executor(None, sys.stdin.read)  # until whoever started it goes


@contextlib.contextmanager
def _servers() -> Iterator[int]:
    """The port of model servers that run on the last core; this process keeps to the others."""
    cores = sorted(os.sched_getaffinity(0))
    command = [sys.executable, "-m", "tests.bench.scraping", str(cores[-1])]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        os.sched_setaffinity(0, set(cores[:-1]) or set(cores))
        try:
            yield port
        finally:
            os.sched_setaffinity(0, set(cores))
            process.kill()


def _pools(count: int, endpoints: int, port: int) -> list[PoolState]:
    pools = []
    for number in range(count):
        state = PoolState(
            Pool(PoolRef("ns", f"p{number}"), "uid", {"a": "b"}, (port,), None),
            now=time.monotonic,
            rng=random.Random(number),
        )
        addresses = [
            f"127.{1 + number // 250}.{number % 250}.{1 + one}:{port}" for one in range(endpoints)
        ]
        state.set_endpoints([Endpoint(a, a, a, 0) for a in addresses])
        pools.append(state)
    return pools


class _Traffic:
    """Picks at an even rate over all pools, and how late each came."""

    def __init__(self, pools: Sequence[PoolState], rate: float) -> None:
        self._pools = pools
        self._step = 1.0 / rate
        self.late: list[float] = []

    async def run(self) -> None:
        due, number = time.monotonic(), 0
        while True:
            due += self._step
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            answer = self._pools[number % len(self._pools)].pick(_ASK)
            assert not isinstance(answer, Refusal)
            answer.release()
            self.late.append(time.monotonic() - due)
            number += 1

    def p99_ms(self) -> float:
        """Of a pick's end after it was due."""
        return sorted(self.late)[int(len(self.late) * 0.99)] * 1e3


@contextlib.asynccontextmanager
async def _running(*work: asyncio.Task[None]) -> AsyncIterator[None]:
    try:
        yield
    finally:
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)


async def _cores(seconds: float) -> float:
    """Share of a core that this process uses from now on."""
    cpu, wall = time.process_time(), time.monotonic()
    await asyncio.sleep(seconds)
    return (time.process_time() - cpu) / (time.monotonic() - wall)


def _used_to(pool: PoolState, rate: float) -> None:
    """Let the pool believe that it has had `rate` requests/s for long."""
    for _ in range(round(rate * RATE_SECONDS)):
        answer = pool.pick(_ASK)
        assert not isinstance(answer, Refusal)
        answer.release()


async def _busy(pools: list[PoolState], rate: float, seconds: float) -> tuple[float, ...]:
    """Cores for scraping, scrapes/s, and p99 of picks in ms without and with scraping."""
    for pool in pools:
        _used_to(pool, rate / len(pools))
    alone = _Traffic(pools, rate)
    async with _running(asyncio.create_task(alone.run())):
        await asyncio.sleep(_WARM_SECONDS)
        without = await _cores(seconds)
    scraper, beside = Scraper(ScrapeSettings(), clock=SystemClock()), _Traffic(pools, rate)
    for pool in pools:
        scraper.add(pool)
    async with _running(asyncio.create_task(scraper.run()), asyncio.create_task(beside.run())):
        await asyncio.sleep(_WARM_SECONDS)
        before, began = scraper.scrapes, time.monotonic()
        cores = await _cores(seconds) - without
        done = (scraper.scrapes - before) / (time.monotonic() - began)
    assert scraper.errors == 0
    return cores, done, alone.p99_ms(), beside.p99_ms()


async def _idle(pools: list[PoolState], seconds: float) -> tuple[float, float]:
    """Cores and MB for pools that nobody asks, after the first scrape of each."""
    gc.collect()
    memory = _resident_mb()
    scraper = Scraper(ScrapeSettings(), clock=SystemClock())
    for pool in pools:
        scraper.add(pool)
    async with _running(asyncio.create_task(scraper.run())):
        endpoints = sum(len(pool.endpoints()) for pool in pools)
        while scraper.scrapes < endpoints:
            await asyncio.sleep(0.1)
        cores = await _cores(seconds)
        return cores, _resident_mb() - memory


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def rows() -> Iterator[Row]:
    """The data layer's figures."""
    with _servers() as port:
        for name, count, endpoints, rate, target in (
            ("scrape: 1 pool x 32 at 50 ms", 1, 32, 40.0, 0.15),
            ("scrape: 100 pools x 4, 2 requests/s each", 100, 4, 200.0, 0.25),
        ):
            figures = asyncio.run(_busy(_pools(count, endpoints, port), rate, 4.0))
            cores, done, alone, beside = figures
            yield Row(name, cores, "cores", target)
            yield Row("  scrapes", done, "/s")
            yield Row("  CPU of a scrape", cores / max(done, 1.0) * 1e6, "us")
            yield Row("  p99 of picks, no scraping", alone, "ms")
            yield Row("  p99 of picks, scraping", beside, "ms")
        cores, memory = asyncio.run(_idle(_pools(1000, 4, port), 32.0))
        yield Row("scrape: 1,000 idle pools x 4", cores, "cores", 0.05)
        yield Row("  memory over a worker without", memory, "MB", 150.0)


if __name__ == "__main__":
    os.sched_setaffinity(0, {int(sys.argv[1])})
    asyncio.run(_serve())
