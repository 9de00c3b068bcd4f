"""What must be true of every map that is published."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from coordinator.planning.facts import DEADLINE
from fleet.model import DeadMember, EpochVersion, GroupKey, Hold, Phase, Placement, Reason, ShardMap
from fleet.model.identity import NONE
from fleet.store.contract import Guard, Publication
from tests.sim.faults import COORDINATION
from tests.sim.fleet import Fleet
from tests.sim.network import STORE
from tests.sim.tape import Tape
from tests.sim.worker import WorkerLife

if TYPE_CHECKING:
    from tests.sim.judge import Counts

PLANNED = frozenset({Reason.DRAIN, Reason.JOIN, Reason.BALANCE})
"""No worker is of another version here, and nothing is pinned."""

DRAINED_SECONDS = 10.0
"""A drain that was lifted longer ago is no reason any more: a move may take five seconds."""

KNOWN_SECONDS = 1.5
"""A drain mark that is older is known to the leader."""


LEASE_LOST_SECONDS = 5.0
"""From a fault of the store or of a leader until another one leads, and has settled."""


Incarnation = tuple[str, str]
Content = tuple[str, Mapping[GroupKey, Placement], Mapping[str, str]]
"""Of a map: its leader, who owns what, and in which life."""


class MapRules:
    """Compares each map with the one before, and with what is true."""

    def __init__(self, fleet: Fleet, tape: Tape, counts: "Counts") -> None:
        self._fleet = fleet
        self._tape = tape
        self._counts = counts
        self._last: ShardMap | None = None
        self._earlier: ShardMap | None = None
        self._maps: dict[EpochVersion, Content] = {}
        self._dead: dict[Incarnation, EpochVersion] = {}
        self._hearsay: set[Incarnation] = set()
        self._confirmed: tuple[ShardMap | None, dict[Incarnation, EpochVersion]] = (None, {})
        self._drains: dict[str, float] = {}
        self._drained: dict[str, float] = {}
        self._epochs: dict[int, str] = {}
        self._stood_still: dict[str, float] = {}
        self._impaired: dict[str, float] = {}
        self._since: dict[str, float] = {}
        self._alone: dict[str, float] = {}
        self._beats: dict[str, float] = {}

    def published(self, guard: Guard, publication: Publication) -> None:
        """A map is in the store."""
        if not guard.elsewhere:
            self._check(publication.shard_map)
        for move in publication.moves:
            if move.outcome == DEADLINE:
                self._tape.note(f"move of {move.group} went past its deadline")

    def lagging(self) -> None:
        """No replica has what is published from now on."""
        self._confirmed = (self._last, dict(self._dead))

    def rolled_back(self) -> None:
        """Maps that no replica had never were, nor the deaths in them: nobody acted on them."""
        if not self._fleet.plan.lease:
            self._last, self._dead = self._confirmed

    def emptied(self) -> None:
        """Who has died is known by now to those alone who heard of the map that said so."""
        self._hearsay = set(self._dead)

    def _forget(self, shard_map: ShardMap) -> None:
        """A new leader that has not heard of that map cannot know, and whoever was declared dead
        for its silence, and has been told so by nobody, is as well as it ever was."""
        leader = self._fleet.coordinators[shard_map.leader.id].app
        memory = None if leader is None else leader.shard_map()
        heard = NONE if memory is None else memory.version
        for key in [key for key in self._hearsay if self._dead.get(key, NONE) > heard]:
            self._hearsay.discard(key)
            self._dead.pop(key, None)

    def look(self) -> None:
        """Now and then: drain marks, who is paused, who cannot reach whom."""
        fleet, now = self._fleet, self._fleet.world.now
        for name, coordinator in fleet.coordinators.items():
            if not coordinator.process.running:
                self._stood_still[name] = now
        for name, (_, beaten) in fleet.store.memory.state.beats.items():
            self._beats[name] = beaten  # the leader has the dead forgotten before it says so
        for name, life in fleet.workers.items():
            runs, network = life.process.running and life.up, fleet.network
            if not runs or network.is_cut(name, STORE) or network.is_cut(STORE, name):
                self._alone[name] = now
            if not runs or fleet.cut_off(name):
                if now - self._impaired.get(name, -10.0) > 0.5:
                    self._since[name] = now
                self._impaired[name] = now
        for name, life in self._fleet.workers.items():
            leaving = life.up and (life.worker.draining or life.worker.stopping)
            if not leaving or not life.process.alive:
                self._drains.pop(name, None)
            else:
                self._drains.setdefault(name, now)
            if leaving:
                self._drained[name] = now

    def drains(self, worker: str) -> None:
        """It was told to, or that it need not any more: it may drain for less than from one look to
        the next."""
        self._drained[worker] = self._fleet.world.now

    def learned(self, shard_map: ShardMap) -> None:
        """A coordinator has it: the first is its leader, once routes and workers were told."""
        if self._fleet.plan.lease and shard_map.version not in self._maps:
            self._check(shard_map)

    def _check(self, shard_map: ShardMap) -> None:
        version, tape = shard_map.version, self._tape
        known = self._maps.get(version)
        content = (shard_map.leader.id, shard_map.placements, shard_map.incarnations)
        if known is not None:
            if known != content:
                tape.break_("I2", f"two maps of version {version}")
            return
        self._maps[version] = content
        leads = self._epochs.setdefault(version.epoch, shard_map.leader.id)
        if leads != shard_map.leader.id:
            tape.break_("I2", f"epoch {version.epoch} of {leads} and of {shard_map.leader.id}")
        last = self._last
        if last is None or version.epoch > last.version.epoch:
            self._counts.elections += 1
        highest = NONE if last is None else last.version
        tape.note(f"map {version} of {shard_map.leader.id}")
        if version < highest:
            # Where the store does not compare, a leader that was replaced while it published may
            # end what it began: routes and workers have refused it by then.
            if not self._fleet.plan.lease or version.epoch == highest.epoch:
                tape.break_("I2", f"map {version} after {highest}")
            return
        self._hearsay -= {(dead.id, dead.incarnation) for dead in shard_map.dead}
        if last is None or version.epoch > last.version.epoch:
            self._forget(shard_map)
        self._deaths(shard_map)
        last = self._goes_on_from(shard_map)
        for group, placement in shard_map.placements.items():
            self._owner(shard_map, placement)
            before = None if last is None else last.placements.get(group)
            if last is None or before is None:
                continue
            if before.owners != placement.owners:
                if not self._landed(last, placement):
                    self._moved(last, shard_map, group, before, placement)
            else:
                self._same_life(last, shard_map, before)
        if last is not None and last.version.epoch < version.epoch:
            self._earlier = last
        self._last = shard_map

    def _goes_on_from(self, shard_map: ShardMap) -> ShardMap | None:
        """The map that its leader began with: what it knows to be published, not what has landed
        without its knowledge, which may be its first map."""
        epoch = shard_map.version.epoch
        leader = self._fleet.coordinators[shard_map.leader.id].app
        confirmed = None if leader is None else leader.shard_map()
        if confirmed is not None and confirmed.version.epoch == epoch:
            return confirmed
        last = self._last
        return self._earlier if last is not None and last.version.epoch == epoch else last

    def _landed(self, begun: ShardMap, placement: Placement) -> bool:
        """Whether a new leader's first map, of which it does not know that it landed, gave the
        group to the same worker: that may have told it so. It was looked at when it landed."""
        landed = self._last
        if landed is None or landed.version.epoch == begun.version.epoch:
            return False
        there = landed.placements.get(placement.group)
        return there is not None and there.owners == placement.owners

    # -- I7 -------------------------------------------------------------------------------------

    def _owner(self, shard_map: ShardMap, placement: Placement) -> None:
        for owner in placement.owners:
            incarnation = shard_map.incarnations.get(owner)
            if incarnation is None or (owner, incarnation) in self._dead:
                self._tape.break_(
                    "I7", f"map {shard_map.version} gives {placement.group} to dead {owner}"
                )

    def _same_life(self, last: ShardMap, shard_map: ShardMap, placement: Placement) -> None:
        """Who owns it still is who owned it, and not a cold one under the same name."""
        warm = placement.standby
        if warm is None or last.incarnations.get(warm) != shard_map.incarnations.get(warm):
            return
        if shard_map.placements[placement.group].phase is Phase.QUARANTINED:
            return  # it is kept from those that it has not killed yet
        if self._leaves(warm):
            return  # nothing is given to it, and who came back may be the next best
        for owner in placement.owners:
            if last.incarnations.get(owner) == shard_map.incarnations.get(owner):
                continue
            life = self._fleet.workers.get(owner)
            held = (
                None if life is None or not life.up else life.worker.holdings.get(placement.group)
            )
            if held is None or held.hold is not Hold.OWNER:  # else it has been told so by peers
                self._tape.break_(
                    "I7", f"{placement.group} stays with {owner}, which has died and come back"
                )

    def _given_to_drainer(self, shard_map: ShardMap, group: GroupKey, owner: str) -> None:
        life = self._fleet.workers.get(owner)
        if life is None or not life.up or not (life.worker.draining or life.worker.stopping):
            return
        since = self._drains.get(owner)
        now = self._fleet.world.now
        others = [w for w in shard_map.incarnations if not self._leaves(w)]
        disturbed = self._tape.since(COORDINATION, now) < 3.0
        if since is not None and now - since > KNOWN_SECONDS and others and not disturbed:
            self._tape.break_(
                "I7", f"map {shard_map.version} gives {group} to {owner}, which drains"
            )

    # -- I6 -------------------------------------------------------------------------------------

    def _moved(
        self,
        last: ShardMap,
        shard_map: ShardMap,
        group: GroupKey,
        before: Placement,
        after: Placement,
    ) -> None:
        tape, reason = self._tape, after.reason
        self._counts.moves += 1
        source = before.owners[0] if before.owners else None
        target = after.owners[0] if after.owners else None
        tape.note(f"{group}: {source} -> {target} ({reason.value})")
        if target is not None:
            self._given_to_drainer(shard_map, group, target)
        if source is None:
            return
        lives = last.incarnations.get(source) == shard_map.incarnations.get(source)
        known = not self._went_on_from_another(last, shard_map)
        if reason is Reason.OWNER_DEAD:
            self._counts.fail_overs += 1
            if known:
                self._to_whom(last, shard_map, before, after)
        has_had = reason is Reason.KEPT and self._was_told(last, group, target)
        if lives and reason not in PLANNED and not has_had:
            tape.break_(
                "I6", f"{group} moved from {source}, which lives, to {target}: {reason.value}"
            )
        if lives and reason is Reason.DRAIN and not self._left_lately(source):
            tape.break_("I6", f"{group} moved from {source}, which does not drain, to {target}")
        # Past its deadline a move goes to a warm stand-by, if there is one.
        meant = target in (before.moving_to, before.standby)
        if lives and target is not None and known and not meant:
            tape.break_("I6", f"{group} moved to {target}, meant for {before.moving_to}")
        if lives and target is not None and reason in PLANNED:
            self._made_before(shard_map, group, target)

    def _was_told(self, last: ShardMap, group: GroupKey, worker: str | None) -> bool:
        """Whether it owns the group already, by a later map than `last`: one that it read before
        the store lost it. That map was looked at when it landed."""
        life = None if worker is None else self._fleet.workers.get(worker)
        if life is None or not life.up:
            return False
        held, applied = life.worker.holdings.get(group), life.worker.holdings.applied
        told = self._maps.get(applied)
        if held is None or held.hold is not Hold.OWNER or told is None or applied <= last.version:
            return False
        _, placements, _ = told
        return group in placements and placements[group].owners == (worker,)

    def _leaves(self, worker: str) -> bool:
        """Whether it drains; its leader hears of that in the same moment."""
        life = self._fleet.workers[worker]
        marked = life.up and (life.worker.draining or life.worker.stopping)
        return marked or worker in self._drains

    def _left_lately(self, worker: str) -> bool:
        drained = self._drained.get(worker, -math.inf)
        return self._leaves(worker) or self._fleet.world.now - drained < DRAINED_SECONDS

    def _went_on_from_another(self, last: ShardMap, shard_map: ShardMap) -> bool:
        """Whether a new leader may have begun from a stored map that nobody has seen: written when
        its leader was losing the lease, or older than the last one after a fail-over."""
        disturbed = self._tape.since(COORDINATION, self._fleet.world.now) < LEASE_LOST_SECONDS
        return disturbed and last.version.epoch != shard_map.version.epoch

    def _to_whom(
        self, last: ShardMap, shard_map: ShardMap, before: Placement, after: Placement
    ) -> None:
        """The gainer of a move under way, else the stand-by: whoever is warm."""
        warm = [
            worker
            for worker in (before.moving_to, before.standby)
            if worker is not None
            and not self._leaves(worker)
            and last.incarnations.get(worker) == shard_map.incarnations.get(worker)
        ]
        confined = Phase.QUARANTINED in (before.phase, after.phase)
        if warm and after.owners and after.owners[0] not in warm and not confined:
            self._tape.break_(
                "I3", f"{after.group} went to {after.owners[0]}, not to warm {warm[0]}"
            )

    def _made_before(self, shard_map: ShardMap, group: GroupKey, target: str) -> None:
        """The gainer serves already, or had all the time that a move may take."""
        life = self._fleet.workers.get(target)
        if life is None or not life.process.alive or not life.up:
            return
        holdings = life.worker.holdings
        if holdings.incarnation != shard_map.incarnations.get(target):
            return
        held = holdings.get(group)
        if (held is None or not held.serving) and group in self._fleet.pools:
            self._tape.break_("I4", f"{group} moved to {target} before it could serve it")

    # -- deaths ---------------------------------------------------------------------------------

    def _deaths(self, shard_map: ShardMap) -> None:
        for dead in shard_map.dead:
            key = (dead.id, dead.incarnation)
            if key not in self._dead:
                self._dead[key] = shard_map.version
                self._tape.note(f"{dead.id} declared dead: {dead.signal}")
                life = self._life_of(dead)
                if life is not None:
                    self._false_death(life, dead, shard_map.leader.id)

    def _life_of(self, dead: DeadMember) -> WorkerLife | None:
        """The life that was buried although it goes on."""
        life = self._fleet.workers.get(dead.id)
        if life is None or not life.process.alive or not life.up or life.ended is not None:
            return None
        return life if life.worker.holdings.incarnation == dead.incarnation else None

    def _false_death(self, life: WorkerLife, dead: DeadMember, leader: str) -> None:
        fleet, now = self._fleet, self._fleet.world.now
        if dead.signal != "silent":
            self._tape.break_("I6", f"{dead.id} lives, declared dead: {dead.signal}")
            return
        if now - self._stood_still.get(leader, -10.0) < 1.0:
            return
        timers = fleet.settings.membership
        ttl, beat = timers.ttl_seconds, timers.heartbeat_seconds
        if now - self._impaired.get(dead.id, 0.0) > 2 * ttl + 0.5:
            self._tape.break_("I6", f"{dead.id} is well and reached, declared dead")
        # Its last word was up to a heartbeat before that, and that is noticed at the next look.
        if now - self._since.get(dead.id, now) < ttl - 1.1 * beat - 0.15:
            self._tape.break_("I6", f"{dead.id} cannot be silent for long, declared dead")
        store, network = fleet.store, fleet.network
        known = not (
            store.down
            or store.hung
            or network.is_cut(leader, STORE)
            or network.is_cut(STORE, leader)
        )
        # Its beat may not have been read yet, if it was not reached until now: not by anybody.
        unread = now - self._alone.get(dead.id, -10.0) < 0.5
        if known and not unread and now - self._beats.get(dead.id, -10.0) < ttl / 2:
            self._tape.break_("I6", f"{dead.id} beats, declared dead")
