"""The loop's lag and how busy it is."""

import asyncio

import pytest

from epp_worker.loopwatch import TICK_SECONDS, LoopWatch


class Hands:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_the_worst_lag_is_remembered_for_a_while() -> None:
    """A stall of 0.3 s shows for 5 to 10 s, then no more."""
    clock = Hands()
    watch = LoopWatch(clock, lambda: 0.0)
    for late in (0.0, 0.3, 0.0):
        watch.tick()
        clock.now += TICK_SECONDS + late
    watch.tick()
    assert watch.peak_lag_seconds() == pytest.approx(0.3)
    assert watch.lag_seconds() == pytest.approx(0.0)
    for _ in range(round(4.0 / TICK_SECONDS)):
        clock.now += TICK_SECONDS
        watch.tick()
    assert watch.peak_lag_seconds() == pytest.approx(0.3)
    for _ in range(round(8.0 / TICK_SECONDS)):
        clock.now += TICK_SECONDS
        watch.tick()
    assert watch.peak_lag_seconds() == pytest.approx(0.0, abs=1e-6)


class LoopTime(Hands):
    """The virtual clock of the running loop."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


@pytest.mark.looptime
async def test_busy_is_cpu_time_per_second() -> None:
    """The thread used 0.4 s of CPU in about one second."""
    used = iter((10.0, 10.4))
    watch = LoopWatch(LoopTime(), lambda: next(used))
    task = asyncio.create_task(watch.run())
    await asyncio.sleep(1.1)
    task.cancel()
    assert watch.busy_ratio == pytest.approx(0.4, abs=0.03)
