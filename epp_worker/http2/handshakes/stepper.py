"""A thread that takes steps for the loop."""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final, Generic, Protocol, TypeVar

_LAST_STEP_SECONDS: Final = 5.0
"""A step takes 0.3 ms; this is for machines that stand still."""


class Stepping(Protocol):
    """What can be stepped."""

    def step(self) -> None:
        """Take a step, and keep what became of it. Raises nothing."""
        ...


Item = TypeVar("Item", bound=Stepping)


class Stepper(Generic[Item]):
    """Takes items one after the other, and tells the loop of each.

    Args:
        took: called on the loop, after each item's step.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, took: Callable[[Item], None]) -> None:
        self._loop = loop
        self._took = took
        self._queue: SimpleQueue[Item | None] = SimpleQueue()
        self._stepped: deque[Item] = deque()
        self._telling = False
        self._thread: threading.Thread | None = None

    def submit(self, item: Item) -> None:
        """Have a step taken; the thread begins with the first of all."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="tls-handshakes", daemon=True)
            self._thread.start()
        self._queue.put(item)

    def close(self) -> None:
        """Take the steps that were asked for, tell of none, and end."""
        self._took = _nobody
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(_LAST_STEP_SECONDS)

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            item.step()
            self._stepped.append(item)
            if not self._telling:
                self._telling = True
                with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left
                    self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        self._telling = False  # before looking: what is appended from now on is told again
        for _ in range(len(self._stepped)):
            self._took(self._stepped.popleft())


def _nobody(item: object) -> None:
    """Nobody listens any more."""
