"""From what is and what should be to the next shard map. Pure: no I/O, no clock."""

from coordinator.planning.facts import (
    NO_BACKLOG,
    Backlog,
    Change,
    Held,
    Next,
    Peer,
    Pending,
    Situation,
    Target,
    TargetOf,
    Told,
)
from coordinator.planning.quarantine import Loss, Quarantine
from coordinator.planning.shares import rebuild, shares_of
from coordinator.planning.transitions import heir, holder, plan, survivors

__all__ = [
    "NO_BACKLOG",
    "Backlog",
    "Change",
    "Held",
    "Loss",
    "Next",
    "Peer",
    "Pending",
    "Quarantine",
    "Situation",
    "Target",
    "TargetOf",
    "Told",
    "heir",
    "holder",
    "plan",
    "rebuild",
    "shares_of",
    "survivors",
]
