"""What a placement is asked and what it answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fleet.model import GroupKey, Reason, RingSpec
from fleet.model.pins import Pin


@dataclass(frozen=True, slots=True)
class Candidate:
    """A live worker.

    Attributes:
        weight: its share of the groups relative to others, 1 or more.
        zone, node: where it runs; empty if unknown.
        accepts: False while it drains: it is given groups only if nobody else is left.
        preferred: it runs the release that is being rolled out, see `Conditions.rolling`.
    """

    id: str
    weight: int = 1
    zone: str = ""
    node: str = ""
    accepts: bool = True
    preferred: bool = False


@dataclass(frozen=True, slots=True)
class Current:
    """Where a group is now; None where nobody is."""

    owner: str | None
    standby: str | None


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a placement has to respect besides loads. Without any, all is allowed.

    Attributes:
        rolling: a release is being rolled out. Nothing moves for balance or to newcomers: what a
            newcomer took now from an old worker would leave it no room for the groups of the one
            that goes next, which then move twice. Groups that must move go to `preferred` workers
            with room.
        balance: how many groups may move for balance alone; None = as many as it takes.
        pins: where groups must be; a pin that no accepting worker meets is as good as none.
        quarantined: groups that stay where they are, without a stand-by, and whose workers are
            given nothing new as long as there are others.
        resting: quarantined groups that nobody is given at present.
        receiving: workers that are taking over groups at this moment; the last choice for a
            quarantined group.
    """

    rolling: bool = False
    balance: int | None = None
    pins: Mapping[GroupKey, Pin] = field(default_factory=dict)
    quarantined: frozenset[GroupKey] = frozenset()
    resting: frozenset[GroupKey] = frozenset()
    receiving: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Decision:
    """Where a group shall be.

    Both are None without candidates and for a group that rests; the stand-by also with only one
    candidate and for a quarantined group.

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
