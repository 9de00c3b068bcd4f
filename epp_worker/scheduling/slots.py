"""All slots that a pool has: what its stand-bys are told beside requests in flight and metrics."""

from collections.abc import Callable, Iterable

from epp_worker.scheduling.prefix.budget import Budget
from epp_worker.scheduling.prefix.figures import FiguresByName, PrefixPage
from epp_worker.scheduling.prefix.slot import PREFIX, PrefixSlot
from epp_worker.scheduling.state_slots import StateSlot, seen_tables
from fleet.model.identity import PoolRef


class PoolSlots:
    """Makes LoRA memory, session affinity and the prefix index; a `NewSlot`.

    Args:
        budget: of all prefix indexes of this worker.
    """

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._found = FiguresByName()

    def __call__(self, name: str, now: Callable[[], float]) -> StateSlot | None:
        """See `NewSlot`."""
        if name == PREFIX:
            return PrefixSlot(self._budget, self._found)
        return seen_tables(name, now)

    def prefixes(self, pools: Iterable[tuple[PoolRef, StateSlot | None]]) -> PrefixPage:
        """What the prefix indexes of these pools hold, and what all of them found.

        Args:
            pools: each with its slot `PREFIX`, if it has one.
        """
        blocks = {ref: len(slot.index) for ref, slot in pools if isinstance(slot, PrefixSlot)}
        return PrefixPage(blocks, self._budget.used, dict(self._found))
