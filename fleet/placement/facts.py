"""What a placement is asked and what it answers."""

from collections.abc import Mapping
from dataclasses import dataclass

from fleet.model import GroupKey, Reason, RingSpec


@dataclass(frozen=True, slots=True)
class Candidate:
    """A live worker.

    Attributes:
        weight: its share of the groups relative to others, 1 or more.
        zone, node: where it runs; empty if unknown.
        accepts: False while it drains: it is given groups only if nobody else is left.
    """

    id: str
    weight: int = 1
    zone: str = ""
    node: str = ""
    accepts: bool = True


@dataclass(frozen=True, slots=True)
class Current:
    """Where a group is now; None where nobody is."""

    owner: str | None
    standby: str | None


@dataclass(frozen=True, slots=True)
class Decision:
    """Where a group shall be. Both are None without candidates, the stand-by with only one.

    Attributes:
        reason: why the owner is not the current one; `KEPT` if it is.
    """

    owner: str | None
    standby: str | None
    reason: Reason


@dataclass(frozen=True, slots=True)
class Plan:
    """A decision for every group.

    Attributes:
        cap: the load that a worker of weight 1 may carry; hand it to the next placement.
        ring: the ring that gave the order; hand its `Ring` to the next placement.
    """

    decisions: Mapping[GroupKey, Decision]
    cap: float
    ring: RingSpec
