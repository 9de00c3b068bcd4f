"""Time is handed in, never read: so that a whole fleet runs in virtual time in tests.

Deadlines and intervals use `monotonic`; `wall` only stamps what people read. No rule of the
fleet compares the wall clocks of two processes.
"""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """A source of time. All values are seconds."""

    def monotonic(self) -> float:
        """Seconds on a clock that never steps; only differences mean anything."""
        ...

    def wall(self) -> float:
        """Seconds since 1970-01-01 UTC, for people and audit records."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`; at once (but yielding) for zero or less."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def monotonic(self) -> float:
        """See `Clock.monotonic`."""
        return time.monotonic()

    def wall(self) -> float:
        """See `Clock.wall`."""
        return time.time()

    async def sleep(self, seconds: float) -> None:
        """See `Clock.sleep`."""
        await asyncio.sleep(max(0.0, seconds))
