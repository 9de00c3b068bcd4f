"""Redis and every coordinator gone for an hour of virtual time: what is placed stays as it is.

opentelemetry-operator#2159 asked what members do while the allocator is down: they keep the last
assignment and serve it in full. Pods come and go meanwhile by way of the source, as ever.
"""

import asyncio
import gc
import logging
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from epp_worker.metrics import Figures
from epp_worker.surroundings import Surroundings
from epp_worker.worker import Worker
from fleet.model import EpochVersion, GroupKey, Hold, Pod, PoolId, Share, ShareEntry
from fleet.model.pools import Pool
from fleet.settings import Settings
from fleet.sources.contract import Kind
from fleet.store.memory import MemoryServer, MemoryStore
from tests.memory_source import MemorySource
from tests.unit import extproc_messages
from tests.worker_fakes import FakeScraper, FakeStream, pod_of, pool_of
from tests.worker_inprocess import endpoint_in

HOUR = 3600
quick_hours = pytest.mark.looptime(noop_cycles=4)
"""Virtual time stands still for so many turns of the loop at each timer, of which there are 100,000
in an hour; nothing here waits for more."""

POOLS, PODS = 6, 4
WARM = 60
"""Seconds before the first look: by then everything has been used once."""


class LoopClock:
    """The event loop's time: virtual in these tests."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def wall(self) -> float:
        return 1.7e9 + self.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))


class Estate:
    """Pools and pods that come and go, and the worker that serves them."""

    def __init__(self) -> None:
        self.clock = LoopClock()
        self.server = MemoryServer(self.clock)
        self.pools = [pool_of(f"pool-{number}") for number in range(POOLS)]
        self.pods: dict[str, list[Pod]] = {pool.ref.name: [] for pool in self.pools}
        self.source = MemorySource(*self.pools)
        self.scraper = FakeScraper()
        self.fatal: list[str] = []
        self.made = 0
        for pool in self.pools:
            for _ in range(PODS):
                self._come(pool)
        self.worker = Worker(
            "worker-0",
            Settings(),
            "token",
            Surroundings(
                self.source,
                MemoryStore(self.clock, self.server),
                self.scraper,
                self.clock,
                random.Random(1),
            ),
            fatal=self.fatal.append,
            refused=self.fatal.append,
        )

    def _come(self, pool: Pool) -> None:
        self.made += 1
        ip = f"10.{self.made // 62500}.{self.made // 250 % 250}.{self.made % 250 + 1}"
        pod = pod_of(f"{pool.ref.name}-{self.made}", pool.ref.name, ip)
        self.pods[pool.ref.name].append(pod)
        self.source.put(pod)

    def churn(self, pool: Pool) -> str:
        """The oldest pod of a pool goes, a new one comes; the address that is gone."""
        gone = self.pods[pool.ref.name].pop(0)
        self.source.remove(gone)
        self._come(pool)
        return f"{gone.ip}:8000"

    def endpoints(self, pool: Pool) -> set[str]:
        """What may be picked."""
        return {f"{pod.ip}:8000" for pod in self.pods[pool.ref.name]}

    def share(self) -> Share:
        """It owns four groups, and stands by for the others."""
        entries = []
        for number, pool in enumerate(self.pools):
            assert pool.group is not None
            hold, owner = (Hold.OWNER, "worker-0") if number < 4 else (Hold.STANDBY, "worker-1")
            entries.append(ShareEntry(pool.group, hold, (PoolId(pool.ref, pool.uid),), owner))
        holdings = self.worker.holdings
        version = EpochVersion(3, 1)
        return Share("default", "worker-0", holdings.incarnation, version, tuple(entries))

    def pick(self, pool: Pool, *, whole: bool) -> str:
        """One request; its response comes to its end, or the gateway goes away in the middle."""
        assert pool.group is not None
        stream = FakeStream(f"{pool.group.service}.{pool.group.namespace}:{pool.group.port}")
        handler = self.worker.ext_proc(stream)
        handler.received(extproc_messages.request_headers())
        handler.received(extproc_messages.request_body(b'{"model": "m"}', end_of_stream=True))
        picked = endpoint_in(stream.sent[0])
        if whole:
            handler.received(extproc_messages.response_headers(end_of_stream=True))
            handler.half_closed()
        else:
            handler.aborted()
        return picked

    async def second(self, number: int) -> None:
        """A second passes: a pod of one pool is replaced, each pool is asked once."""
        gone = self.churn(self.pools[number % POOLS])
        await asyncio.sleep(1.0)
        for pool in self.pools:
            picked = self.pick(pool, whole=number % 2 == 0)
            assert picked in self.endpoints(pool)
            assert picked != gone


@asynccontextmanager
async def running() -> AsyncIterator[Estate]:
    estate = Estate()
    await estate.worker.open_source()
    await estate.worker.join()
    try:
        estate.worker.apply(estate.share())
        await asyncio.sleep(1.0)
        yield estate
    finally:
        await estate.worker.close()


def gauges(figures: Figures) -> dict[str, object]:
    """What must be the same before and after: figures that are no counters."""
    return {
        "streams_open": figures.streams_open,
        "connections_open": figures.connections_open,
        "strays_waiting": figures.strays_waiting,
        "holds": dict(figures.holds),
        "inflight": {ref: set(counts.values()) for ref, counts in figures.inflight.items()},
        "pools": {ref: len(counts) for ref, counts in figures.inflight.items()},
        "seen": figures.seen,
        "applied": figures.applied,
    }


def tasks() -> Counter[str]:
    """How many tasks there are of each name."""
    return Counter(task.get_name().rstrip("0123456789") for task in asyncio.all_tasks())


def holds(estate: Estate) -> dict[GroupKey, Hold]:
    return dict(estate.worker.holdings.holds())


@quick_hours
async def test_an_hour_without_redis_and_coordinators_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Every pick is a ready pod of its own pool, also at the stand-by; pods that go are not picked
    again; ready all along; and nothing is left over of 3,600 replaced pods and 21,600 requests."""
    caplog.set_level(logging.CRITICAL)  # what is captured would count as kept
    async with running() as estate:
        worker = estate.worker
        estate.server.available = False
        for number in range(WARM):
            await estate.second(number)
        gc.collect()
        before = (holds(estate), tasks(), gauges(worker.figures()), len(gc.get_objects()))
        scraped = sorted(estate.scraper.scraped)
        for number in range(WARM, WARM + HOUR):
            await estate.second(number)
            assert worker.unready() is None
        gc.collect()
        assert holds(estate) == before[0]
        assert tasks() == before[1]
        assert gauges(worker.figures()) == before[2]
        assert sorted(estate.scraper.scraped) == scraped
        assert len(gc.get_objects()) - before[3] < HOUR / 10, "something stays of each second"
        assert len(estate.source.objects(Kind.POD)) == POOLS * PODS
        assert worker.figures().picks["picked"] == POOLS * (HOUR + WARM)
        assert estate.fatal == []


@quick_hours
async def test_after_it_the_fleet_goes_on_where_it_was() -> None:
    """Redis is back, and its share is the one that is held: the worker beats, nothing moves."""
    async with running() as estate:
        held = holds(estate)
        estate.server.available = False
        await asyncio.sleep(HOUR / 6)
        estate.server.available = True
        estate.worker.apply(estate.share())
        await asyncio.sleep(5.0)
        assert holds(estate) == held
        (beat,) = await MemoryStore(estate.clock, estate.server).members()
        assert beat.age_seconds < 1.0
        assert dict(beat.member.holds) == held
