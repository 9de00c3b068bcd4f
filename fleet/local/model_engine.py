"""The simulated inference engine: a queue, a batch, and a service time that follows the load.

It keeps the shape of a real one (requests wait for a place in the batch; a prompt costs time by its
length; every running request makes each token of all a little slower), not its absolute figures.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from fleet.clock import Clock
from fleet.errors import FleetError


class EngineFull(FleetError):
    """The queue is at its bound; the request was not taken."""


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast a simulated server is; seconds and tokens.

    Attributes:
        max_batch: requests that run at once; others wait.
        max_waiting: requests that may wait; more are refused.
        prompt_token_seconds: time to read one token of the prompt.
        token_seconds: time to make one token, for a request that runs alone.
        slowdown_ratio: how much longer a token takes for every other running request.
        kv_tokens: tokens whose state fits into the cache.
    """

    max_batch: int = 16
    max_waiting: int = 1024
    prompt_token_seconds: float = 0.0002
    token_seconds: float = 0.004
    slowdown_ratio: float = 0.05
    kv_tokens: int = 32768


class Engine:
    """One server's engine; used by the tasks of one event loop.

    Attributes:
        finished: requests that ran to their end.
        prompt_tokens, generated_tokens: totals since the start.
    """

    def __init__(self, speed: Speed, clock: Clock) -> None:
        self._speed = speed
        self._clock = clock
        self._places = asyncio.Semaphore(speed.max_batch)
        self._waiting = 0
        self._running = 0
        self._kv_tokens = 0
        self.finished = 0
        self.prompt_tokens = 0
        self.generated_tokens = 0

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return self._waiting

    @property
    def running(self) -> int:
        """Requests in the batch."""
        return self._running

    @property
    def kv_usage(self) -> float:
        """Share of the cache in use, 0..1."""
        return min(1.0, self._kv_tokens / self._speed.kv_tokens)

    @asynccontextmanager
    async def admit(self, prompt_tokens: int, max_tokens: int) -> AsyncIterator[None]:
        """Wait for a place in the batch, read the prompt, and hold the place inside the block.

        Raises:
            EngineFull: too many are waiting already.
        """
        if self._waiting >= self._speed.max_waiting:
            raise EngineFull(f"{self._waiting} requests are waiting already")
        self._waiting += 1
        try:
            await self._places.acquire()
        finally:
            self._waiting -= 1
        need = prompt_tokens + max_tokens
        self._running += 1
        self._kv_tokens += need
        try:
            self.prompt_tokens += prompt_tokens
            await self._clock.sleep(prompt_tokens * self._speed.prompt_token_seconds)
            yield
            self.finished += 1
        finally:
            self._running -= 1
            self._kv_tokens -= need
            self._places.release()

    async def make(self, tokens: int) -> None:
        """Spend the time that `tokens` more tokens take at the present load."""
        slower = 1.0 + self._speed.slowdown_ratio * max(0, self._running - 1)
        await self._clock.sleep(tokens * self._speed.token_seconds * slower)
        self.generated_tokens += tokens
