"""One timer for all connections of a server.

Each connection has one ticket in a heap, and one `call_at` of the loop stands for the earliest:
thousands of silent connections cost a few heap operations a minute.
"""

import heapq
import itertools
import math
from collections.abc import Callable
from typing import Final, Protocol

CHECKED_PER_TURN: Final = 64
"""Thousands of connections may become due, and be closed, at the same moment."""


class Cancellable(Protocol):
    """What `call_at` returns."""

    def cancel(self) -> None:
        """Never call it."""
        ...


class Loop(Protocol):
    """The part of an event loop that the transport uses."""

    def time(self) -> float:
        """Seconds, monotonic."""
        ...

    def call_soon(self, callback: Callable[..., object], *args: object) -> object:
        """Call after this turn."""
        ...

    def call_at(self, when: float, callback: Callable[..., object]) -> Cancellable:
        """Call at that time."""
        ...


class Ticket:
    """One promise to look at something; void once its holder has another one or none."""

    __slots__ = ("holder", "when")

    def __init__(self, when: float, holder: "Timed") -> None:
        self.when = when
        self.holder: Timed | None = holder


class Timed(Protocol):
    """Something that wants to be looked at later."""

    ticket: Ticket | None
    """Owned by `Timers`; starts as None."""

    def check(self, now: float) -> float | None:
        """Do what is due; the next due time, or None for no more."""
        ...


class Timers:
    """Due times by the loop's clock, in seconds."""

    __slots__ = ("_handle", "_heap", "_loop", "_order")

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._heap: list[tuple[float, int, Ticket]] = []
        self._order = itertools.count()
        self._handle: Cancellable | None = None

    def at(self, when: float, item: Timed) -> None:
        """Have `item` checked at `when` at the latest."""
        if item.ticket is not None:
            if item.ticket.when <= when:
                return
            self.forget(item)
        item.ticket = Ticket(when, item)
        heapq.heappush(self._heap, (when, next(self._order), item.ticket))
        if self._heap[0][2] is item.ticket:
            self._arm()

    def forget(self, item: Timed) -> None:
        """Never look at `item` again; the heap keeps no reference to it."""
        if item.ticket is not None:
            item.ticket.holder = None
            item.ticket = None

    def close(self) -> None:
        """Stop for good."""
        self._heap.clear()
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _arm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._handle = self._loop.call_at(self._heap[0][0], self._run) if self._heap else None

    def _run(self) -> None:
        self._handle = None
        now = self._loop.time()
        for _ in range(CHECKED_PER_TURN):
            if not self._heap or self._heap[0][0] > now:
                break
            ticket = heapq.heappop(self._heap)[2]
            item = ticket.holder
            if item is None:
                continue
            item.ticket = None
            following = item.check(now)
            if following is not None:
                self.at(max(following, math.nextafter(now, math.inf)), item)
        self._arm()
