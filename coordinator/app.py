"""A coordinator: election, leader, follower and the view that its HTTP side shows."""

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from coordinator.deletion_cost import DeletionCosts
from coordinator.election.candidate import Candidate
from coordinator.election.contract import Election
from coordinator.election.leadership import Leadership
from coordinator.election.redis import StoreElection
from coordinator.endpoints import EndpointQuestions
from coordinator.estate import Estate
from coordinator.explain import Explained, Explainer
from coordinator.follower import Follower
from coordinator.grpc_reach import GrpcReach
from coordinator.internal import MapFeed, start_internal
from coordinator.knowledge import Knowledge
from coordinator.leader.storing import StoreLag
from coordinator.leader.surroundings import Surroundings
from coordinator.leader.term import LeaderTerm
from coordinator.metrics import Metrics
from coordinator.metrics.pools import Leading
from coordinator.reach import Reach
from coordinator.routes.contract import Routes
from coordinator.view import EndpointsUnknown, NotLeading
from coordinator.web import start_web
from coordinator.whatif import Premises
from coordinator.worker_pods import WorkerPods
from fleet.certificates import Certificates
from fleet.clock import Clock
from fleet.control.endpoint_messages import PoolEndpoints
from fleet.kube.contract import KubeApi
from fleet.kube.read_access import Decides
from fleet.model import LeaderInfo, MemberStatus, PoolRef, ShardMap
from fleet.model.identity import host_port
from fleet.picking.folder import ConfigSource
from fleet.settings.model import Settings
from fleet.sources.contract import Source
from fleet.store.contract import Move, Store
from fleet.supervisor import Supervisor

log = logging.getLogger(__name__)

Elect = Callable[[LeaderInfo], Election]
"""Makes this coordinator's side of the election, once its own addresses are known."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What a coordinator stands on; it closes none of them.

    Attributes:
        elect: this coordinator's side of the election; None = the lease is in the store.
        cluster: the API server that the source reads; None = it reads none, and nobody looks at
            Services or at the workers' pods.
        certificates: of the internal port; None = it speaks plaintext.
        reach: the ways to workers and to the leader; None = gRPC and TCP.
        read_access: decides who may read by HTTP; None = everybody.
        picking: the picker configurations; None = there are none.
    """

    store: Store
    routes: Routes
    source: Source
    clock: Clock
    rng: random.Random
    elect: Elect | None = None
    cluster: KubeApi | None = None
    certificates: Certificates | None = None
    reach: Reach | None = None
    read_access: Decides | None = None
    picking: ConfigSource | None = None


class Coordinator:
    """One replica; implements `coordinator.view.View`."""

    def __init__(self, name: str, settings: Settings, token: str, parts: Parts) -> None:
        self._id = name
        self._settings = settings
        self._token = token
        self._parts = parts
        self._reach = parts.reach or GrpcReach(token, parts.certificates)
        self._knowledge = Knowledge()
        self._questions = EndpointQuestions(settings.fleet, token, parts.certificates)
        self.feed = MapFeed(self._knowledge, self.leading, parts.certificates, parts.clock)
        """What followers are told."""
        self._metrics = Metrics(settings.metrics)
        self._store_lag = StoreLag(parts.clock)
        self._supervisor = Supervisor(lambda reason: None)
        self._term: LeaderTerm | None = None
        self._candidate: Candidate | None = None
        self._follower: Follower | None = None
        self._election: Election | None = None
        self._estate: Estate | None = None
        self._explainer: Explainer | None = None
        self._pods: WorkerPods | None = None
        self._costs: DeletionCosts | None = None
        self._began = parts.clock.monotonic()
        self._metrics.show(self, self._epoch)
        self._metrics.show_terms(self._as_leader, self._map_age, parts.clock.wall)
        if parts.certificates is not None:
            self._metrics.show_expiry(parts.certificates.expiry_seconds)
        self._metrics.show_source(parts.source)
        self._metrics.show_store(parts.store, self._store_lag.seconds)
        self._metrics.show_routes(parts.routes)

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set; then stop acting, give the lease up and close.

        Raises:
            FleetError: a listener's port is taken.
        """
        own = self._settings.coordinator
        web = await start_web(
            self,
            host=own.host,
            port=own.http_port,
            token=self._token,
            registry=self._metrics.registry,
            access=self._parts.read_access,
        )
        try:
            server, internal_port = await start_internal(
                self.feed, token=self._token, host=own.host, port=own.internal_port
            )
            try:
                await self.take_part(self._me(web.port, internal_port), stop)
            finally:
                await server.stop(None)
        finally:
            await web.close()

    def _me(self, http_port: int, internal_port: int) -> LeaderInfo:
        host = self._settings.coordinator.advertise_host or self._settings.coordinator.host
        return LeaderInfo(self._id, host_port(host, http_port), host_port(host, internal_port))

    async def take_part(self, me: LeaderInfo, stop: asyncio.Event) -> None:
        """All that `run` does between opening and closing its listeners, which are at `me`."""
        parts = self._parts
        estate = self._estate = Estate(
            self._settings,
            parts.source,
            parts.cluster,
            me=me.id,
            leading=self.leading,
            shard_map=self.shard_map,
            clock=parts.clock,
            rng=parts.rng,
            picking=parts.picking,
        )
        self._metrics.show_claims(estate.claims)
        self._explainer = Explainer(
            estate, parts.source, parts.routes, vnodes=self._settings.placement.vnodes
        )
        if parts.cluster is not None:
            self._pods = WorkerPods(parts.cluster, self._settings, parts.clock, rng=parts.rng)
            self._costs = DeletionCosts(parts.cluster, self._pods, parts.clock)
        election = self._election = self._elect(me)
        candidate = self._candidate = Candidate(
            election,
            parts.clock,
            floor=self._floor,
            lead=self._lead,
            rng=parts.rng,
            me=me.id,
            on_rollback=lambda _: self._rolled_back(),
            figures=self._metrics.election,
        )
        follower = self._follower = Follower(
            knowledge=self._knowledge,
            store=parts.store,
            leader=self._known_leader,
            leading=self.leading,
            reach=self._reach,
            poll_seconds=self._settings.coordinator.map_poll_seconds,
            clock=parts.clock,
        )
        try:
            self._supervisor.run(follower.run(), "follower")
            self._supervisor.run(election.watch(), "lease watch")
            if self._pods is not None:
                self._pods.start()
            for loop, name in estate.start():
                self._supervisor.run(loop, name)
            if parts.picking is not None:
                self._supervisor.spawn(parts.picking.run(), "picker configurations")
            self._supervisor.run(candidate.run(), "candidate")
            log.info("coordinator up", extra={"http": me.http, "internal": me.internal})
            await stop.wait()
        finally:
            await self._supervisor.close()
            await estate.close()
            if self._pods is not None:
                await self._pods.close()

    def _elect(self, me: LeaderInfo) -> Election:
        parts = self._parts
        if parts.elect is not None:
            return parts.elect(me)
        return StoreElection(parts.store, me, self._settings.election, parts.clock)

    # -- leading --------------------------------------------------------------------------------

    async def _floor(self) -> int:
        """The highest epoch that we know of outside the store: routes, workers, our own memory.

        Raises:
            RouteError: routes cannot be read, so a leader could not tell its own from others'.
        """
        known = self._knowledge.shard_map
        memory = 0 if known is None else known.version.epoch
        members = max((s.member.seen.epoch for s in self._knowledge.members), default=0)
        routes = await self._parts.routes.read()
        return max([memory, members, *(route.version.epoch for route in routes.values())])

    async def _lead(self, leadership: Leadership) -> None:
        if self._candidate is None or self._estate is None:
            raise RuntimeError("a term began before the candidate did")
        surroundings = Surroundings(
            self._settings,
            self._reach,
            self._parts.store,
            self._parts.routes,
            self._estate.groups,
            self._knowledge,
            self._metrics,
            self._parts.clock,
            self._estate.services,
            self._pods,
            self._costs,
            in_store=self._election is None or self._election.in_store,
            store_lag=self._store_lag,
        )
        term = LeaderTerm(leadership, surroundings, self._candidate.require_epoch_above)
        self._term = term
        try:
            await term.run()
        finally:
            self._term = None
            self._knowledge.confirmed = self._parts.clock.monotonic()

    def _rolled_back(self) -> None:
        if self._term is not None:
            self._term.rolled_back()

    def _as_leader(self) -> Leading | None:
        shard_map, term = self.shard_map(), self._term
        if shard_map is None or term is None or not self.leading():
            return None
        return Leading(shard_map, tuple(self.members()), term.weighed().rates)

    def _map_age(self) -> float:
        """Since the map known here was last confirmed, in seconds; a leader's own is the newest."""
        if self._term is not None and self.leading():
            return 0.0
        confirmed = self._knowledge.confirmed
        since = self._began if confirmed is None else confirmed
        return self._parts.clock.monotonic() - since

    def _epoch(self) -> int:
        """The highest epoch known here."""
        known = self._knowledge.shard_map
        memory = 0 if known is None else known.version.epoch
        leadership = None if self._candidate is None else self._candidate.leadership()
        return max(
            memory,
            0 if leadership is None else leadership.term.epoch,
            0 if self._candidate is None else self._candidate.standing().epoch,
        )

    # -- the view -------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """See `View.id`."""
        return self._id

    def shard_map(self) -> ShardMap | None:
        """See `View.shard_map`."""
        return self._knowledge.shard_map

    def members(self) -> Sequence[MemberStatus]:
        """See `View.members`."""
        return self._knowledge.members

    def leader(self) -> LeaderInfo | None:
        """See `View.leader`; nobody once neither the lease nor the leader itself can be read."""
        if self._candidate is None or self._follower is None:
            return None
        if self._candidate.stale() and not self._follower.hears() and not self.leading():
            return None
        return self._known_leader()

    def _known_leader(self) -> LeaderInfo | None:
        """Who led when the lease was last read."""
        if self._candidate is None:
            return None
        leadership = self._candidate.leadership()
        if leadership is not None and leadership.valid():
            return leadership.term.leader
        return self._candidate.standing().leader

    def leading(self) -> bool:
        """See `View.leading`."""
        leadership = None if self._candidate is None else self._candidate.leadership()
        return leadership is not None and leadership.valid()

    def explain(self, ref: PoolRef) -> Explained | None:
        """See `View.explain`."""
        if self._explainer is None:
            return None
        term = self._term if self.leading() else None
        return self._explainer.explain(
            ref,
            shard_map=self.shard_map(),
            members=self.members(),
            written=None if term is None else term.route,
            weighed=None if term is None else term.weighed(),
        )

    def revision(self) -> int:
        """See `View.revision`."""
        return self._knowledge.revision

    async def after(self, revision: int) -> None:
        """See `View.after`."""
        await self._knowledge.after(revision)

    async def endpoints(self, ref: PoolRef) -> PoolEndpoints:
        """See `View.endpoints`."""
        shard_map = self.shard_map()
        if shard_map is None:
            raise EndpointsUnknown("this coordinator has not seen a shard map yet")
        return await self._questions.ask(ref, shard_map, self.members())

    async def moves(self, limit: int) -> Sequence[Move]:
        """See `View.moves`."""
        return await self._parts.store.moves(limit)

    def skipped(self, ref: PoolRef) -> Sequence[str]:
        """See `View.skipped`."""
        return () if self._explainer is None else self._explainer.problems(ref)

    def premises(self) -> Premises | None:
        """See `View.premises`; only the leader knows loads."""
        shard_map = self.shard_map()
        if shard_map is None or self._estate is None:
            return None
        term = self._term if self.leading() else None
        return Premises(
            shard_map,
            tuple(self.members()),
            self._estate.groups.pins(),
            None if term is None else term.weighed().rates,
            self._settings.placement,
        )

    def ready(self) -> str | None:
        """See `View.ready`."""
        if self._supervisor.failed is not None:
            return self._supervisor.failed
        if self._candidate is None or self._estate is None:
            return "starting"
        if not self._estate.groups.synced():
            return f"{self._estate.claims.unlisted()} are not listed yet"
        if not self._candidate.standing().epoch and self._knowledge.shard_map is None:
            return "neither a leader nor a map was heard of yet"
        return None

    def alive(self) -> bool:
        """See `View.alive`."""
        return self._supervisor.failed is None

    async def set_drain(self, worker: str, on: bool) -> None:
        """See `View.set_drain`."""
        term = self._term
        if term is None or not self.leading():
            raise NotLeading(self.leader())
        await term.set_drain(worker, on)
