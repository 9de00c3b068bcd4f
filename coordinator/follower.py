"""A coordinator that does not lead keeps the newest map: the leader pushes it, the store has it.

Either way alone is enough. While this coordinator leads, it learns from itself.
"""

import asyncio
import logging
from collections.abc import Callable

from coordinator.knowledge import Knowledge
from coordinator.mapping import MapMerging
from coordinator.reach import LeaderReach, StreamEnded
from fleet.clock import Clock
from fleet.errors import FleetError
from fleet.model import LeaderInfo
from fleet.model.identity import NONE
from fleet.store.contract import Store
from fleet.telemetry import RateLimited

log = logging.getLogger(__name__)

SILENT_SECONDS = 3.0
"""The leader pushes every second: a stream that is silent for longer is dialled anew."""

LOOK_SECONDS = 0.1
"""How often a follower without a stream looks whether there is a leader."""


class Follower:
    """Keeps `knowledge` fresh while somebody else leads."""

    def __init__(
        self,
        *,
        knowledge: Knowledge,
        store: Store,
        leader: Callable[[], LeaderInfo | None],
        leading: Callable[[], bool],
        reach: LeaderReach,
        poll_seconds: float,
        clock: Clock,
    ) -> None:
        """Args:
        leader: who leads now, as the lease says.
        leading: whether this process does.
        """
        self._knowledge = knowledge
        self._store = store
        self._leader = leader
        self._leading = leading
        self._reach = reach
        self._poll_seconds = poll_seconds
        self._clock = clock
        self._loud = RateLimited(log, clock)
        self._hears = False

    def hears(self) -> bool:
        """Whether the leader's stream is open and has brought something."""
        return self._hears

    async def run(self) -> None:
        """Follow until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._poll(), name="map poll")
            tasks.create_task(self._subscribe(), name="map subscription")

    async def _poll(self) -> None:
        while True:
            if not self._leading():
                await self._look()
            await self._clock.sleep(self._poll_seconds)

    async def _look(self) -> None:
        known = self._knowledge.shard_map
        try:
            found = await self._store.shard_map(NONE if known is None else known.version)
        except FleetError as error:
            self._loud.warning("map not read from the store", error=error)
            return
        if self._leading():
            return
        if found is not None:
            self._knowledge.learn_map(found)
        if self._knowledge.shard_map is not None:
            self._knowledge.confirmed = self._clock.monotonic()

    async def _subscribe(self) -> None:
        while True:
            leader = None if self._leading() else self._leader()
            if leader is not None:
                await self._follow(leader)
            await self._clock.sleep(LOOK_SECONDS)

    async def _follow(self, leader: LeaderInfo) -> None:
        """Read from one leader until its stream ends or another one leads."""
        stream = self._reach.map_stream(leader)
        merging = MapMerging()
        try:
            while not self._leading() and self._leader() == leader:
                async with asyncio.timeout(SILENT_SECONDS):
                    update = await stream.receive()
                if update is None:
                    return
                if not self._hears:
                    log.info("following", extra={"leader": leader.id})
                self._hears = True
                shard_map = merging.whole(update)
                if shard_map is not None:
                    self._knowledge.learn_map(shard_map)
                self._knowledge.confirmed = self._clock.monotonic()
                if not self._leading():
                    self._knowledge.learn_members(update.members)
        except (TimeoutError, FleetError) as error:
            why = await self._why(leader, error)
            self._loud.log(
                logging.INFO, "leader's map stream ended", key=leader.id, extra={"why": why}
            )
        finally:
            self._hears = False
            await stream.close()

    async def _why(self, leader: LeaderInfo, error: Exception) -> str:
        if not isinstance(error, StreamEnded):
            return str(error)
        found = await self._reach.leader_fault(leader) if error.unreached else None
        return found or f"{error.code}: {str(error)[:500]}"
