"""Endpoints that a test's scraper reads in virtual time: who was asked when, and what it said."""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable

from epp_worker.datalayer.engines import Engine
from epp_worker.datalayer.fetch import Done, ScrapeFailed
from epp_worker.datalayer.metrics_text import EngineMetrics
from epp_worker.datalayer.scraper import Scraper
from epp_worker.scheduling.contract import PickRequest, Refusal
from epp_worker.scheduling.pool import PoolState
from fleet.model.identity import PoolRef
from fleet.model.pools import Endpoint, Pool
from fleet.settings.model import ScrapeSettings

IDLE = EngineMetrics(waiting=0.0, running=0.0, kv=0.0, dropped=0)


class LoopClock:
    """The loop's virtual time as a `fleet.clock.Clock`."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def wall(self) -> float:
        return self.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Fetches:
    """All connections of a test: who was read how often, and what each read gives.

    Attributes:
        seconds: processor time that one read is said to take.
    """

    def __init__(self) -> None:
        self.count: Counter[str] = Counter()
        self.engines: dict[str, str] = {}
        self.answer: dict[str, Callable[[], EngineMetrics]] = {}
        self.hangs: set[str] = set()
        self.seconds = 0.0
        self.open = 0
        self.most_open = 0
        self.closed: Counter[str] = Counter()

    def connect(self, host: str, port: int) -> "FakeConnection":
        return FakeConnection(self, f"{host}:{port}")

    @property
    def total(self) -> int:
        return sum(self.count.values())


class FakeConnection:
    """One endpoint of `Fetches`."""

    def __init__(self, fetches: Fetches, address: str) -> None:
        self.busy_seconds = 0.0
        self._fetches = fetches
        self._address = address
        self._done: Done | None = None

    def fetch(self, engine: Engine, done: Done) -> None:
        assert self._done is None, "a fetch is under way"
        fetches = self._fetches
        fetches.count[self._address] += 1
        fetches.engines[self._address] = engine.name
        fetches.open += 1
        fetches.most_open = max(fetches.most_open, fetches.open)
        self._done = done
        if self._address not in fetches.hangs:
            asyncio.get_running_loop().call_soon(self._answer)

    def _answer(self) -> None:
        done = self._done
        if done is None:
            return
        self.cancel()
        self.busy_seconds += self._fetches.seconds
        try:
            result = self._fetches.answer.get(self._address, lambda: IDLE)()
        except ScrapeFailed as error:
            done(error)
        else:
            done(result)

    def cancel(self) -> None:
        if self._done is not None:
            self._done = None
            self._fetches.open -= 1

    def close(self) -> None:
        self._fetches.closed[self._address] += 1


def refuse() -> EngineMetrics:
    raise ScrapeFailed("connection refused", refused=True)


def broken() -> EngineMetrics:
    raise ScrapeFailed("answered '500' instead of 200")


def pool_of(name: str, count: int, net: int = 0) -> PoolState:
    loop = asyncio.get_running_loop()
    ref = PoolRef("ns", name)
    state = PoolState(
        Pool(ref, "uid", {"a": "b"}, (8000,), None), now=loop.time, rng=random.Random(1)
    )
    state.set_endpoints(
        [
            Endpoint(f"{name}-{i}", f"{name}-{i}", f"10.{net}.{i // 250}.{i % 250 + 1}:8000", 0)
            for i in range(count)
        ]
    )
    return state


def pick(pool: PoolState) -> str:
    answer = pool.pick(PickRequest("m", None, lambda _: None))
    assert not isinstance(answer, Refusal)
    answer.release()
    return answer.address


@contextlib.asynccontextmanager
async def scraping(
    fetches: Fetches, *pools: PoolState, settings: ScrapeSettings | None = None
) -> AsyncIterator[Scraper]:
    scraper = Scraper(
        settings or ScrapeSettings(),
        clock=LoopClock(),
        rng=random.Random(2),
        connect=fetches.connect,
    )
    for pool in pools:
        scraper.add(pool)
    task = asyncio.create_task(scraper.run())
    try:
        yield scraper
        assert not task.done(), "the scraper ended by itself"
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await asyncio.sleep(0)


async def traffic(pools: list[PoolState], rate: float, seconds: float) -> Counter[str]:
    """Picks at `rate` a second on each pool; how often each endpoint was chosen."""
    chosen: Counter[str] = Counter()
    for _ in range(round(rate * seconds)):
        for pool in pools:
            chosen[pick(pool)] += 1
        await asyncio.sleep(1.0 / rate)
    return chosen
