"""A histogram of plain numbers: its owner counts without a lock, a scrape reads."""

from bisect import bisect_left
from collections.abc import Sequence

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Of what takes milliseconds when all is well."""
LONG_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0)
"""Of what waits for others."""


class Histogram:
    """Counts by upper bound; the last one is of what lies above all bounds."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float] = SECONDS) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """One more."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def __len__(self) -> int:
        return sum(self.counts)

    def buckets(self) -> list[tuple[str, float]]:
        """How many lie at or below each bound, as Prometheus wants them."""
        found: list[tuple[str, float]] = []
        below = 0
        names = (*(str(float(bound)) for bound in self.bounds), "+Inf")
        for name, count in zip(names, self.counts, strict=True):
            below += count
            found.append((name, below))
        return found
