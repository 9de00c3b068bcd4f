"""What opening many groups at once costs the worker that opens them."""

import asyncio
import gc
import random
import time
from collections.abc import Iterator

from coordinator.planning.pacing import MAX_OPENING
from epp_worker.catalogue import Catalogue
from epp_worker.holdings import Holdings
from fleet.model import Hold
from tests.bench.rows import Row
from tests.worker_fakes import (
    FakeScraper,
    FakeSource,
    Tasks,
    entry_of,
    pod_of,
    pool_of,
    settle,
    share_with,
)

ALL = 3000
PODS = 4
RUNS = 5


async def opening_ms(count: int) -> float:
    """How long the loop of a worker that has its pods listed is held by opening `count` groups."""
    source, tasks = FakeSource(), Tasks()
    catalogue = Catalogue(source, tasks.spawn)
    loop = asyncio.get_running_loop()
    holdings = Holdings(
        catalogue,
        FakeScraper(),
        tasks.spawn,
        fleet="f",
        worker="w",
        incarnation="i1",
        quiet_seconds=30.0,
        now=loop.time,
        rng=random.Random(1),
    )
    pools = [pool_of(f"p{number}") for number in range(ALL + 1)]
    for number, pool in enumerate(pools):
        source.put(pool)
        for pod in range(PODS):
            address = f"10.{number >> 8}.{number & 255}.{pod}"
            source.put(pod_of(f"p{number}-{pod}", f"p{number}", address))
    await catalogue.start(holdings.pools_changed)
    await settle()
    first = entry_of(pools[0], Hold.OWNER)
    holdings.apply(share_with(1, first))
    await settle()
    gc.collect()
    gained = (entry_of(pool, Hold.OPENING, "v") for pool in pools[1 : count + 1])
    share = share_with(2, first, *gained)
    began = time.perf_counter()
    holdings.apply(share)
    return (time.perf_counter() - began) * 1e3


def rows() -> Iterator[Row]:
    """A batch, which is what the leader lets a worker open at once, and 3,000 groups, which it
    does not."""
    for count, target in ((MAX_OPENING, 50.0), (ALL, None)):
        times = sorted(asyncio.run(opening_ms(count)) for _ in range(RUNS))
        yield Row(f"a worker opens {count:,} groups at once", times[RUNS // 2], "ms", target)
