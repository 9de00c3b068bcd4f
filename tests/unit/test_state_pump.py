"""Sending without keeping the loop: other work runs between any two chunks of snapshots."""

import asyncio

from epp_worker.handover.pump import pump
from tests.prefix_standin import ENDPOINTS, NAME, full
from tests.state_pools import Estate


async def test_one_chunk_a_loop_turn_whoever_follows() -> None:
    """Three workers begin to follow a pool with a full prefix index at once. In no turn of the
    loop is more than one chunk made: whatever else is ready (picks) waits for one at most."""
    estate = Estate()
    key = estate.add("a", ENDPOINTS)
    estate.pool(key).slots[NAME] = full()
    turn = 0
    made: list[int] = []
    pumps = []

    async def count_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    async def write(_: bytes) -> None:
        made.append(turn)

    ticker = asyncio.create_task(count_turns())
    for _ in range(3):
        outbox, wake = estate.outbox(), asyncio.Event()
        estate.publisher.add(outbox, key)
        wake.set()
        work = pump(outbox, estate.publisher, wake, write, estate.counts)
        pumps.append(asyncio.create_task(work))
    async with asyncio.timeout(30):
        while estate.counts.sent_bytes < 3 * 2_000_000:
            await asyncio.sleep(0.001)
    for task in (ticker, *pumps):
        task.cancel()
    await asyncio.gather(ticker, *pumps, return_exceptions=True)
    assert len(made) > 180
    assert len(set(made)) == len(made)
