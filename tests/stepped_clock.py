"""A clock that stands still until a test steps it: sleepers wake in order."""

import asyncio
import time


class SteppedClock:
    """`fleet.clock.Clock` for tests; `step` moves it and lets what slept do its work."""

    def __init__(self) -> None:
        self._now = 1000.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []
        self._asleep = asyncio.Event()

    def monotonic(self) -> float:
        return self._now

    def wall(self) -> float:
        """The machine's, so that it fits the times of files."""
        return time.time()

    async def sleep(self, seconds: float) -> None:
        future = asyncio.get_running_loop().create_future()
        self._sleepers.append((self._now + seconds, future))
        self._asleep.set()
        await future

    async def settle(self) -> None:
        """Return once something sleeps on this clock again."""
        async with asyncio.timeout(10):
            await self._asleep.wait()

    async def step(self, seconds: float) -> None:
        """Move on, wake who is due, and wait until somebody sleeps again."""
        await self.settle()
        self._now += seconds
        due = [each for each in self._sleepers if each[0] <= self._now]
        self._sleepers = [each for each in self._sleepers if each[0] > self._now]
        if due:
            self._asleep.clear()
        for _, future in sorted(due, key=lambda each: each[0]):
            if not future.done():
                future.set_result(None)
        await self.settle()
