"""How long a published map takes to each worker that it concerns. Pure: times are handed in."""

from collections import deque
from collections.abc import Collection, Iterable

from fleet.metrics import Histogram
from fleet.metrics.histogram import LONG_SECONDS, SECONDS
from fleet.model import EpochVersion

MOST_OPEN = 64
"""Maps that a worker has not acknowledged, of which it is remembered when they were published: one
that is away for longer counts from the oldest of these."""


class Propagation:
    """From the begin of a publication to the report that a worker has applied its share of it."""

    def __init__(self) -> None:
        self.seconds = Histogram(sorted({*SECONDS, *LONG_SECONDS}))
        self._open: dict[str, deque[tuple[EpochVersion, float]]] = {}

    def published(self, version: EpochVersion, workers: Iterable[str], began: float) -> None:
        """A map with new shares for these workers, begun to be published at monotonic `began`."""
        for worker in workers:
            waiting = self._open.setdefault(worker, deque())
            if len(waiting) < MOST_OPEN:
                waiting.append((version, began))

    def acknowledged(self, worker: str, version: EpochVersion, now: float) -> None:
        """A worker reports that it has applied this version."""
        waiting = self._open.get(worker)
        if not waiting:
            return
        while waiting and waiting[0][0] <= version:
            self.seconds.observe(max(0.0, now - waiting.popleft()[1]))

    def keep(self, workers: Collection[str]) -> None:
        """Forget whoever is not among these: the dead acknowledge nothing."""
        for gone in [worker for worker in self._open if worker not in workers]:
            del self._open[gone]

    def rest(self) -> None:
        """The term is over."""
        self._open.clear()
