"""The leader's loop: snapshot, membership, placement, planning, publication.

It looks at the world on every event and at least every tick. Nothing is published before the term
has settled: until every known worker was reached or is dead, or one member TTL has passed. Every
act looks at the lease first; whatever the store says but "done" is either "unknown" (nothing else
happens, the next look tries again) or "refused" (somebody else leads: the term is over).

Where the lease is not in the store, a store that is away stops nothing: it is read and written
later.

The lease may be in doubt for a moment (the store restarted empty and it is being acquired again,
with a higher epoch): nothing is done then, and all that is public is published again afterwards.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from coordinator.contenders import Weighed
from coordinator.deletion_cost import weights_of
from coordinator.election.contract import Term
from coordinator.election.leadership import Leadership
from coordinator.leader import recall
from coordinator.leader.commands import Commands
from coordinator.leader.deaths import tell
from coordinator.leader.doubt import LeadershipLost, LeaseInDoubt
from coordinator.leader.healthchecks import HealthChecks
from coordinator.leader.linkset import Links
from coordinator.leader.peers import introductions, owners_in, peers_of
from coordinator.leader.probation import Probation
from coordinator.leader.publishing import Publisher
from coordinator.leader.routekeeping import RouteKeeper
from coordinator.leader.settling import Informed, Muster, settled
from coordinator.leader.sharekeeping import ShareKeeper
from coordinator.leader.signals import Signals
from coordinator.leader.stillness import Stillness
from coordinator.leader.storewatch import StoreWatch
from coordinator.leader.storing import StoreBehind, StoreFirst, Storing
from coordinator.leader.surroundings import Surroundings
from coordinator.leader.targets import Targets
from coordinator.membership import Membership
from coordinator.planning import NO_BACKLOG, Next, Pending, Situation
from coordinator.routes.contract import Route
from coordinator.statuses import Statuses
from coordinator.verdicts import Death, Judgement
from fleet.control.messages import LeaderHello
from fleet.errors import StoreRefused, StoreUnavailable
from fleet.model import EpochVersion, GroupKey, Member, ShardMap
from fleet.telemetry import RateLimited

log = logging.getLogger(__name__)


class LeaderTerm:
    """One term: `run` leads until it is cancelled, or until the store says that another leads."""

    def __init__(
        self,
        leadership: Leadership,
        surroundings: Surroundings,
        require_epoch_above: Callable[[int], None],
    ) -> None:
        self._leadership = leadership
        self._require_epoch_above = require_epoch_above
        self._around = surroundings
        self._clock = surroundings.clock
        self._figures = surroundings.metrics.term
        settings = surroundings.settings
        self._settings = settings
        self._started = self._clock.monotonic()
        self._membership = Membership(
            settings.membership, now=self._started, wall=self._clock.wall()
        )
        self._signals = Signals(
            self._membership,
            epoch=lambda: leadership.term.epoch,
            higher_epoch=require_epoch_above,
            clock=self._clock,
            figures=self._figures,
        )
        self._keeper = RouteKeeper(
            surroundings.routes,
            term=self._term,
            saw=self._signals.saw,
            count_stale=self._figures.stale_route_write,
            clock=self._clock,
            loads=lambda: self._signals.loads,
            figures=self._figures,
        )
        self._store_watch = StoreWatch(
            surroundings.store,
            signals=self._signals,
            term=self._term,
            in_store=surroundings.in_store,
            recall=self._recalled,
            overtake=self._overtake,
            tick_seconds=settings.coordinator.tick_seconds,
            clock=self._clock,
        )
        self._targets = Targets(settings.placement, self._clock, self._figures)
        self._plans = Stillness()
        self._statuses = Statuses()
        self._loud = RateLimited(log, self._clock)
        self._links: Links
        self._commands = Commands(self._membership)
        self._publisher: Publisher
        self._previous: ShardMap | None = None
        self._version = 0
        self._pending: Mapping[GroupKey, Pending] = {}
        self._backlog = NO_BACKLOG
        self._settled = False
        self._recollection: recall.Recollection | None = None
        self._muster = Muster(settings.membership)
        self._probation = Probation()
        self._whole = True

    # -- the term -------------------------------------------------------------------------------

    async def run(self) -> None:
        """Lead until cancelled.

        Raises:
            LeadershipLost: somebody else does.
        """
        try:
            await self._lead()
        except* LeadershipLost as lost:
            raise LeadershipLost(str(lost.exceptions[0])) from None

    async def _lead(self) -> None:
        remembered = self._around.knowledge.shard_map
        if remembered is not None:
            self._recalled(remembered)
        await self._store_watch.begin()
        pods = self._around.pods
        listened = [self._around.groups.on_change(self._signals.wake)]
        if pods is not None:
            listened.append(pods.on_change(self._signals.wake))
        try:
            async with asyncio.TaskGroup() as tasks:
                self._links = Links(
                    tasks,
                    hello=self._hello,
                    reach=self._around.reach,
                    settings=self._settings.membership,
                    events=self._signals,
                    owners=lambda groups: owners_in(self._previous, groups),
                    clock=self._clock,
                )
                self._commands.links = self._links
                self._publisher = Publisher(
                    store=self._storing(tasks),
                    routes=self._keeper,
                    links=self._links,
                    term=self._term,
                    count_move=self._figures.move,
                    clock=self._clock,
                    figures=self._figures,
                )
                services = self._around.services
                if services is not None:
                    tasks.create_task(services.run(self._leadership.valid), name="services")
                costs = self._around.costs
                if costs is not None:
                    work = costs.run(
                        lambda: weights_of(self._previous, self._signals.loads),
                        self._leadership.valid,
                    )
                    tasks.create_task(work, name="deletion costs")
                tasks.create_task(self._store_watch.run(), name="store")
                listening = self._signals.listen(self._settings.membership.ttl_seconds / 8)
                tasks.create_task(listening, name="listening")
                checks = HealthChecks(
                    self._membership,
                    self._around.reach,
                    gap_seconds=self._settings.membership.heartbeat_seconds,
                    clock=self._clock,
                )
                tasks.create_task(checks.run(), name="health checks")
                tasks.create_task(self._keep_routes(self._previous), name="routes")
                tasks.create_task(self._decide(), name="decide")
        finally:
            self._figures.rest()
            for forget_listener in listened:
                forget_listener()

    def _term(self) -> Term:
        """The term, if it still is one: looked at before every act."""
        if not self._leadership.valid():
            raise LeaseInDoubt("the lease does not cover this moment")
        return self._leadership.term

    def _hello(self) -> LeaderHello:
        term = self._term()
        return LeaderHello(self._settings.fleet, term.epoch, term.leader, deltas=True)

    def _storing(self, tasks: asyncio.TaskGroup) -> Storing:
        if self._around.in_store:
            shares = ShareKeeper(self._around.store, term=self._term, clock=self._clock)
            tasks.create_task(shares.run(), name="shares to the store")
            return StoreFirst(self._around.store, self._term, shares)
        behind = StoreBehind(
            self._around.store,
            term=self._term,
            saw=self._signals.saw,
            again=self.rolled_back,
            look_seconds=self._settings.coordinator.tick_seconds,
            clock=self._clock,
            lag=self._around.store_lag,
        )
        tasks.create_task(behind.run(), name="map to the store")
        return behind

    def _recalled(self, shard_map: ShardMap) -> None:
        """A map of our own memory or of the store: the newest is begun with, and whom it names."""
        if self._settled:
            self._signals.saw(shard_map.version)
            return
        previous = recall.newest(self._previous, shard_map)
        if previous is None or previous is self._previous:
            return
        self._previous = previous
        self._version = previous.version.version
        self._membership.died_before(previous.dead)
        for member in recall.known_members(previous, self._around.knowledge.members):
            self._membership.knew(member, self._started)

    def _overtake(self, stored: int) -> None:
        if stored >= self._leadership.epoch:
            self._require_epoch_above(stored)

    def rolled_back(self) -> None:
        """The store has a lower map than ours, or none: publish again."""
        self._whole = True
        self._signals.wake()

    async def _keep_routes(self, previous: ShardMap | None) -> None:
        with contextlib.suppress(LeaseInDoubt):  # the first map writes them all anyway
            await self._keeper.take_over(previous)
        await self._keeper.watch(self._settings.routes.repair_seconds)

    # -- deciding -------------------------------------------------------------------------------

    async def _decide(self) -> None:
        while True:
            await self._signals.woken(self._settings.coordinator.tick_seconds)
            await self._leadership.refresh(len(self._around.groups.groups()))
            now = self._clock.monotonic()
            pods = self._around.pods
            if pods is not None:
                self._membership.pods_seen(gone=pods.gone(), ending=pods.ending())
            judgement = self._membership.judge(now)
            self._bury(judgement.deaths, now)
            self._links.keep((*self._membership.contacts(now), *self._unknown_pods(now)))
            complete = self._muster.complete(judgement.living, pods, self._previous, now)
            try:
                if self._settle(judgement, now) and complete:
                    await self._plan(judgement, now)
            except LeaseInDoubt:
                self._whole = True
            self._show(judgement, now)

    def _unknown_pods(self, now: float) -> tuple[Member, ...]:
        """Workers of which nothing but their pod is known."""
        pods, known = self._around.pods, self._membership.contacts(now)
        return () if pods is None else pods.contacts({member.id for member in known})

    def _bury(self, deaths: tuple[Death, ...], now: float) -> None:
        self._probation.died(deaths, now)
        tell(deaths, self._figures)
        for member in (death.member for death in deaths):
            if self._membership.current(member.id) is None:
                self._signals.forget(member.id)
            self._store_watch.forget([member])

    def _settle(self, judgement: Judgement, now: float) -> bool:
        if not self._settled and not self._informed(judgement, now):
            return False
        if not self._settled:
            self._settled = True
            self._recollection = recall.Recollection(
                self._previous, fleet=self._settings.fleet, leader=self._leadership.term.leader
            )
            told = {"seconds": round(now - self._started, 2), "workers": len(judgement.living)}
            log.info("settled", extra=told)
        if self._recollection is not None:
            groups, wall = self._around.groups.groups(), self._clock.wall()
            self._previous = self._recollection.completed(judgement.living, groups, wall=wall)
            if self._previous is not None:
                self._version = max(self._version, self._previous.version.version)
        return True

    def _informed(self, judgement: Judgement, now: float) -> bool:
        """Whether enough is known for a first map."""
        if not self._around.groups.synced():
            return False
        known = Informed(
            store_reads=self._signals.store_reads,
            past=self._previous is not None and bool(self._previous.incarnations),
            reached=any(judged.reached for judged in judgement.living),
            all_reached=bool(judgement.living) and self._membership.all_reached(),
            pods_reached=not self._unknown_pods(now),
            told_for=self._signals.told_for(now),
        )
        return settled(
            known,
            elapsed=now - self._started,
            in_store=self._around.in_store,
            settings=self._settings.membership,
        )

    async def _plan(self, judgement: Judgement, now: float) -> None:
        previous = self._previous
        peers = self._probation.screen(peers_of(judgement.living, previous), previous, now)
        self._links.accepting(worker for worker, peer in peers.items() if peer.accepts)
        self._links.introduce(introductions(judgement.living))
        groups = self._around.groups.groups()
        self._targets.update(
            previous=previous,
            groups=groups,
            pins=self._around.groups.pins(),
            objects=self._around.groups.objects,
            peers=peers,
            judgement=judgement,
            up=self._membership.up,
            loads=self._signals.loads,
            now=now,
        )
        self._signals.keep_loads(groups)
        await self._leadership.refresh(len(groups))
        epoch = self._term().epoch
        if previous is not None and previous.version.epoch != epoch:
            self._whole = True
        version = EpochVersion(epoch, max(self._version, self._signals.seen_version) + 1)
        outcome = self._plans.next(
            Situation(
                fleet=self._settings.fleet,
                leader=self._leadership.term.leader,
                previous=previous,
                version=version,
                groups=groups,
                peers=peers,
                dead=self._membership.dead(),
                told=self._signals.told,
                pending=self._pending,
                backlog=self._backlog,
                now=now,
                wall=self._clock.wall(),
                move_deadline_seconds=self._settings.coordinator.move_deadline_seconds,
            ),
            self._targets,
        )
        shard_map = outcome.shard_map
        if shard_map is None and self._whole and previous is not None:
            shard_map = replace(previous, version=version, published_at=self._clock.wall())
        if shard_map is None:
            self._pending, self._backlog = outcome.pending, outcome.backlog
        else:
            await self._publish(shard_map, outcome)

    async def _publish(self, shard_map: ShardMap, outcome: Next) -> None:
        whole, self._whole = self._whole, False
        self._version = shard_map.version.version
        try:
            await self._publisher.publish(
                shard_map, self._targets.ring, outcome.changes, whole=whole
            )
        except (StoreUnavailable, StoreRefused) as error:
            holder = error.holder if isinstance(error, StoreRefused) else None
            if holder not in (None, shard_map.leader.id):
                raise LeadershipLost(f"{holder} leads: {error}") from None
            # It may have landed: the next map gets another number and is written in whole.
            self._whole = True
            self._loud.warning("map not published, trying again", error=error)
            return
        self._leadership.note_published(shard_map.version)
        self._figures.published(self._previous, shard_map, outcome.open, self._clock.monotonic())
        self._previous, self._recollection = shard_map, None
        self._pending, self._backlog = outcome.pending, outcome.backlog
        self._around.knowledge.learn_map(shard_map)
        self._signals.wake()

    def _show(self, judgement: Judgement, now: float) -> None:
        living = (*judgement.living, *self._membership.buried(now))
        self._figures.look(self._previous, len(self._backlog.queued), now)
        self._around.knowledge.learn_members(self._statuses.of(living, self._previous))

    def route(self, group: GroupKey) -> Route | None:
        """The route of `group` as this term last wrote it, or found it written."""
        return self._keeper.written(group)

    def weighed(self) -> Weighed:
        """What the last placement went by."""
        return Weighed(dict(self._signals.loads), self._targets.cap, self._targets.release)

    async def set_drain(self, worker: str, on: bool) -> None:
        """See `View.set_drain`."""
        await self._commands.set_drain(worker, on=on)
