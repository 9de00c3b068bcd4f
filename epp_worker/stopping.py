"""From the wish to stop until nothing is lost by stopping."""

import asyncio
import logging
import math

from epp_worker.draining import Next, StopFacts, StopLimits, next_step
from epp_worker.worker import Worker
from fleet.errors import FleetError
from fleet.model import Hold
from fleet.settings import Settings
from fleet.settings.kinds import lease_ttl_seconds
from fleet.store.contract import Store

log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.1
_PEERS_SECONDS = 1.0
_LEADER_GAP = 2.0
"""In lease lifetimes: a leader that was here this recently is replaced, not gone."""


def stop_limits(settings: Settings) -> StopLimits:
    """How long a stop may wait for what."""
    return StopLimits(
        leader_gap=_LEADER_GAP * lease_ttl_seconds(settings),
        hand_over=settings.coordinator.move_deadline_seconds + settings.membership.ttl_seconds,
        streams=settings.worker.stream_drain_seconds,
        quiet=settings.worker.quiet_seconds,
    )


def stop_facts(worker: Worker, now: float, began: float, *, peers: bool | None) -> StopFacts:
    """All that decides when a stopping worker may leave.

    Args:
        now: loop time, as is `began`, when it was told to stop.
        peers: whether another worker lives that could take over; None if unknown.
    """
    groups = tuple(worker.holdings)
    strays = max((group.last_stray for group in groups), default=float("-inf"))
    return StopFacts(
        since_stop=now - began,
        held=sum(group.hold in (Hold.OWNER, Hold.OPENING) for group in groups),
        leader_away=worker.control.leader_away(now),
        peers=peers,
        open_streams=worker.counters.streams_open,
        since_needed=now - max(worker.holdings.last_owned, strays),
    )


class Departure:
    """A worker that was told to stop: hand over, wait, leave."""

    def __init__(self, worker: Worker, store: Store) -> None:
        self._worker = worker
        self._store = store
        self._limits = stop_limits(worker.settings)
        self._peers: bool | None = None
        self._alone_since = math.inf

    async def run(self) -> None:
        """Return when every stream has ended, or may be cut, and gateways are elsewhere."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        log.info("stopping: groups are handed over")
        self._worker.stop()
        looked = float("-inf")
        last = Next.HAND_OVER
        while True:
            if loop.time() - looked >= _PEERS_SECONDS:
                looked = loop.time()
                self._peers = await self._look_for_peers()
            facts = stop_facts(self._worker, loop.time(), began, peers=self._peers)
            step = next_step(facts, self._limits)
            if step is not last:
                last = step
                log.info(
                    "stopping: next step",
                    extra={
                        "step": step,
                        "held": facts.held,
                        "streams_open": facts.open_streams,
                        "peers": facts.peers,
                    },
                )
            if step is Next.LEAVE:
                break
            await asyncio.sleep(_LOOK_SECONDS)
        grace = max(0.0, self._limits.streams - (loop.time() - began))
        await self._worker.http2.close(grace)

    async def _look_for_peers(self) -> bool | None:
        """Whether another worker lives that does not drain itself; None if it never was known.

        A leader that is connected knows best, also while the store is away. A store that does not
        know this worker either has been emptied: what was known before still counts. So it does for
        a TTL where the store knows nobody else: others may not have beaten again yet.
        """
        told = self._worker.control.others()
        if told is not None:
            return told
        try:
            members = await self._store.members()
        except FleetError:
            return self._peers
        if all(beat.member.id != self._worker.id for beat in members):
            return self._peers
        ttl = self._worker.settings.membership.ttl_seconds
        now = asyncio.get_running_loop().time()
        if any(
            beat.member.id != self._worker.id
            and beat.age_seconds <= ttl
            and not beat.member.draining
            for beat in members
        ):
            self._alone_since = math.inf
            return True
        self._alone_since = min(self._alone_since, now)
        return False if now - self._alone_since >= ttl else self._peers
