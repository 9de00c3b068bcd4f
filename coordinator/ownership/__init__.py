"""Which pools this fleet serves, through which Services, and what it says to the others."""

from coordinator.ownership.decide import Ownership, decide
from coordinator.ownership.facts import (
    Claimed,
    Decision,
    NotOurs,
    Refusal,
    RefusalReason,
    Refused,
    Role,
    ServedBy,
    ServiceKey,
    ServiceState,
    SliceWriter,
    World,
)

__all__ = [
    "Claimed",
    "Decision",
    "NotOurs",
    "Ownership",
    "Refusal",
    "RefusalReason",
    "Refused",
    "Role",
    "ServedBy",
    "ServiceKey",
    "ServiceState",
    "SliceWriter",
    "World",
    "decide",
]
