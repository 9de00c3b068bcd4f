"""What followers cost their owner: CPU and bytes per pick, snapshots, and groups at rest."""

import asyncio
import gc
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from epp_worker.handover.outbox import Outbox
from epp_worker.handover.publisher import BATCH_SECONDS
from fleet.control.state_messages import encode_state
from fleet.model import GroupKey, Hold
from tests.bench.rows import Row
from tests.prefix_standin import ENDPOINTS, NAME, full
from tests.state_fleet import Fleet, fleet_of, write_pool
from tests.state_pools import Estate
from tests.worker_inprocess import until

PICKS = 20_000
A, B = "worker-a", "worker-b"


def _cpu(work: Callable[[], object]) -> float:
    """Best CPU of five runs, in seconds."""
    best = float("inf")
    for _ in range(5):
        gc.collect()
        began = time.process_time()
        work()
        best = min(best, time.process_time() - began)
    return best


class _Load:
    """Picks on groups whose followers take everything at each batch."""

    def __init__(self, groups: int, followers: int) -> None:
        self.estate = Estate()
        self.keys = [self.estate.add(f"pool-{n}", ENDPOINTS) for n in range(groups)]
        for key in self.keys:
            for state in self.estate.pool(key).endpoints():
                state.scraped(waiting=1.0, running=2.0, kv=0.25, at=990.0, inflight=0)
        self.outboxes = [self.estate.outbox() for _ in range(followers)]
        for outbox in self.outboxes:
            for key in self.keys:
                self.estate.publisher.add(outbox, key)
            self._take(outbox)
        self.bytes = 0

    def _take(self, outbox: Outbox) -> int:
        return sum(len(encode_state(feed)) for feed in self.estate.sent(outbox))

    def run(self, picks: int, a_batch: int) -> None:
        """Picks, each released at once; a batch of 50 ms ends after each `a_batch` of them."""
        keys: list[GroupKey] = self.keys
        self.bytes = 0
        for start in range(0, picks, a_batch):
            for number in range(start, start + a_batch):
                self.estate.pick(keys[number % len(keys)]).release()
            self.estate.time.move(BATCH_SECONDS)
            self.bytes += sum(map(self._take, self.outboxes))


def _picks() -> Iterator[Row]:
    alone = _Load(50, 0)
    yield Row("state: pick, nobody follows", _cpu(lambda: alone.run(PICKS, 50)) / PICKS * 1e6, "us")
    for what, groups, a_batch in (
        ("1,000 picks/s on one pool", 1, 50),
        ("1,000 picks/s on 50 pools", 50, 50),
        ("1 pick a batch", 50, 1),
    ):
        load = _Load(groups, 1)
        seconds = _cpu(lambda load=load, a_batch=a_batch: load.run(PICKS, a_batch))  # type: ignore[misc]
        yield Row(f"state: pick, one follower, {what}", seconds / PICKS * 1e6, "us")
        yield Row(f"state: bytes, one follower, {what}", load.bytes / PICKS, "B/pick")


def _snapshot() -> Iterator[Row]:
    estate = Estate()
    key = estate.add("pool", ENDPOINTS)
    estate.pool(key).slots[NAME] = full()
    outbox = estate.outbox()
    estate.publisher.add(outbox, key)
    chunks = []
    while True:
        began = time.process_time()
        feed = outbox.next(estate.publisher)
        if feed is None:
            break
        encode_state(feed)
        chunks.append(time.process_time() - began)
    yield Row("state: prefix index, longest chunk", max(chunks) * 1e3, "ms", 5)
    yield Row("state: prefix index, whole snapshot", sum(chunks) * 1e3, "ms")


def _idle() -> Iterator[Row]:
    estate = Estate()
    keys = [estate.add(f"pool-{n}", 4) for n in range(10_000)]
    outbox = estate.outbox()
    began = time.process_time()
    for key in keys:
        estate.publisher.add(outbox, key)
    feeds = [encode_state(feed) for feed in estate.sent(outbox)]
    yield Row("state: 10,000 idle groups, snapshots", (time.process_time() - began) * 1e3, "ms")
    yield Row("state: 10,000 idle groups, bytes", sum(map(len, feeds)) / 1e6, "MB")
    yield Row("state: 10,000 idle groups, timers at rest", len(estate.time.due), "", 0)


async def _streamed(fleet: Fleet, messages: int) -> float:
    """CPU seconds of both workers and gRPC for so many messages, one endpoint changed in each."""
    endpoint = fleet.endpoint(A, 1)
    told, came = fleet.endpoint(B, 1), asyncio.Event()
    told.touched = lambda _: came.set()
    publisher = fleet.running[A].worker._state._publisher
    began = time.process_time()
    for _ in range(messages):
        endpoint.inflight += 1
        if endpoint.touched is not None:
            endpoint.touched(endpoint)
        publisher.flush()
        await came.wait()
        came.clear()
    return time.process_time() - began


async def _over_grpc() -> float:
    with tempfile.TemporaryDirectory() as folder:
        write_pool(Path(folder) / "m", "pool-a", ENDPOINTS)
        async with fleet_of(Path(folder) / "m", A, B) as fleet:
            fleet.hold(A, Hold.OWNER, A, "pool-a")
            fleet.hold(B, Hold.STANDBY, A, "pool-a")
            await until(lambda: fleet.group(A).serving and fleet.group(B).serving, "served")
            applied = fleet.running[B].worker.figures
            await until(lambda: applied().state.snapshots_applied > 0, "snapshot")
            await _streamed(fleet, 200)
            return await _streamed(fleet, 1000) / 1000


def rows() -> Iterator[Row]:
    """All figures of this room."""
    yield from _picks()
    yield from _snapshot()
    yield from _idle()
    yield Row("state: a message over gRPC, both sides", asyncio.run(_over_grpc()) * 1e6, "us")
