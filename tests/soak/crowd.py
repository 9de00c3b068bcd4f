"""Some fake workers in a process of its own, which note when each map reaches them.

    python -m tests.soak.crowd REDIS_URL TOKEN FIRST COUNT OUT.json     (until its stdin ends)

Each beats, reports and looks for its share in the store as often as a real one.
"""

import asyncio
import contextlib
import gc
import sys
import time
from pathlib import Path

import msgspec
import uvloop

from fleet.errors import FleetError
from fleet.model import Share
from fleet.settings.model import RedisSettings
from fleet.store.redis import RedisStore
from tests.fake_worker import FakeWorker

POLL_SECONDS = 1.0
GC_THRESHOLDS = (10_000, 20, 1_000)


class Receipt(msgspec.Struct, array_like=True, frozen=True):
    """One share at one worker; wall time in seconds."""

    worker: str
    epoch: int
    version: int
    at: float


async def _poll(store: RedisStore, worker: str) -> None:
    while True:
        with contextlib.suppress(FleetError):
            await store.share(worker)
        await asyncio.sleep(POLL_SECONDS)


async def _run(url: str, token: str, first: int, count: int) -> list[Receipt]:
    receipts = []

    def applied(share: Share) -> None:
        receipts.append(Receipt(share.worker, *share.version, time.time()))

    stop = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), stop.set)
    stores = [RedisStore(RedisSettings(url), "tests") for _ in range(count)]
    workers = [
        FakeWorker(f"worker-{first + n}", store, token, fleet="tests", applied=applied)
        for n, store in enumerate(stores)
    ]
    polls = []
    for worker, store in zip(workers, stores, strict=True):
        await worker.start()
        polls.append(asyncio.create_task(_poll(store, worker.name)))
        await asyncio.sleep(POLL_SECONDS / count / 2)  # real ones do not beat in step
    # A full collection of what 25 workers have takes 20 to 100 ms, and stops all of them at once; a
    # worker of its own process has a 25th of it. Nothing here makes cycles that grow.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    await stop.wait()
    for poll in polls:
        poll.cancel()
    await asyncio.gather(*polls, return_exceptions=True)
    for worker, store in zip(workers, stores, strict=True):
        await worker.kill()
        await store.close()
    return receipts


def main(url: str, token: str, first: str, count: str, out: str) -> None:
    """Be so many workers until stdin ends; write what they noted."""
    receipts = uvloop.run(_run(url, token, int(first), int(count)))
    Path(out).write_bytes(msgspec.json.encode(receipts))


if __name__ == "__main__":
    main(*sys.argv[1:])
