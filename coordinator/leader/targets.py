"""Where placement wants each group; computed when its input changed, at most every few seconds
for loads alone."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from coordinator.groups import Groups
from coordinator.metrics.leading import TermFigures
from coordinator.planning import Loss, Peer, Quarantine, Target, holder, survivors
from coordinator.planning.quarantine import Objects
from coordinator.verdicts import Judgement
from fleet.clock import Clock, SystemClock
from fleet.model import GroupKey, Member, Reason, RingSpec, ShardMap, Signal
from fleet.model.pins import Pin
from fleet.placement import Candidate, Conditions, Current, Decision, place
from fleet.placement.pacing import BalancePace, RolloutWatch, Running
from fleet.ring import Ring
from fleet.settings.model import PlacementSettings

LOADS_SECONDS = 5.0
"""Loads are smoothed over about 10 s: looking more often finds nothing new."""

MAX_WEIGHT = 100
"""Of a worker on the ring; a member that says more is taken for this."""

_NOWHERE = Target(None, None, Reason.INITIAL)


@dataclass(frozen=True, slots=True)
class _Input:
    """What makes a placement at once, other than loads; groups and pins by identity."""

    candidates: tuple[Candidate, ...]
    incarnations: tuple[tuple[str, str], ...]
    alive: frozenset[str]
    release: str | None
    quarantined: frozenset[GroupKey]
    resting: frozenset[GroupKey]


class Targets:
    """The last placement of one term and what it followed from.

    Attributes:
        placements: how many there were that differ from the one before: whatever `of` says stays
            until the next.
        changed: the only groups of which `of` says something else since the last of them; None =
            any may.
    """

    def __init__(
        self,
        settings: PlacementSettings,
        clock: Clock | None = None,
        figures: TermFigures | None = None,
    ) -> None:
        """`figures` are told how long placing took, by `clock`."""
        self._settings = settings
        self._clock = clock or SystemClock()
        self._figures = figures or TermFigures()
        self._decisions: Mapping[GroupKey, Decision] = {}
        self._cap: float | None = None
        self._ring: Ring | None = None
        self._input: _Input | None = None
        self._groups: Groups | None = None
        self._pins: Mapping[GroupKey, Pin] | None = None
        self._placed = 0.0
        self.placements = 0
        self.changed: frozenset[GroupKey] | None = None
        self._pace = BalancePace(settings)
        self._rollout = RolloutWatch(settings)
        self._quarantine = Quarantine(settings)

    @property
    def ring(self) -> RingSpec:
        """The ring of the last placement."""
        if self._ring is None:
            return RingSpec("xxh3", self._settings.vnodes, {})
        return self._ring.spec

    @property
    def cap(self) -> float | None:
        """The load that a worker of weight 1 may carry; None before the first placement."""
        return self._cap

    @property
    def release(self) -> str | None:
        """The version that is being rolled out, or None."""
        return None if self._input is None else self._input.release

    def update(
        self,
        *,
        previous: ShardMap | None,
        groups: Groups,
        pins: Mapping[GroupKey, Pin],
        objects: Objects,
        peers: Mapping[str, Peer],
        judgement: Judgement,
        up: Callable[[str], bool],
        loads: Mapping[GroupKey, float],
        now: float,
    ) -> None:
        """Place again if need be.

        Args:
            pins, objects: see `coordinator.groups.PoolGroups`.
            judgement: every living worker, and who died since the last call.
            up: whether the control stream of a worker is up.
            loads: streams per second by group, as owners report them.
            now: monotonic seconds.
        """
        self._quarantine.look(previous, _losses(judgement), objects=objects, up=up, now=now)
        members = {judged.member.id: judged.member for judged in judgement.living}
        given = self._read(previous, peers, members, now)
        fresh = now - self._placed < LOADS_SECONDS
        if fresh and given == self._input and groups is self._groups and pins is self._pins:
            return
        currents = _currents(previous, groups, given)
        began = self._clock.monotonic()
        plan = place(
            given.candidates,
            {group: _weight(loads.get(group, 0.0)) for group in groups},
            currents,
            cap=self._cap,
            settings=self._settings,
            ring=self._ring,
            conditions=Conditions(
                rolling=given.release is not None,
                balance=self._pace.budget(len(groups), now),
                pins=pins,
                quarantined=given.quarantined,
                resting=given.resting,
                receiving=_receiving(previous, given) if given.quarantined else frozenset(),
            ),
        )
        self._figures.placement_seconds.observe(self._clock.monotonic() - began)
        if self._ring is None or plan.ring != self._ring.spec:
            self._ring = Ring.build(plan.ring)
        decisions: Mapping[GroupKey, Decision] = plan.decisions
        if not any(candidate.accepts for candidate in given.candidates):
            decisions = _stay(plan.decisions, currents, given.alive)
        elif any(each.reason is Reason.BALANCE for each in plan.decisions.values()):
            self._pace.moved(now)
        self._cap = plan.cap
        before, self._input = self._input, given
        changed = _changed(self._decisions, decisions)
        same_wards = before is not None and before.quarantined == given.quarantined
        if changed is None or changed or not same_wards:
            self._decisions = decisions
            self.placements += 1
            self.changed = changed if same_wards else None
        self._groups, self._pins, self._placed = groups, pins, now

    def outdate(self) -> None:
        """Place again at the next call of `update`: groups went elsewhere than to their targets."""
        self._placed = -math.inf

    def _read(
        self,
        previous: ShardMap | None,
        peers: Mapping[str, Peer],
        members: Mapping[str, Member],
        now: float,
    ) -> _Input:
        ordered = sorted(peers.items())
        running = [_running(members[worker], accepts=peer.accepts) for worker, peer in ordered]
        release = self._rollout.release(running, now)
        return _Input(
            candidates=tuple(
                _candidate(members[worker], accepts=peer.accepts, release=release)
                for worker, peer in ordered
            ),
            incarnations=tuple((worker, peer.incarnation) for worker, peer in ordered),
            alive=survivors(previous, peers),
            release=release,
            quarantined=self._quarantine.groups,
            resting=self._quarantine.resting(now),
        )

    def of(self, group: GroupKey) -> Target:
        """Where `group` shall be."""
        decision = self._decisions.get(group)
        if decision is None:
            return _NOWHERE
        quarantined = self._input is not None and group in self._input.quarantined
        return _target(decision.owner, decision.standby, decision.reason, quarantined)


_target = lru_cache(maxsize=1 << 16)(Target)
"""Ten thousand groups go to a few thousand pairs of workers: one target serves each."""


def _changed(
    before: Mapping[GroupKey, Decision], after: Mapping[GroupKey, Decision]
) -> frozenset[GroupKey] | None:
    """The groups that are decided otherwise; None if they are not the same groups."""
    if before.keys() != after.keys():
        return None
    # Most are the very same object: see `fleet.placement.plan`.
    other = [group for group, decision in after.items() if before[group] is not decision]
    return frozenset(group for group in other if before[group] != after[group])


@lru_cache(maxsize=1 << 14)
def _weight(rate: float) -> float:
    """Two digits: noise in a rate is no reason to move anything."""
    return 1.0 + float(f"{rate:.2g}")


def _running(member: Member, *, accepts: bool) -> Running:
    return Running(member.id, member.incarnation, member.version, member.started, accepts)


def _candidate(member: Member, *, accepts: bool, release: str | None) -> Candidate:
    weight = min(max(member.weight, 1), MAX_WEIGHT)
    preferred = release is not None and member.version == release
    return Candidate(member.id, weight, member.zone, member.node, accepts, preferred)


def _losses(judgement: Judgement) -> list[Loss]:
    """Workers that died of themselves: a pod that is gone was taken away."""
    return [
        Loss(death.member.id, death.member.node)
        for death in judgement.deaths
        if death.signal is not Signal.POD_GONE
    ]


def _stay(
    decisions: Mapping[GroupKey, Decision],
    currents: Mapping[GroupKey, Current],
    alive: frozenset[str],
) -> dict[GroupKey, Decision]:
    """All workers drain: whoever owns a group keeps it, only orphans are given to somebody."""
    staying = {}
    for group, decision in decisions.items():
        owner = currents[group].owner if group in currents else None
        if owner in alive and decision.owner not in (None, owner):
            decision = Decision(owner, currents[group].standby, Reason.KEPT)
        staying[group] = decision
    return staying


def _currents(previous: ShardMap | None, groups: Groups, given: _Input) -> dict[GroupKey, Current]:
    if previous is None:
        return {}
    alive = given.alive
    accepting = frozenset(each.id for each in given.candidates if each.accepts)
    currents = {}
    for group, placement in previous.placements.items():
        if group not in groups:
            continue
        owner = holder(placement, alive, accepting)
        if group in given.quarantined and not alive.intersection(placement.owners):
            # Not where it was warm, but where it does the least harm.
            owner = next(iter(placement.owners), None)
        standby = placement.standby if placement.standby in alive else None
        currents[group] = Current(owner, None if standby == owner else standby)
    return currents


def _receiving(previous: ShardMap | None, given: _Input) -> frozenset[str]:
    """Workers that inherit from dead ones at this moment."""
    if previous is None:
        return frozenset()
    heirs = (
        holder(placement, given.alive)
        for group, placement in previous.placements.items()
        if group not in given.quarantined and not given.alive.intersection(placement.owners)
    )
    return frozenset(heir for heir in heirs if heir is not None)
