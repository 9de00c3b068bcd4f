"""The worker: every part put together, what it says of itself, and what a leader may change.

source -> catalogue -> holdings -> ext_proc, health
leader -> control ---> holdings -> reports
store  <- beats            store -> share (as a repair)
"""

import asyncio
import logging
import secrets
from collections.abc import Callable, Mapping
from importlib.metadata import version as package_version
from typing import Any

import grpc.aio

from epp_worker.beats import Beats, ShareRepair
from epp_worker.bounds import MESSAGE_SLACK, BoundWatch, http2_limits
from epp_worker.catalogue import Catalogue
from epp_worker.control.port import PeerService
from epp_worker.control.server import Control
from epp_worker.describe import describe_holdings
from epp_worker.extproc.session import WAIT_SECONDS
from epp_worker.following_configs import follow_configs, follow_models, schedulers_of
from epp_worker.gathering import gather
from epp_worker.handover.streams import state_streams
from epp_worker.health import HealthService, pool_statuses, process_statuses
from epp_worker.hearsay.seeds import Seeds
from epp_worker.holdings import Holdings
from epp_worker.holds import Ruling
from epp_worker.http2.server import Http2Server
from epp_worker.loopwatch import LoopWatch
from epp_worker.metrics import Figures, PickCounts
from epp_worker.neighbourhood import forward_streams, listen_to_peers, questions
from epp_worker.neighbours import Neighbours
from epp_worker.peers import Peers
from epp_worker.process import PATH, ExtProc
from epp_worker.requests.moment import Requests
from epp_worker.sessions import Sessions
from epp_worker.strays import StrayBounds, StrayGate
from epp_worker.surroundings import Surroundings
from epp_worker.turns import Turns
from epp_worker.wheel import Wheel
from epp_worker.whereabouts import Whereabouts
from fleet.control.codec import MAX_MESSAGE_BYTES
from fleet.control.messages import Report
from fleet.model import Addresses, EpochVersion, Load, Member, Share
from fleet.model.identity import NONE
from fleet.settings import Settings
from fleet.supervisor import Supervisor
from fleet.telemetry import RateLimited

log = logging.getLogger(__name__)

_STRAY_SHARE = 4
"""Held strays may take this part of the worker's body budget."""


class Worker:
    """One life of a worker process. Made on the running loop that serves it.

    Args:
        fatal: called once with the reason when a task that must live has died.
        refused: called when the leader refuses this process for good.
    """

    def __init__(
        self,
        worker_id: str,
        settings: Settings,
        token: str,
        given: Surroundings,
        *,
        fatal: Callable[[str], None],
        refused: Callable[[str], None],
    ) -> None:
        own = settings.worker
        loop = asyncio.get_running_loop()
        limited = RateLimited(log, given.clock, seconds=5.0)
        self.id = worker_id
        self.settings = settings
        self.supervisor = Supervisor(self._failed)
        self.picks = PickCounts()
        self.watch = LoopWatch(given.clock)
        self.health = HealthService()
        self.addresses = Addresses("", "", "", "")
        self.draining = False
        """The drain mark: hand everything away, take nothing."""
        self.stopping = False
        """Told to end: also hand everything away, and be ready no more."""
        self._given = given
        self._fatal = fatal
        self._refused = refused
        self._limited = limited
        self._started = given.clock.wall()
        self._began = loop.time()
        self._publishing = False
        self._synced = False
        self._catalogue = Catalogue(given.source, self.supervisor.spawn)
        self.holdings = Holdings(
            self._catalogue,
            given.scraper,
            self.supervisor.spawn,
            fleet=settings.fleet,
            worker=worker_id,
            incarnation=new_incarnation(),
            quiet_seconds=own.quiet_seconds,
            now=loop.time,
            rng=given.rng,
            schedulers=schedulers_of(given.picking),
            prefix_bytes=settings.bounds.max_prefix_index_bytes,
        )
        self._wheel = Wheel(loop)
        bounds = StrayBounds(own.stray_hold_streams, own.max_buffered_bytes // _STRAY_SHARE)
        first, longer = own.stray_hold_seconds, own.opening_hold_seconds
        lanes = self._wheel.lane(first), self._wheel.lane(longer - first)
        self.gate = StrayGate(bounds, *lanes, self.holdings.opens)
        turns = Turns(loop.call_soon, loop.time)
        self.requests = Requests(self.picks, loop.time, twins=own.legacy_metrics)
        sessions = Sessions(own, settings.bounds, self.requests, given.rng, self._leaving)
        self.ext_proc = ExtProc(
            self._catalogue,
            self.holdings,
            self.gate,
            self._wheel.lane(WAIT_SECONDS),
            sessions,
            turns,
            propagation_seconds=own.propagation_seconds,
            now=loop.time,
            limited=limited,
        )
        self.http2 = Http2Server(
            {PATH: self.ext_proc},
            limits=http2_limits(settings, given.connections),
            tls=given.tls,
        )
        self.bounds = BoundWatch(self.http2, sessions.budget, turns)
        self.counters = self.http2.counters
        self.beats = Beats(
            given.store,
            self.member,
            heartbeat_seconds=settings.membership.heartbeat_seconds,
            rng=given.rng,
            limited=limited,
        )
        self._repair = ShareRepair(
            given.store,
            worker_id,
            self.apply,
            poll_seconds=own.share_poll_seconds,
            limited=limited,
        )
        self.certificates = given.certificates
        self.max_message_bytes = max(MAX_MESSAGE_BYTES, own.max_body_bytes + MESSAGE_SLACK)
        self.peers = Peers(
            worker_id, token, given.certificates, self._close_soon, self.max_message_bytes
        )
        self.whereabouts = Whereabouts(loop.time)
        self.control = Control(
            settings.fleet,
            token,
            self,
            Neighbours(self.peers, self.whereabouts),
            self.beats.interval,
            limited,
            given.certificates,
        )
        self._state = state_streams(self, self._wheel, given.rng, limited)
        self.services: list[PeerService] = [
            self._state.service,
            forward_streams(self, own.max_buffered_bytes // _STRAY_SHARE, limited),
            *questions(self, self._catalogue.unready, limited),
        ]
        self.hearsay = listen_to_peers(self, Seeds(own.peers, given.store))
        self.holdings.on_change(self._changed)

    # Life.

    async def open_source(self) -> None:
        """Know the pools; returns when their first list is here."""
        self.supervisor.run(self.watch.run(), "loop watch")
        self.supervisor.run(self._given.scraper.run(), "scraper")
        follow_configs(self._given.picking, self.holdings, self.supervisor)
        follow_models(self._given.models, self.holdings, self.supervisor, self._given.clock)
        await self._given.source.start()
        await self._catalogue.start(self.holdings.pools_changed)
        self._synced = True

    async def join(self) -> None:
        """Take part in the fleet: the listeners are up and `addresses` says where."""
        self.supervisor.run(self._tick(), "heartbeat")
        self.supervisor.run(self.beats.run(), "beats")
        self.supervisor.run(self._repair.run(), "share repair")
        self.supervisor.spawn(self.hearsay.run(), "ask peers")

    async def close(self) -> None:
        """End every task and give up what was borrowed."""
        await self.supervisor.close()
        await self.peers.close()
        self._wheel.close()
        self._catalogue.close()
        await self._given.source.close()
        await self._given.store.close()

    async def _tick(self) -> None:
        heartbeat = self.settings.membership.heartbeat_seconds
        clock = self._given.clock
        last = clock.monotonic()
        while True:
            await asyncio.sleep(heartbeat)
            now = clock.monotonic()
            self.holdings.tick(now - last)
            self.ext_proc.tick()
            self.requests.keep(group.states for group in self.holdings)
            trim = self.bounds.trim(now)
            if trim is not None:
                self.supervisor.spawn(asyncio.to_thread(trim), "give memory back")
            last = now

    def _close_soon(self, channel: grpc.aio.Channel, grace: float | None) -> None:
        self.supervisor.spawn(channel.close(grace), "close a channel")

    def _failed(self, reason: str) -> None:
        self.publish_health()
        self._fatal(reason)

    # What it says of itself.

    def member(self) -> Member:
        """See `Commands.member`."""
        own = self.settings.worker
        return Member(
            id=self.id,
            incarnation=self.holdings.incarnation,
            addresses=self.addresses,
            zone=own.zone,
            node=own.node,
            version=f"{_VERSION}+{own.release}" if own.release else _VERSION,
            weight=own.weight,
            started=self._started,
            draining=self._leaving(),
            seen=self.holdings.seen,
            holds=self.holdings.holds(),
            load=self._load(),
            applied=NONE if self.holdings.hearsay else self.holdings.applied,
        )

    def report(self) -> Report:
        """See `Commands.report`."""
        return Report(
            version=self.holdings.applied,
            seen=self.holdings.seen,
            holds=self.holdings.reports(),
            draining=self._leaving(),
            load=self._load(),
        )

    def _leaving(self) -> bool:
        return self.draining or self.stopping

    def _load(self) -> Load:
        return Load(
            streams_per_second=round(sum(group.rate for group in self.holdings), 3),
            streams_open=self.counters.streams_open,
            loop_lag_ms=round(self.watch.lag_seconds() * 1000, 3),
        )

    def unwell(self) -> str | None:
        """Why this process should be restarted; None if it is fine."""
        return self.supervisor.failed

    def unready(self) -> str | None:
        """Why this worker is not ready; None if it is. Neither leader nor store matter for it."""
        if self.supervisor.failed is not None:
            return self.supervisor.failed
        if self.stopping:
            return "stopping"
        if not self._synced:
            return "the pools are not listed yet"
        if not self.holdings.told:
            return "no leader has said yet what to hold"
        return None

    def figures(self) -> Figures:
        """See `Inside.figures`."""
        return gather(
            self.counters,
            self.picks,
            self.requests,
            self.gate,
            self.watch,
            self.holdings,
            self._given,
            self._state.figures(),
            self.bounds,
            self._map_age(),
        )

    def _map_age(self) -> float:
        """Since a leader or the store last said what to hold, in seconds."""
        now = asyncio.get_running_loop().time()
        told = now - max(self._repair.read_at, self._began)
        return min(told, self.control.leader_away(now))

    def describe(self) -> Mapping[str, Any]:
        """See `Inside.describe`."""
        leader = self.control.leader()
        return {
            "format": 1,
            "id": self.id,
            "leader": leader.leader.id if leader is not None else None,
            "draining": self._leaving(),
            "unready": self.unready(),
            **describe_holdings(self.holdings, self._given.source.problems()),
        }

    # What a leader may change.

    def seen(self) -> EpochVersion:
        """See `Commands.seen`."""
        return self.holdings.seen

    def see(self, version: EpochVersion) -> None:
        """See `Commands.see`."""
        self.holdings.see(version)

    def apply(self, share: Share, *, hearsay: bool = False) -> Ruling:
        """Apply a share, from a leader or from the store, or as peers remember it."""
        ruling = self.holdings.apply(share, hearsay=hearsay)
        if ruling not in (Ruling.APPLY, Ruling.NOT_NEWER):
            extra = {"ruling": ruling.value, "map": str(share.version)}
            self._limited.warning("share refused", key=ruling.value, extra=extra)
        return ruling

    def assign(self, share: Share) -> None:
        """See `Commands.assign`."""
        self.apply(share)

    def set_drain(self, on: bool) -> None:
        """See `Commands.set_drain`."""
        if on != self.draining:
            log.info("drain mark set" if on else "drain mark lifted")
        self.draining = on
        self._tell()

    def stop(self) -> None:
        """Begin to leave: readiness ends, the leader and the store are told."""
        self.stopping = True
        self._publish_soon()
        self._tell()

    def rejoin(self, reason: str) -> None:
        """See `Commands.rejoin`."""
        old, new = self.holdings.incarnation, new_incarnation()
        log.warning("declared dead, joining anew", extra={"reason": reason, "incarnation": old})
        self.holdings.rejoin(new)
        self._tell()

    def duplicate(self, reason: str) -> None:
        """See `Commands.duplicate`."""
        log.critical("this id is taken by another worker", extra={"id": self.id, "reason": reason})
        self._refused(reason)

    # Changes.

    def _tell(self) -> None:
        self.control.notify()
        self.beats.now()

    def _changed(self) -> None:
        self.ext_proc.changed()
        self.control.notify()
        self._publish_soon()

    def _publish_soon(self) -> None:
        if not self._publishing:
            self._publishing = True
            asyncio.get_running_loop().call_soon(self.publish_health)

    def publish_health(self) -> None:
        """Tell the health service how things stand."""
        self._publishing = False
        unwell = self.supervisor.failed is not None
        ready, serving = self.unready() is None, self._synced and not unwell
        statuses = process_statuses(live=not unwell, ready=ready, serving=serving)
        self.health.publish({**pool_statuses(self.holdings), **statuses})


def new_incarnation() -> str:
    """A name for one life of a worker; never used twice."""
    return secrets.token_hex(8)


_VERSION = package_version("epp-fleet")
