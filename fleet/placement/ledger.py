"""Who carries how much, while a plan is made."""

import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence
from heapq import nlargest
from math import fsum

from fleet.placement.facts import Candidate


def fair_level(loads: Collection[float], weights: Collection[int]) -> float:
    """The load per weight if all were equally full, as far as whole groups allow.

    A group that is more than a worker's fair share fills that one, and the rest is shared by the
    others. So what one busy group does to itself does not move the bounds of all others.
    """
    total, weight = fsum(loads), float(sum(weights))
    usual = weight / len(weights)
    level = total / weight
    if max(loads, default=0.0) <= level * usual:
        return level
    for load in nlargest(len(weights) - 1, loads):
        if load <= level * usual:
            break
        total -= load
        weight -= usual
        level = max(0.0, total / weight)
    return level


class Ledger:
    """Loads of the workers that may own groups, and the cap that bounds them.

    A worker's load relative to its weight is called its level.

    Attributes:
        mean: the level if all were as equally full as can be, see `fair_level`.
        cap: the highest level wanted.
        full: the level up to which the ring's order decides, above it the emptiest is taken; half
            way to the cap, so that there is room left for the next change.
    """

    def __init__(self, workers: Sequence[Candidate], cap: float, mean: float) -> None:
        self.weights = {worker.id: worker.weight for worker in workers}
        self.cap = cap
        self.mean = mean
        self.full = (mean + cap) / 2
        self._loads = dict.fromkeys(self.weights, 0.0)
        self._emptiest: list[tuple[float, str]] = []

    def start(self, loads: Mapping[str, Iterable[float]]) -> None:
        """Set what each worker carries at first, summed exactly, whatever the order of groups."""
        for worker, carried in loads.items():
            self._loads[worker] = fsum(carried)
        self._emptiest = [(self.level(worker), worker) for worker in self._loads]
        heapq.heapify(self._emptiest)

    def level(self, worker: str, extra: float = 0.0) -> float:
        """Load per weight of `worker`, with `extra` load on top."""
        return (self._loads[worker] + extra) / self.weights[worker]

    def excess(self, worker: str) -> float:
        """How much more than the cap `worker` carries; zero or less if it does not."""
        return self._loads[worker] - self.cap * self.weights[worker]

    def over(self, worker: str) -> bool:
        """Whether `worker` carries more than the cap, rounding errors aside."""
        return self.level(worker) > self.cap * (1 + 1e-9)

    def fits(self, worker: str, load: float, level: float | None = None) -> bool:
        """Whether `worker` may take `load` and stay at or below `level` (the cap)."""
        return self.level(worker, load) <= (self.cap if level is None else level)

    def give(self, worker: str, load: float) -> None:
        """`worker` takes `load`."""
        self._loads[worker] += load

    def take(self, worker: str, load: float) -> None:
        """`worker` gives `load` away."""
        self._loads[worker] -= load
        heapq.heappush(self._emptiest, (self.level(worker), worker))

    def emptiest(self, among: Iterable[str] | None = None) -> str:
        """The worker at the lowest level, of all or of some (at least one); by id among equals."""
        if among is not None:
            return min(among, key=lambda worker: (self.level(worker), worker))
        # A heap entry may be older than the level it shows. Levels that fell got a new entry, so
        # an outdated one is too low and sinks to where it belongs.
        heap = self._emptiest
        while True:
            shown, worker = heap[0]
            level = self.level(worker)
            if shown == level:
                return worker
            if shown < level:
                heapq.heapreplace(heap, (level, worker))
            else:
                heapq.heappop(heap)
