"""When the clients of many streams stop waiting (`grpc-timeout`), on one entry of the timers.

Streams that expire in the same tick share a bucket, and leave it when they end: what a stream costs
is one look-up, however long its client would have waited.
"""

import heapq
import math
from typing import Final, Protocol

from epp_worker.http2.timers import Loop, Ticket, Timers

TICK_SECONDS: Final = 0.01
"""Nothing expires early; it may expire this much late."""

EXPIRED_PER_TURN: Final = 64

LONGEST_SECONDS: Final = 30 * 86_400.0
"""Who waits longer waits for ever."""


class Expiring(Protocol):
    """Who waits no longer than its client."""

    tick: int
    """Owned by `Deadlines`; starts as 0, which is none."""

    def expired(self) -> None:
        """The time is up."""
        ...


class Deadlines:
    """All of one server, by the loop's clock."""

    __slots__ = ("_buckets", "_loop", "_ticks", "_timers", "ticket")

    def __init__(self, loop: Loop, timers: Timers) -> None:
        self.ticket: Ticket | None = None
        self._loop = loop
        self._timers = timers
        self._buckets: dict[int, dict[Expiring, None]] = {}
        self._ticks: list[int] = []

    def add(self, waiting: Expiring, seconds: float) -> None:
        """Tell `waiting` once this time has passed, unless it is dropped before."""
        if seconds > LONGEST_SECONDS:
            return
        tick = math.ceil((self._loop.time() + seconds) / TICK_SECONDS)
        waiting.tick = tick
        bucket = self._buckets.get(tick)
        if bucket is None:
            bucket = self._buckets[tick] = {}
            heapq.heappush(self._ticks, tick)
            self._timers.at(tick * TICK_SECONDS, self)
        bucket[waiting] = None

    def drop(self, waiting: Expiring) -> None:
        """It waits no more."""
        tick, waiting.tick = waiting.tick, 0
        bucket = self._buckets.get(tick)
        if bucket is not None:
            bucket.pop(waiting, None)

    def check(self, now: float) -> float | None:
        """Tell those whose time has passed, some at a time."""
        told = 0
        while self._ticks and self._ticks[0] * TICK_SECONDS <= now:
            bucket = self._buckets[self._ticks[0]]
            while bucket:
                if told == EXPIRED_PER_TURN:
                    return now
                told += 1
                waiting = next(iter(bucket))
                del bucket[waiting]
                waiting.tick = 0
                waiting.expired()
            del self._buckets[heapq.heappop(self._ticks)]
        return self._ticks[0] * TICK_SECONDS if self._ticks else None

    def __len__(self) -> int:
        return sum(map(len, self._buckets.values()))
