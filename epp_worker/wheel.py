"""Deadlines of many streams on one timer.

A stream may wait for at most two things here (a body that never comes, a group that is not held
yet), each for a fixed time. Entries of one lane therefore expire in the order they came: a lane is
a queue, adding costs an append, and nobody is ever removed. An entry that no longer waits says so
itself when its time comes.
"""

import asyncio
from collections import deque
from collections.abc import Callable

TICK_SECONDS = 0.01
"""Nothing expires early; it may expire this much late, so that bursts share a wake-up."""

Expiry = Callable[[], None]


class Lane:
    """Entries that all wait equally long."""

    __slots__ = ("_entries", "_wheel", "seconds")

    def __init__(self, wheel: "Wheel", seconds: float) -> None:
        self._wheel = wheel
        self.seconds = seconds
        self._entries: deque[tuple[float, Expiry]] = deque()

    def add(self, expired: Expiry) -> None:
        """Call `expired` once this lane's time has passed. It must not raise."""
        deadline = self.now() + self.seconds
        self._entries.append((deadline, expired))
        self._wheel.arm(deadline)

    def now(self) -> float:
        """The wheel's clock, in seconds."""
        return self._wheel.now()

    def next_deadline(self) -> float | None:
        """When the oldest entry is due."""
        return self._entries[0][0] if self._entries else None

    def run(self, now: float) -> None:
        """Call everything that is due at `now`."""
        entries = self._entries
        while entries and entries[0][0] <= now:
            entries.popleft()[1]()

    def __len__(self) -> int:
        return len(self._entries)


class Wheel:
    """All lanes of a worker and the one timer that serves them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lanes: list[Lane] = []
        self._timer: asyncio.TimerHandle | None = None

    def lane(self, seconds: float) -> Lane:
        """A new lane whose entries wait `seconds`."""
        lane = Lane(self, seconds)
        self._lanes.append(lane)
        return lane

    def now(self) -> float:
        """The loop's clock, in seconds."""
        return self._loop.time()

    def arm(self, deadline: float) -> None:
        """Make sure that the timer runs soon after `deadline`."""
        timer = self._timer
        if timer is None or timer.when() > deadline + TICK_SECONDS:
            if timer is not None:
                timer.cancel()
            self._timer = self._loop.call_at(deadline + TICK_SECONDS, self._run)

    def _run(self) -> None:
        self._timer = None
        now = self._loop.time()
        for lane in self._lanes:
            lane.run(now)
        deadlines = [due for lane in self._lanes if (due := lane.next_deadline()) is not None]
        if deadlines:
            self.arm(min(deadlines))

    def close(self) -> None:
        """Forget every entry."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._lanes.clear()
