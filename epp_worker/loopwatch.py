"""How the serving loop is doing: how late it runs its timers, and how much of a core it uses."""

import asyncio
import time
from collections.abc import Callable

from fleet.clock import Clock
from fleet.telemetry import LoopLag

TICK_SECONDS = 0.05
_BUSY_SECONDS = 1.0
_PEAK_SECONDS = 5.0


class LoopWatch:
    """Reads are free; one timer keeps the figures.

    Attributes:
        busy_ratio: CPU seconds of the loop's thread per second, over about the last second.
    """

    def __init__(
        self, clock: Clock, thread_seconds: Callable[[], float] = time.thread_time
    ) -> None:
        self._clock = clock
        self._lag = LoopLag(clock, interval_seconds=TICK_SECONDS)
        self._thread_seconds = thread_seconds
        self._peak = 0.0
        self._older_peak = 0.0
        self._peak_since = clock.monotonic()
        self.busy_ratio = 0.0

    def lag_seconds(self) -> float:
        """How late a timer runs now."""
        return self._lag.value

    def peak_lag_seconds(self) -> float:
        """The worst of the last 5 to 10 seconds, the present included."""
        return max(self._peak, self._older_peak, self._lag.value)

    def tick(self) -> None:
        """The timer fired."""
        self._lag.tick()
        self._peak = max(self._peak, self._lag.value)
        now = self._clock.monotonic()
        if now - self._peak_since >= _PEAK_SECONDS:
            self._older_peak, self._peak, self._peak_since = self._peak, 0.0, now

    async def run(self) -> None:
        """Tick until cancelled."""
        since, used = self._clock.monotonic(), self._thread_seconds()
        while True:
            self.tick()
            await asyncio.sleep(TICK_SECONDS)
            now = self._clock.monotonic()
            if now - since >= _BUSY_SECONDS:
                fresh = self._thread_seconds()
                self.busy_ratio = (fresh - used) / (now - since)
                since, used = now, fresh
