"""Where placement wants each group; computed when its input changed, at most every few seconds
for loads alone."""

from collections.abc import Mapping

from coordinator.groups import Groups
from coordinator.planning import Peer, Target, holder, survivors
from fleet.model import GroupKey, Member, Reason, RingSpec, ShardMap
from fleet.placement import Candidate, Current, Decision, place
from fleet.ring import Ring
from fleet.settings.model import PlacementSettings

LOADS_SECONDS = 5.0
"""Loads are smoothed over about 10 s: looking more often finds nothing new."""

MAX_WEIGHT = 100
"""Of a worker on the ring; a member that says more is taken for this."""

BALANCE_SECONDS = 30.0
"""Cool-down between two rounds of moves for balance alone."""

BALANCE_SHARE = 0.01
"""Of all groups: how many one round may move (at least one)."""

_NOWHERE = Target(None, None, Reason.INITIAL)


class Targets:
    """The last placement of one term and what it followed from."""

    def __init__(self, settings: PlacementSettings) -> None:
        self._settings = settings
        self._decisions: Mapping[GroupKey, Decision] = {}
        self._cap: float | None = None
        self._ring: Ring | None = None
        self._key: tuple[object, ...] = ()
        self._groups: Groups | None = None
        self._placed = 0.0
        self._balanced = -BALANCE_SECONDS

    @property
    def ring(self) -> RingSpec:
        """The ring of the last placement."""
        if self._ring is None:
            return RingSpec("xxh3", self._settings.vnodes, {})
        return self._ring.spec

    def update(
        self,
        *,
        previous: ShardMap | None,
        groups: Groups,
        peers: Mapping[str, Peer],
        members: Mapping[str, Member],
        loads: Mapping[GroupKey, float],
        now: float,
    ) -> None:
        """Place again if need be.

        Args:
            loads: streams per second by group, as owners report them.
            now: monotonic seconds.
        """
        alive = survivors(previous, peers)
        candidates = tuple(
            _candidate(members[worker], accepts=peer.accepts)
            for worker, peer in sorted(peers.items())
        )
        incarnations = tuple((worker, peer.incarnation) for worker, peer in sorted(peers.items()))
        key = (candidates, incarnations, alive)
        fresh = now - self._placed < LOADS_SECONDS
        if fresh and key == self._key and groups is self._groups:
            return
        accepting = frozenset(worker for worker, peer in peers.items() if peer.accepts)
        currents = _currents(previous, groups, alive, accepting)
        plan = place(
            candidates,
            # Two digits: noise in a rate is no reason to move anything.
            {group: 1.0 + float(f"{loads.get(group, 0.0):.2g}") for group in groups},
            currents,
            cap=self._cap,
            settings=self._settings,
            ring=self._ring,
        )
        if self._ring is None or plan.ring != self._ring.spec:
            self._ring = Ring.build(plan.ring)
        rolling = len({members[worker].version for worker in peers}) > 1
        if any(candidate.accepts for candidate in candidates):
            self._decisions = self._within_budget(
                plan.decisions, currents, rolling=rolling, now=now
            )
        else:
            self._decisions = _stay(plan.decisions, currents)
        self._cap = plan.cap
        self._key, self._groups, self._placed = key, groups, now

    def _within_budget(
        self,
        decisions: Mapping[GroupKey, Decision],
        currents: Mapping[GroupKey, Current],
        *,
        rolling: bool,
        now: float,
    ) -> Mapping[GroupKey, Decision]:
        """Few moves for balance alone, now and then, and none while versions are mixed."""
        wanted = [g for g, decision in decisions.items() if decision.reason is Reason.BALANCE]
        if not wanted:
            return decisions
        budget = max(1, int(BALANCE_SHARE * len(decisions)))
        if rolling or now - self._balanced < BALANCE_SECONDS:
            budget = 0
        else:
            self._balanced = now
        kept = {
            group: Decision(currents[group].owner, currents[group].standby, Reason.KEPT)
            for group in wanted[budget:]
        }
        return {**decisions, **kept}

    def of(self, group: GroupKey) -> Target:
        """Where `group` shall be."""
        decision = self._decisions.get(group)
        if decision is None:
            return _NOWHERE
        return Target(decision.owner, decision.standby, decision.reason)


def _candidate(member: Member, *, accepts: bool) -> Candidate:
    weight = min(max(member.weight, 1), MAX_WEIGHT)
    return Candidate(member.id, weight, member.zone, member.node, accepts)


def _stay(
    decisions: Mapping[GroupKey, Decision], currents: Mapping[GroupKey, Current]
) -> dict[GroupKey, Decision]:
    """All workers drain: whoever owns a group keeps it, only orphans are given to somebody."""
    staying = {}
    for group, decision in decisions.items():
        owner = currents[group].owner if group in currents else None
        if owner is not None and decision.owner != owner:
            decision = Decision(owner, currents[group].standby, Reason.KEPT)
        staying[group] = decision
    return staying


def _currents(
    previous: ShardMap | None,
    groups: Groups,
    alive: frozenset[str],
    accepting: frozenset[str],
) -> dict[GroupKey, Current]:
    if previous is None:
        return {}
    currents = {}
    for group, placement in previous.placements.items():
        if group in groups:
            owner = holder(placement, alive, accepting)
            standby = placement.standby if placement.standby in alive else None
            currents[group] = Current(owner, None if standby == owner else standby)
    return currents
