"""All slots that a pool has: what its stand-bys are told beside requests in flight and metrics."""

from collections.abc import Callable

from epp_worker.scheduling.prefix.budget import Budget
from epp_worker.scheduling.prefix.slot import PREFIX, PrefixSlot
from epp_worker.scheduling.state_slots import NewSlot, StateSlot, seen_tables


def pool_slots(budget: Budget) -> NewSlot:
    """Makes LoRA memory, session affinity and the prefix index.

    Args:
        budget: of all prefix indexes of this worker.
    """

    def new(name: str, now: Callable[[], float]) -> StateSlot | None:
        return PrefixSlot(budget) if name == PREFIX else seen_tables(name, now)

    return new
