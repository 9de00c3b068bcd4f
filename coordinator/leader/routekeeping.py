"""The leader's hand on the routes: written once per change, watched all the time.

Routes are the real routing and anyone with access to the folder (an old leader that wakes from a
pause) may write them. What stands there and was not written by this term is repaired within one
`repair_seconds`, unless it carries a higher epoch: then that epoch is what the leader must pass.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from coordinator.election.contract import Term
from coordinator.leader.doubt import LeaseInDoubt
from coordinator.routes.contract import Route, Routes, WriteResult
from fleet.clock import Clock
from fleet.errors import RouteError
from fleet.model import EpochVersion, GroupKey, ShardMap
from fleet.telemetry import RateLimited

log = logging.getLogger(__name__)

REST_RATIO = 4
"""A look that takes long is followed by a rest of this many times its length."""


def wanted_routes(shard_map: ShardMap) -> dict[GroupKey, tuple[str, ...]]:
    """The owners' addresses of each group."""
    addresses = shard_map.addresses
    return {
        group: tuple(addresses[owner] for owner in placement.owners if owner in addresses)
        for group, placement in shard_map.placements.items()
    }


class RouteKeeper:
    """The routes of one term."""

    def __init__(
        self,
        routes: Routes,
        *,
        term: Callable[[], Term],
        saw: Callable[[EpochVersion], None],
        count_stale: Callable[[], None],
        clock: Clock,
    ) -> None:
        self._routes = routes
        self._term = term
        self._saw = saw
        self._count_stale = count_stale
        self._loud = RateLimited(log, clock)
        self._clock = clock
        self._wanted: dict[GroupKey, Route] = {}
        self._written: dict[GroupKey, Route] = {}
        self._complete = False
        self._turn = asyncio.Lock()

    async def take_over(self, shard_map: ShardMap | None) -> None:
        """Stamp every route with this epoch at once, whatever will be decided.

        With a map, routes are what it says; else what stands there. Nothing is done if a map of
        this term was faster.
        """
        standing = await self._read() or {}
        epoch = self._term().epoch
        known = {} if shard_map is None else wanted_routes(shard_map)
        addresses = {group: route.addresses for group, route in standing.items()} | known
        version = 0 if shard_map is None else shard_map.version.version
        async with self._turn:
            if not self._complete:
                await self._want(addresses, EpochVersion(epoch, version))

    async def follow(self, shard_map: ShardMap) -> None:
        """Write what differs from the last map; afterwards, remove what has no group any more."""
        self._complete = True
        wanted = wanted_routes(shard_map)
        async with self._turn:
            await self._want(wanted, shard_map.version)
            gone = [group for group in self._written if group not in wanted]
            if gone:
                await self._remove(gone)

    async def watch(self, repair_seconds: float) -> None:
        """Look and repair until cancelled."""
        while True:
            began = self._clock.monotonic()
            with contextlib.suppress(LeaseInDoubt):  # what is wrong now still is at the next look
                await self.repair()
            took = self._clock.monotonic() - began
            await self._clock.sleep(max(repair_seconds, REST_RATIO * took))

    async def repair(self) -> None:
        """One look: rewrite every route that is not what this term wrote."""
        before = dict(self._written)
        standing = await self._read()
        if standing is None:
            return
        async with self._turn:
            wrong, foreign = [], []
            for group, route in self._wanted.items():
                if self._written.get(group) is not before.get(group):
                    continue  # written while we looked
                right = self._repaired(standing.get(group), route, before.get(group))
                if right is not None:
                    wrong.append(right)
            if self._complete:
                foreign = [group for group in standing if group not in self._wanted]
            if wrong:
                await self._write(wrong)
            if foreign:
                await self._remove(foreign)

    def _repaired(self, found: Route | None, wanted: Route, written: Route | None) -> Route | None:
        """What to write over `found`, or None if it is right or not ours to change."""
        if found is None or written is None:
            return wanted
        same = set(found.addresses) == set(wanted.addresses)
        if same and found.version.epoch == wanted.version.epoch:
            return None
        self._saw(found.version)
        if found.version.epoch > self._term().epoch:
            return None
        self._count_stale()
        log.warning(
            "route was not written by this leader",
            extra={"group": str(wanted.group), "found": str(found.version)},
        )
        if found.version < wanted.version:
            return wanted
        return replace(wanted, version=found.version.next())

    async def _want(
        self, addresses: Mapping[GroupKey, tuple[str, ...]], version: EpochVersion
    ) -> None:
        changed = []
        wanted: dict[GroupKey, Route] = {}
        for group, owners in addresses.items():
            route = self._wanted.get(group)
            stamped = route is not None and route.version.epoch == version.epoch
            if route is None or not stamped or route.addresses != owners:
                route = Route(group, owners, version)
            if self._written.get(group) is not route:
                changed.append(route)
            wanted[group] = route
        self._wanted = wanted
        if changed:
            await self._write(changed)

    async def _write(self, routes: list[Route]) -> None:
        for route in routes:
            self._written.pop(route.group, None)
        term = self._term()
        try:
            result = await self._routes.write(routes, term)
        except RouteError as error:
            self._loud.warning("routes not written", error=error)
            return
        self._note(result)
        by_group = {route.group: route for route in routes}
        for group in (*result.written, *result.unchanged):
            self._wanted[group] = self._written[group] = by_group[group]

    async def _remove(self, groups: Iterable[GroupKey]) -> None:
        gone = list(groups)
        try:
            self._note(await self._routes.remove(gone, self._term()))
        except RouteError as error:
            self._loud.warning("routes not removed", error=error)
            return
        for group in gone:
            self._written.pop(group, None)

    def _note(self, result: WriteResult) -> None:
        if result.highest_epoch > self._term().epoch:
            self._saw(EpochVersion(result.highest_epoch, 0))

    async def _read(self) -> Mapping[GroupKey, Route] | None:
        try:
            return await self._routes.read()
        except RouteError as error:
            self._loud.warning("routes not read", error=error)
            return None
