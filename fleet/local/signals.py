"""SIGINT and SIGTERM: asked once to stop, we stop once, in order, whatever we were doing."""

import asyncio
import os
import signal
from collections.abc import Coroutine
from types import FrameType
from typing import Any, TypeVar

Result = TypeVar("Result")
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def stop_quietly_until_running() -> None:
    """Before anything runs, a stop signal simply ends the process with 0.

    At once, not by an exception: raised while Python runs a callback of its own (imports have such)
    it would be printed and forgotten, and we would go on. There is nothing to clean up yet.
    """

    def leave(number: int, frame: FrameType | None) -> None:
        os._exit(0)

    for number in STOP_SIGNALS:
        signal.signal(number, leave)


async def until_stopped(work: Coroutine[Any, Any, Result]) -> Result | None:
    """Run `work`; the first stop signal cancels it and further ones change nothing, ever.

    The handlers stay: the loop's own ones would end with the loop, and a second signal in the
    process's last moments would kill it.

    Returns:
        Its result, or None if it was stopped.
    """
    task = asyncio.ensure_future(work)
    stopped = False

    def stop() -> None:
        nonlocal stopped
        if not stopped:
            stopped = True
            task.cancel()

    loop = asyncio.get_running_loop()

    def handle(number: int, frame: FrameType | None) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(stop)  # wakes the loop, too

    for number in STOP_SIGNALS:
        signal.signal(number, handle)
    try:
        return await task
    except asyncio.CancelledError:
        if stopped:
            return None
        raise
