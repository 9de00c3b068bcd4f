"""The facts behind "why this worker and not that one", from what a replica knows. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fleet.model import (
    GroupKey,
    MemberState,
    MemberStatus,
    Phase,
    Placement,
    RingSpec,
    ShardMap,
)
from fleet.model.pins import Pin
from fleet.placement import Candidate
from fleet.placement.considering import Asked, Considered, Contender, Rules, loads_by_worker
from fleet.ring import HASH, Ring

MAX_WEIGHT = 100
"""Of a worker on the ring; a member that says more is taken for this."""


@dataclass(frozen=True, slots=True)
class Weighed:
    """What only the leader knows of its last placement.

    Attributes:
        rates: streams per second by group.
        cap: the load that a worker of weight 1 may carry.
        release: the version that is being rolled out, or None.
    """

    rates: Mapping[GroupKey, float]
    cap: float | None
    release: str | None


def ring_of(members: Sequence[MemberStatus], vnodes: int) -> RingSpec:
    """The ring of everybody, dead and draining ones too."""
    weights = {each.member.id: _weight(each) for each in members}
    return RingSpec(HASH, vnodes, weights)


def candidates(ring: Ring, group: GroupKey, members: Sequence[MemberStatus], n: int) -> list[str]:
    """The first `n` of those that may be given groups, in the ring's order."""
    fit = {
        each.member.id for each in members if each.state in (MemberState.ALIVE, MemberState.SUSPECT)
    }
    return [name for name in ring.walk(group) if name in fit][:n]


class Considering:
    """One map and its workers, for all groups of a pool."""

    def __init__(
        self,
        shard_map: ShardMap,
        members: Sequence[MemberStatus],
        pins: Mapping[GroupKey, Pin],
        weighed: Weighed | None,
    ) -> None:
        placements = shard_map.placements
        self._placements, self._pins, self._weighed = placements, pins, weighed
        tainted = {
            owner
            for placement in placements.values()
            if placement.phase is Phase.QUARANTINED
            for owner in placement.owners
        }
        carried = _carried(placements, weighed)
        release = None if weighed is None else weighed.release
        contenders = [
            Contender(
                Candidate(
                    each.member.id,
                    _weight(each),
                    each.member.zone,
                    each.member.node,
                    accepts=each.state is not MemberState.DRAINING and not each.member.draining,
                    preferred=release is not None and each.member.version == release,
                ),
                dead=_death(each),
                joined=each.member.id in shard_map.incarnations,
                load=None if carried is None else carried.get(each.member.id, 0.0),
                tainted=each.member.id in tainted,
            )
            for each in members
        ]
        rates = None if weighed is None else weighed.rates
        loads = None if rates is None else [1.0 + rates.get(group, 0.0) for group in placements]
        self._workers = [each.candidate for each in contenders if not each.dead]
        self._rules = Rules(contenders, cap=None if weighed is None else weighed.cap, loads=loads)

    def of(self, group: GroupKey, ring: Ring) -> tuple[Considered, ...]:
        """The candidates for one group, in the ring's order."""
        return self._rules.consider(self._asked(group), ring)

    def _asked(self, group: GroupKey) -> Asked:
        placement, weighed = self._placements.get(group), self._weighed
        load = None if weighed is None else 1.0 + weighed.rates.get(group, 0.0)
        pin = self._pins.get(group)
        if pin is not None and not any(
            pin.meets(worker=each.id, zone=each.zone, node=each.node)
            for each in self._workers
            if each.accepts
        ):
            pin = None
        rolling = weighed is not None and weighed.release is not None
        if placement is None:
            return Asked(group, load, None, pin=pin, rolling=rolling)
        return Asked(
            group,
            load,
            owner=next(iter(placement.owners), None),
            gainer=placement.moving_to,
            standby=placement.standby,
            former=placement.draining,
            reason=placement.reason,
            pin=pin,
            quarantined=placement.phase is Phase.QUARANTINED,
            rolling=rolling,
        )


def _carried(
    placements: Mapping[GroupKey, Placement], weighed: Weighed | None
) -> dict[str, float] | None:
    if weighed is None:
        return None
    placed = {
        group: each.moving_to or next(iter(each.owners), None) for group, each in placements.items()
    }
    return loads_by_worker(placed, weighed.rates)


def _weight(status: MemberStatus) -> int:
    return min(max(status.member.weight, 1), MAX_WEIGHT)


def _death(status: MemberStatus) -> str:
    if status.state is not MemberState.DEAD:
        return ""
    signal = None if status.signal is None else status.signal.value
    return status.why or signal or "no sign of life"
