"""From what is and what should be to the next shard map. Pure: no I/O, no clock.

First placements and fail-overs take effect at once. Planned moves are made before they are broken:
the gainer opens the pools (`moving`), then owns them, and the loser keeps them as `draining` until
nothing strays to it any more. `since` changes only with the owners, and every change of owners
leaves a record for the audit stream.

A move whose gainer is not ready at the deadline is given up if the owner can stay; where it leaves,
the group goes to its stand-by if that one is ready, and else to the gainer, ready or not. No move
waits for another one, except for its turn at the same gainer (`coordinator.planning.pacing`).
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from coordinator.planning.differences import changes_anything
from coordinator.planning.facts import (
    CANCELLED,
    DEADLINE,
    DONE,
    GAINER_DEAD,
    Change,
    Next,
    Peer,
    Pending,
    Situation,
    Target,
    TargetOf,
)
from coordinator.planning.pacing import Pacing
from fleet.model import (
    EpochVersion,
    GroupKey,
    Hold,
    Phase,
    Placement,
    PoolId,
    Reason,
    ShardMap,
)


def survivors(previous: ShardMap | None, peers: Mapping[str, Peer]) -> frozenset[str]:
    """Workers of `previous` that still live as the same incarnation."""
    if previous is None:
        return frozenset()
    return frozenset(
        worker
        for worker, incarnation in previous.incarnations.items()
        if worker in peers and peers[worker].incarnation == incarnation
    )


def heir(placement: Placement, alive: frozenset[str]) -> str | None:
    """Who owns the group when every owner is dead: the gainer of a move, else the stand-by."""
    for candidate in (placement.moving_to, placement.standby):
        if candidate is not None and candidate in alive:
            return candidate
    return None


def holder(
    placement: Placement, alive: frozenset[str], accepting: Container[str] = ()
) -> str | None:
    """Who holds or will hold the group as things are under way: what placement is sticky to.

    Args:
        accepting: workers that may be given groups. A drain that was lifted before the gainer took
            over is over, and a gainer that drains has nothing to hand on: the group is its owner's.
    """
    owner = next(filter(alive.__contains__, placement.owners), None)
    if owner is None:
        return heir(placement, alive)
    if placement.reason is Reason.DRAIN and owner in accepting:
        return owner
    gainer = placement.moving_to
    if gainer is None or gainer not in alive or (owner in accepting and gainer not in accepting):
        return owner
    return gainer


@dataclass(slots=True)
class _Step:
    """One pass over all groups."""

    at: Situation
    alive: frozenset[str]
    pacing: Pacing
    changes: list[Change] = field(default_factory=list)
    pending: dict[GroupKey, Pending] = field(default_factory=dict)
    open: list[GroupKey] = field(default_factory=list)
    astray: bool = False

    def place(self, group: GroupKey, pools: tuple[PoolId, ...], target: Target) -> Placement:
        previous = self.at.previous
        before = None if previous is None else previous.placements.get(group)
        if before is not None and self._settled(before, pools, target):
            return before
        self.open.append(group)
        if before is None:
            return self._first(group, pools, target)
        owner = next((o for o in before.owners if o in self.alive), None)
        if owner is None:
            after = self._fail_over(before, target)
        elif before.moving_to is not None:
            after = self._go_on(before, owner, target)
        else:
            after = self._keep_or_move(before, owner, target)
        return self._tidy(before, after, pools)

    def _settled(self, before: Placement, pools: tuple[PoolId, ...], target: Target) -> bool:
        """The common case, without a copy: 10,000 of these are 5 ms instead of 60."""
        return (
            before.phase is (Phase.QUARANTINED if target.quarantined else Phase.OWNED)
            and before.owners == (target.owner,)
            and target.owner in self.alive
            and before.standby == target.standby
            and before.moving_to is None
            and not before.draining
            and before.pools == pools
        )

    # -- first placement and fail-over ---------------------------------------------------------

    def _first(self, group: GroupKey, pools: tuple[PoolId, ...], target: Target) -> Placement:
        if target.owner is None:
            return Placement(
                group, pools, Phase.UNOWNED, (), None, Reason.INITIAL, since=self.at.wall
            )
        self._begin(group)
        self._record(group, "", target.owner, target.reason, DONE)
        return Placement(
            group,
            pools,
            Phase.OPENING,
            (target.owner,),
            _other(target.standby, target.owner),
            target.reason,
            since=self.at.wall,
        )

    def _fail_over(self, before: Placement, target: Target) -> Placement:
        heir_now = None if target.quarantined else heir(before, self.alive)
        if heir_now is not None and not self._accepts(heir_now) and self._accepts(target.owner):
            heir_now = None
        owner = heir_now or target.owner
        lost = bool(before.owners)
        if owner is None:
            return replace(
                before,
                phase=Phase.QUARANTINED if target.quarantined else Phase.UNOWNED,
                owners=(),
                standby=None,
                moving_to=None,
                since=self.at.wall if lost else before.since,
                reason=Reason.OWNER_DEAD if lost else before.reason,
            )
        # A stand-by without an owner is of one that nobody knows any more.
        reason = Reason.OWNER_DEAD if lost or heir_now is not None else target.reason
        self._begin(before.group)
        self._record(before.group, before.owners[0] if lost else "", owner, reason, DONE)
        return replace(
            before,
            phase=Phase.QUARANTINED if target.quarantined else Phase.OPENING,
            owners=(owner,),
            standby=_other(target.standby, owner) or _other(target.owner, owner),
            moving_to=None,
            since=self.at.wall,
            reason=reason,
        )

    # -- planned moves --------------------------------------------------------------------------

    def _keep_or_move(self, before: Placement, owner: str, target: Target) -> Placement:
        gainer = target.owner
        if gainer is None or gainer == owner:
            return self._kept(before, owner, target)
        leaving = not self._accepts(owner)
        began = self.pacing.wanted_since(before.group) if leaving else self.at.now
        if leaving and self.pacing.overdue(began):
            self._begin(before.group, began)
            return self._late(replace(before, reason=target.reason), owner, gainer, target)
        stalls = not leaving and self.pacing.stalls(self.at.peers[gainer])
        if stalls or not self.pacing.admits(gainer):
            if not stalls:
                self.pacing.queue(before.group)
            stays = replace(target, owner=owner, standby=self._living(before.standby))
            return self._kept(before, owner, stays)
        self._begin(before.group, began)
        return replace(
            before,
            phase=Phase.MOVING,
            owners=(owner,),
            moving_to=gainer,
            standby=_other(self._living(before.standby), owner),
            reason=target.reason,
        )

    def _kept(self, before: Placement, owner: str, target: Target) -> Placement:
        phase = before.phase
        if target.quarantined:
            phase = Phase.QUARANTINED
        elif phase is not Phase.OWNED:
            phase = Phase.OWNED if self._holds(before.group, owner, Hold.OWNER) else Phase.OPENING
            if phase is Phase.OPENING:
                self._carry(before.group)
        standby = _other(target.standby, owner)
        return replace(before, phase=phase, owners=(owner,), moving_to=None, standby=standby)

    def _go_on(self, before: Placement, owner: str, target: Target) -> Placement:
        gainer = before.moving_to
        if gainer is None or gainer not in self.alive:
            self._finish(before, owner, GAINER_DEAD)
            return self._back(before, owner)
        if target.owner == owner:
            self._finish(before, owner, CANCELLED)
            return self._back(before, owner)
        lifted = before.reason is Reason.DRAIN and self._accepts(owner)
        if target.owner not in (None, gainer) and (lifted or not self._accepts(gainer)):
            self._finish(before, owner, CANCELLED)
            return self._keep_or_move(self._back(before, owner), owner, target)
        if lifted:  # it would move there anyway
            before = replace(before, reason=target.reason)
        self._carry(before.group)
        if self._holds(before.group, gainer, Hold.OPENING, Hold.OWNER):
            self.pacing.opened(self.at.peers[gainer])
            self._finish(before, owner, DONE)
            return self._given(before, owner, gainer, target, Phase.OWNED)
        if not self.pacing.overdue(self.pending[before.group].began):
            return replace(before, owners=(owner,), standby=self._living(before.standby))
        self.pacing.stall(self.at.peers[gainer])
        if self._accepts(owner):
            self.astray = True
            self._finish(before, owner, DEADLINE)
            return self._back(before, owner)
        return self._late(before, owner, gainer, target)

    def _late(self, before: Placement, owner: str, gainer: str, target: Target) -> Placement:
        """The owner leaves and nobody has opened the group in time: a warm stand-by is nearer."""
        warm = before.standby
        if self._accepts(warm) and self._stands_by(before.group, warm):
            gainer = warm or gainer
        self.astray = self.astray or gainer != target.owner
        self._finish(replace(before, moving_to=gainer), owner, DEADLINE)
        return self._given(before, owner, gainer, target, Phase.OPENING)

    def _given(
        self, before: Placement, owner: str, gainer: str, target: Target, phase: Phase
    ) -> Placement:
        self._begin(before.group)
        return replace(
            before,
            phase=phase,
            owners=(gainer,),
            moving_to=None,
            draining=(*before.draining, owner),
            standby=_other(target.standby, gainer),
            since=self.at.wall,
        )

    def _back(self, before: Placement, owner: str) -> Placement:
        return replace(
            before,
            phase=Phase.OWNED,
            owners=(owner,),
            moving_to=None,
            standby=self._living(before.standby),
            reason=Reason.KEPT,
        )

    def _finish(self, before: Placement, owner: str, outcome: str) -> None:
        self._carry(before.group)
        began = self.pending.pop(before.group)
        self.changes.append(
            Change(before.group, owner, before.moving_to or "", before.reason, began.wall, outcome)
        )

    # -- what reports say -----------------------------------------------------------------------

    def _holds(self, group: GroupKey, worker: str, *holds: Hold) -> bool:
        """Whether `worker` reports the group synced, since it was told of this opening."""
        told = self.at.told.get(worker)
        if told is None:
            return False
        held = told.holds.get(group)
        if held is None or held.hold not in holds or not held.synced:
            return False
        return told.version >= self._opened(group)

    def _stands_by(self, group: GroupKey, worker: str | None) -> bool:
        told = None if worker is None else self.at.told.get(worker)
        held = None if told is None else told.holds.get(group)
        return held is not None and held.hold is Hold.STANDBY and held.synced

    def _opened(self, group: GroupKey) -> EpochVersion:
        """The version whose share told the workers of what is pending; older reports are stale."""
        pending = self.pending.get(group) or self.at.pending.get(group)
        if pending is not None:
            return pending.version
        return self.at.version if self.at.previous is None else self.at.previous.version

    def _drained(self, group: GroupKey, worker: str) -> bool:
        if worker not in self.alive:
            return True
        told = self.at.told.get(worker)
        if told is None:
            return False
        held = told.holds.get(group)
        if held is None:
            return told.version >= self._opened(group)
        return held.hold is Hold.DRAINING and held.quiet

    def _tidy(self, before: Placement, after: Placement, pools: tuple[PoolId, ...]) -> Placement:
        """Former owners that are done leave; an unchanged placement stays the same object."""
        added = tuple(w for w in after.draining if w not in before.draining)
        draining = tuple(
            worker
            for worker in before.draining
            if worker not in after.owners
            and worker != after.moving_to
            and not self._drained(before.group, worker)
        )
        if draining or added:
            self._carry(before.group)
        after = replace(after, draining=(*draining, *added), pools=pools)
        return before if after == before else after

    # -- records --------------------------------------------------------------------------------

    def _begin(self, group: GroupKey, began: float | None = None) -> None:
        waited = 0.0 if began is None else self.at.now - began
        self.pending[group] = Pending(self.at.now - waited, self.at.wall - waited, self.at.version)

    def _carry(self, group: GroupKey) -> None:
        """Keep what is pending; a move that another leader began counts from now."""
        if group in self.pending:
            return
        known = self.at.pending.get(group)
        if known is None:
            known = Pending(self.at.now, self.at.wall, self._opened(group))
        self.pending[group] = known

    def _record(
        self, group: GroupKey, source: str, target: str, reason: Reason, outcome: str
    ) -> None:
        self.changes.append(Change(group, source, target, reason, self.at.wall, outcome))

    def _living(self, worker: str | None) -> str | None:
        return worker if worker in self.alive else None

    def _accepts(self, worker: str | None) -> bool:
        peer = None if worker is None else self.at.peers.get(worker)
        return peer is not None and peer.accepts


def _other(worker: str | None, owner: str) -> str | None:
    return None if worker == owner else worker


def plan(at: Situation, target_of: TargetOf, among: Sequence[GroupKey] | None = None) -> Next:
    """The map that follows from `at`, or none if the present one still holds.

    Args:
        target_of: what placement wants for a group; its workers must be in `at.peers`.
        among: the only groups that may change (see `Next.open`; whatever is under way is among
            them), of those that `at.previous` places, which are all of `at.groups`; None = any may.
    """
    pacing = Pacing(
        at.previous, at.backlog, now=at.now, deadline=at.move_deadline_seconds, among=among
    )
    step = _Step(at, survivors(at.previous, at.peers), pacing)
    rest = {} if among is None or at.previous is None else at.previous.placements
    looked: Iterable[GroupKey] = at.groups if not rest or among is None else among
    placements = {
        **rest,
        **{group: step.place(group, at.groups[group], target_of(group)) for group in looked},
    }
    shard_map = ShardMap(
        fleet=at.fleet,
        version=at.version,
        published_at=at.wall,
        leader=at.leader,
        placements=placements,
        incarnations={peer.id: peer.incarnation for peer in at.peers.values()},
        addresses={peer.id: peer.ext_proc for peer in at.peers.values()},
        dead=at.dead,
    )
    changed = changes_anything(at.previous, shard_map, step.open)
    return Next(
        shard_map if changed else None,
        tuple(step.changes),
        step.pending,
        pacing.backlog(),
        tuple(step.open),
        step.astray,
    )
