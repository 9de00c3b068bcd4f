"""Everything that is known about one pool: claim, refusals, Services, routes, owners, and why.

Any replica can answer. What only the leader knows (what it wrote into routes, which Services it
could not create) is absent elsewhere, and said to be.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from coordinator.contenders import Considering, Weighed, candidates, ring_of
from coordinator.estate import Estate
from coordinator.ownership import Decision, ServedBy, ServiceKey
from coordinator.routes.contract import Located, Route, Routes
from coordinator.services import Failure
from fleet.model import (
    EpochVersion,
    GroupKey,
    MemberState,
    MemberStatus,
    Placement,
    PoolRef,
    RingSpec,
    ShardMap,
)
from fleet.picking.choice import Chosen, choose
from fleet.placement.considering import Considered
from fleet.ring import HASH, Ring
from fleet.sources.contract import Source

CANDIDATES = 5
"""Workers named of the ring's order."""

MAX_PROBLEMS = 5


@dataclass(frozen=True, slots=True)
class ExplainedRoute:
    """What gateways follow to one group.

    Attributes:
        where: the file or slice; "" where it is not known.
        addresses: as the map says they must be.
        version: epoch.version of what the leader wrote last; None = not known here.
    """

    where: str
    addresses: tuple[str, ...]
    version: EpochVersion | None


@dataclass(frozen=True, slots=True)
class ExplainedPin:
    """Where a group must be.

    Attributes:
        workers: those that meet it at present; without any it is placed as if it had no pin.
    """

    text: str
    workers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ExplainedGroup:
    """One route group of the pool.

    Attributes:
        served: what the decision says of it; None = decided away, only the map still has it.
        failure: why its Service could not be written; None also where that is not known.
        placement: None = not placed yet.
        candidates: the first workers in the ring's order.
        pin: None = no pin, or one that is ignored (which a refusal says).
        unwell: of the workers that the placement names, those that are suspect or dead.
        considered: the workers in the ring's order, and why each has the group or has it not.
    """

    group: GroupKey
    served: ServedBy | None
    failure: Failure | None
    placement: Placement | None
    route: ExplainedRoute | None
    candidates: tuple[str, ...]
    pin: ExplainedPin | None = None
    unwell: tuple[MemberStatus, ...] = ()
    considered: tuple[Considered, ...] = ()


@dataclass(frozen=True, slots=True)
class Explained:
    """One pool.

    Attributes:
        uid: "" for a pool that only the map still has.
        decision: None for a pool that only the map still has.
        problems: what the source skips of it at the moment.
        leader_known: whether what only the leader knows is in here.
        picking: what it picks by; None for a pool that only the map still has.
    """

    ref: PoolRef
    uid: str
    decision: Decision | None
    groups: tuple[ExplainedGroup, ...]
    problems: tuple[str, ...]
    version: EpochVersion | None
    leader_known: bool
    picking: Chosen | None = None


class Explainer:
    """Explains pools; keeps the last ring, since building one costs some 15 ms."""

    def __init__(self, estate: Estate, source: Source, routes: Routes, *, vnodes: int) -> None:
        self._estate = estate
        self._source = source
        self._routes = routes
        self._vnodes = vnodes
        self._ring = Ring.build(RingSpec(HASH, vnodes, {}))

    def problems(self, ref: PoolRef) -> tuple[str, ...]:
        """What the source skips of this pool; also of one that is not known otherwise."""
        name = f"InferencePool {ref}: "
        found = (
            f"{problem.where}: {problem.message}"
            for problem in self._source.problems()
            if name in f"{problem.where}: {problem.message}"
        )
        return tuple(text for text, _ in zip(found, range(MAX_PROBLEMS), strict=False))

    def explain(
        self,
        ref: PoolRef,
        *,
        shard_map: ShardMap | None,
        members: Sequence[MemberStatus],
        written: Callable[[GroupKey], Route | None] | None,
        weighed: Weighed | None = None,
    ) -> Explained | None:
        """All about the pool; None if neither the source nor the map has it.

        Args:
            written: the route as this leader last wrote it; None if this is not the leader.
            weighed: of this leader's last placement; None if this is not the leader.
        """
        claims = self._estate.claims
        pool, decision = claims.pool(ref), claims.decisions().get(ref)
        served = {} if decision is None else {each.group: each for each in decision.served}
        placements = _placements(ref, shard_map)
        if pool is None and not placements:
            return None
        ring = self._ring_of(members)
        considering = (
            None
            if shard_map is None
            else Considering(shard_map, members, self._estate.groups.pins(), weighed)
        )
        groups = tuple(
            ExplainedGroup(
                group=group,
                served=served.get(group),
                failure=self._failure(group),
                placement=placements.get(group),
                route=self._route(group, shard_map, written),
                candidates=tuple(candidates(ring, group, members, CANDIDATES)),
                pin=self._pin(group, members),
                unwell=_unwell(placements.get(group), members),
                considered=() if considering is None else considering.of(group, ring),
            )
            for group in dict.fromkeys((*served, *placements))
        )
        return Explained(
            ref=ref,
            uid="" if pool is None else pool.uid,
            decision=decision,
            groups=groups,
            problems=self.problems(ref),
            version=None if shard_map is None else shard_map.version,
            leader_known=written is not None,
            picking=None if pool is None else choose(pool, self._estate.configs()),
        )

    def _pin(self, group: GroupKey, members: Sequence[MemberStatus]) -> ExplainedPin | None:
        pin = self._estate.groups.pins().get(group)
        if pin is None:
            return None
        accepting = (
            status.member
            for status in members
            if status.state in (MemberState.ALIVE, MemberState.SUSPECT)
            and not status.member.draining
        )
        return ExplainedPin(
            pin.text,
            tuple(
                member.id
                for member in accepting
                if pin.meets(worker=member.id, zone=member.zone, node=member.node)
            ),
        )

    def _failure(self, group: GroupKey) -> Failure | None:
        services = self._estate.services
        key = ServiceKey(group.namespace, group.service)
        return None if services is None else services.failures.get(key)

    def _route(
        self,
        group: GroupKey,
        shard_map: ShardMap | None,
        written: Callable[[GroupKey], Route | None] | None,
    ) -> ExplainedRoute | None:
        if shard_map is None or group not in shard_map.placements:
            return None
        route = None if written is None else written(group)
        where = self._routes.where(group) if isinstance(self._routes, Located) else ""
        return ExplainedRoute(
            where=where,
            addresses=_addresses(shard_map, group),
            version=None if route is None else route.version,
        )

    def _ring_of(self, members: Sequence[MemberStatus]) -> Ring:
        spec = ring_of(members, self._vnodes)
        if spec != self._ring.spec:
            self._ring = Ring.build(spec)
        return self._ring


def _placements(ref: PoolRef, shard_map: ShardMap | None) -> dict[GroupKey, Placement]:
    placements = {} if shard_map is None else shard_map.placements
    return {
        group: placement
        for group, placement in placements.items()
        if group.namespace == ref.namespace and any(pool.ref == ref for pool in placement.pools)
    }


def _unwell(
    placement: Placement | None, members: Sequence[MemberStatus]
) -> tuple[MemberStatus, ...]:
    if placement is None:
        return ()
    named = {*placement.owners, placement.standby, placement.moving_to, *placement.draining}
    return tuple(
        status
        for status in members
        if status.member.id in named and status.state in (MemberState.SUSPECT, MemberState.DEAD)
    )


def _addresses(shard_map: ShardMap, group: GroupKey) -> tuple[str, ...]:
    owners, addresses = shard_map.placements[group].owners, shard_map.addresses
    return tuple(addresses[owner] for owner in owners if owner in addresses)
