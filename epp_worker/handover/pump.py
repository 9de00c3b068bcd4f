"""Sends what one peer is owed, as fast as it takes it, without keeping the loop."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from epp_worker.handover.counts import StreamCounts
from epp_worker.handover.outbox import Outbox
from epp_worker.handover.publisher import Publisher
from fleet.control.state_messages import Feed, Follow, encode_state


async def pump(
    outbox: Outbox,
    publisher: Publisher,
    wake: asyncio.Event,
    write: Callable[[bytes], Awaitable[Any]],
    counts: StreamCounts,
    wishes: Callable[[], Follow | None] = lambda: None,
) -> None:
    """Send until the stream ends.

    Args:
        wake: set whenever there is something to send.
        write: returns once the message is on its way; so a slow peer slows only this.
        wishes: takes what this side wants to follow; goes first.
    """
    while True:
        await wake.wait()
        wake.clear()
        while True:
            wish = wishes()
            feed = await _chunk(outbox, publisher)
            if wish is None and feed is None:
                break
            if wish is not None:
                await write(encode_state(wish))
            if feed is not None:
                data = encode_state(feed)
                counts.sent_bytes += len(data)
                await write(data)


async def _chunk(outbox: Outbox, publisher: Publisher) -> Feed | None:
    """The next message; of all snapshots' chunks for anybody, one is made in a turn of the loop."""
    if not outbox.owes():
        return outbox.next(publisher)
    async with publisher.turnstile:
        feed = outbox.next(publisher)
        if feed is not None:
            await asyncio.sleep(0)
    return feed


async def together(*parts: Awaitable[None]) -> None:
    """Run the directions of one call until either ends, or the call breaks.

    Raises:
        FormatError, or any fault of our own: as met; an end or a break of the call is neither.
    """
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception) and not is_broken(result):
            raise result


def is_broken(error: BaseException) -> bool:
    """Whether this is how gRPC says that a call is over."""
    return isinstance(error, grpc.RpcError | grpc.aio.UsageError | asyncio.InvalidStateError)
