"""One figure of the performance table, and how times are taken."""

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """A measured figure.

    Attributes:
        target: what it must not exceed (or reach, if `at_least`); None if it is only told.
    """

    name: str
    value: float
    unit: str
    target: float | None = None
    at_least: bool = False

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None without one."""
        if self.target is None:
            return None
        return self.value >= self.target if self.at_least else self.value <= self.target


def median_ms(work: Callable[[], object], *, runs: int = 7) -> float:
    """Median wall time of `runs` calls after one to warm up, in milliseconds."""
    work()
    times = []
    for _ in range(runs):
        gc.collect()
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e3
