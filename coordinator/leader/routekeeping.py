"""The leader's hand on the routes: written once per change, watched all the time.

Routes are the real routing and anyone with access to them (an old leader that wakes from a pause)
may write them. What stands there and was not written by this term is repaired within one
`repair_seconds`, unless it carries a higher epoch: then that epoch is what the leader must pass.

Ten thousand routes take longer to write than a lease lasts. So they are written in batches, each
under the term as it is then, and in the order in which they matter: first routes whose addresses
are wrong, the busiest groups first; a route that lacks only this term's epoch comes last. Between
two batches a newer map may come in, and what it changes goes before all that is left.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import islice

from coordinator.election.contract import Term
from coordinator.leader.doubt import LeaseInDoubt
from coordinator.metrics.leading import TermFigures
from coordinator.planning.differences import differing
from coordinator.routes.contract import Route, Routes, Unreadable, WriteResult
from fleet.clock import Clock
from fleet.errors import RouteError
from fleet.model import EpochVersion, GroupKey, ShardMap
from fleet.telemetry import RateLimited

log = logging.getLogger(__name__)

REST_RATIO = 19
"""A look that takes long is followed by a rest of this many times its length: 5 % of a core ..."""

MOST_REST_SECONDS = 0.75
"""... but what somebody else wrote is repaired within a second."""

BATCH = 128
"""Routes a batch: 20 ms of EDS files; of slices at most 0.7 s on a loaded API server (it took 190
a second): well within any lease."""

STAMP_BATCH = 32
"""Of routes that lack only an epoch: a newer map waits for one such batch, about 0.25 s of slices,
which are written by few at a time."""

TURN_SECONDS = 1.0
"""After this long in one go the rest of the routes waits for the next look, so that neither the
leader's decisions nor repairs wait for ten thousand writes."""


def wanted_routes(
    shard_map: ShardMap, among: Iterable[GroupKey] | None = None
) -> dict[GroupKey, tuple[str, ...]]:
    """The owners' addresses of each group, or of those that are named."""
    addresses, placements = shard_map.addresses, shard_map.placements
    return {
        group: tuple(addresses[each] for each in placements[group].owners if each in addresses)
        for group in (placements if among is None else among)
    }


def changed_since(last: ShardMap | None, following: ShardMap) -> list[GroupKey] | None:
    """The groups whose routes may be others than in `last`; None = all may, or some are gone."""
    if last is None or last.version.epoch != following.version.epoch:
        return None
    if last.addresses != following.addresses:
        return None
    changed, gone = differing(last.placements, following.placements)
    known = all(group in last.placements for group in changed)
    return changed if known and not gone else None


def _no_loads() -> Mapping[GroupKey, float]:
    return {}


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
        loads: Callable[[], Mapping[GroupKey, float]] = _no_loads,
        figures: TermFigures | None = None,
    ) -> None:
        """See the parts' own words; `loads` are streams per second of each group, where known.
        `figures` counts what is written.
        """
        self._routes = routes
        self._term = term
        self._saw = saw
        self._count_stale = count_stale
        self._figures = figures or TermFigures()
        self._loads = loads
        self._loud = RateLimited(log, clock)
        self._clock = clock
        self._wanted: dict[GroupKey, Route] = {}
        self._written: dict[GroupKey, Route] = {}
        self._standing: Mapping[GroupKey, Route] = {}
        self._urgent: dict[GroupKey, Route] = {}
        self._stamps: dict[GroupKey, Route] = {}
        self._complete = False
        self._followed: ShardMap | None = None
        self._acts = 0
        self._right: tuple[Mapping[GroupKey, Route], int] | None = None
        self._pairs: dict[GroupKey, tuple[Route, Route]] = {}
        """What was found right at the last look, with what was wanted: ten thousand are passed over
        in a tenth of the time that comparing them takes."""
        self._turn = asyncio.Lock()

    async def take_over(self, shard_map: ShardMap | None) -> None:
        """Stamp every route with this epoch, whatever will be decided.

        With a map, routes are what it says; else what stands there. Nothing is done if a map of
        this term was faster. What takes longer than `TURN_SECONDS` goes on in `watch`.
        """
        standing = await self._read() or {}
        epoch = self._term().epoch
        known = {} if shard_map is None else wanted_routes(shard_map)
        addresses = {group: route.addresses for group, route in standing.items()} | known
        version = 0 if shard_map is None else shard_map.version.version
        async with self._turn:
            self._standing = standing
            if not self._complete:
                self._want(addresses, EpochVersion(epoch, version))
        await self._catch_up(stamps=True)

    async def follow(self, shard_map: ShardMap) -> None:
        """Write what differs from the last map; afterwards, remove what has no group any more.

        Routes that lack only the epoch, and what takes longer than `TURN_SECONDS`, are left to
        the next `repair`.
        """
        self._complete = True
        async with self._turn:
            changed = changed_since(self._followed, shard_map)
            self._followed = shard_map
            self._want(wanted_routes(shard_map, changed), shard_map.version, all_of=changed is None)
        await self._catch_up(stamps=False)
        if changed is not None:
            return
        async with self._turn:
            gone = [group for group in self._written if group not in self._wanted]
            if gone:
                await self._remove(gone)

    def written(self, group: GroupKey) -> Route | None:
        """The route as this term last wrote it, or found it right; None before."""
        return self._written.get(group)

    async def watch(self, repair_seconds: float) -> None:
        """Look and repair until cancelled."""
        while True:
            try:
                looked = await self.repair()
            except LeaseInDoubt:  # what is wrong now still is at the next look
                await self._clock.sleep(repair_seconds)
                continue
            left_over = bool(self._urgent or self._stamps)
            rest = max(repair_seconds, min(REST_RATIO * looked, MOST_REST_SECONDS))
            await self._clock.sleep(0.0 if left_over else rest)

    async def repair(self) -> float:
        """One look: rewrite every route that is not what this term wrote, and what was left over.

        Returns:
            How long the look itself took, in seconds.
        """
        began = self._clock.monotonic()
        before = dict(self._written)
        standing = await self._read()
        looked = self._clock.monotonic() - began
        if standing is not None:
            async with self._turn:
                self._standing = standing
                foreign = self._compare(standing, before)
            await self._catch_up(stamps=True)
            if foreign:
                async with self._turn:
                    await self._remove(group for group in foreign if group not in self._wanted)
        return looked

    def _compare(
        self, standing: Mapping[GroupKey, Route], before: Mapping[GroupKey, Route]
    ) -> list[GroupKey]:
        """Note what is to be written again; returns the groups that should not be there."""
        if self._right is not None:
            looked_at, acts = self._right
            if standing is looked_at and acts == self._acts:
                return []  # all of it was right, and nothing was written or wanted since
        self._right, right_all = None, self._complete
        known, pairs = self._pairs, dict[GroupKey, tuple[Route, Route]]()
        wrong = {}
        for group, route in self._wanted.items():
            pair = known.get(group)
            if pair is not None and pair[1] is route and standing.get(group) is pair[0]:
                pairs[group] = pair
                if self._written.get(group) is route:
                    continue  # found right before, and nothing is other since
            if group in self._urgent or self._written.get(group) is not before.get(group):
                right_all = False
                continue  # to be written anyway, or written while we looked
            found, stamping = standing.get(group), group in self._stamps
            if found is not None and not stamping and found == before.get(group) == route:
                pairs[group] = (found, route)
                continue
            right_all = False
            right = self._repaired(found, route, None if stamping else before.get(group))
            if right is not None and not (stamping and _same_addresses(found, right)):
                wrong[group] = right
        self._pairs = pairs
        for group in wrong:
            self._stamps.pop(group, None)
        self._urgent |= self._busy_first(wrong)
        if not self._complete:
            return []
        unreadable = self._routes.unreadable() if isinstance(self._routes, Unreadable) else ()
        others = standing.keys() - self._wanted.keys()
        foreign = [*others, *(group for group in unreadable if group not in self._wanted)]
        if right_all and not foreign:
            self._right = (standing, self._acts)
        return foreign

    def _repaired(self, found: Route | None, wanted: Route, written: Route | None) -> Route | None:
        """What to write over `found`, or None if it is right or not ours to change."""
        if found is None:
            return wanted
        right_there = _same_addresses(found, wanted) and found.version.epoch == wanted.version.epoch
        if right_there and written is not None:
            return None
        overtaken = found.version.epoch == wanted.version.epoch and found.version > wanted.version
        right = replace(wanted, version=found.version.next()) if overtaken else wanted
        if written is None:
            return right
        self._saw(found.version)
        if found.version.epoch > self._term().epoch:
            return None
        self._count_stale()
        log.warning(
            "route was not written by this leader",
            extra={"group": str(wanted.group), "found": str(found.version)},
        )
        return right

    def _want(
        self,
        addresses: Mapping[GroupKey, tuple[str, ...]],
        version: EpochVersion,
        *,
        all_of: bool = True,
    ) -> None:
        """Note what shall stand, and which routes must be written for it.

        Args:
            all_of: these are all that shall stand; else all others stay as they are noted.
        """
        self._acts += 1
        urgent: dict[GroupKey, Route] = {}
        stamps: dict[GroupKey, Route] = {}
        wanted: dict[GroupKey, Route] = {}
        for group, owners in addresses.items():
            route = self._wanted.get(group)
            stamped = route is not None and route.version.epoch == version.epoch
            if route is None or not stamped or route.addresses != owners:
                route = Route(group, owners, version)
            wanted[group] = route
            written = self._written.get(group)
            if written is route:
                continue
            only_stamp = _same_addresses(written or self._standing.get(group), route)
            (stamps if only_stamp else urgent)[group] = route
        if not all_of:
            urgent = {g: r for g, r in self._urgent.items() if g not in wanted} | urgent
            stamps = {g: r for g, r in self._stamps.items() if g not in wanted} | stamps
            wanted = self._wanted | wanted
        self._wanted = wanted
        self._urgent, self._stamps = self._busy_first(urgent), self._busy_first(stamps)

    async def _catch_up(self, *, stamps: bool) -> None:
        """Write what is noted, batch by batch, for at most `TURN_SECONDS`."""
        until = self._clock.monotonic() + TURN_SECONDS
        while True:
            async with self._turn:
                batch = self._next_batch(stamps=stamps)
                if not batch:
                    return
                await self._write(batch)
            if self._clock.monotonic() >= until:
                return

    def _next_batch(self, *, stamps: bool) -> list[Route]:
        if self._urgent:
            return list(islice(self._urgent.values(), BATCH))
        return list(islice(self._stamps.values(), STAMP_BATCH)) if stamps else []

    def _busy_first(self, noted: dict[GroupKey, Route]) -> dict[GroupKey, Route]:
        loads = self._loads()
        return dict(sorted(noted.items(), key=lambda item: -loads.get(item[0], 0.0)))

    async def _write(self, routes: list[Route]) -> None:
        term = self._term()
        self._acts += 1
        for route in routes:
            self._written.pop(route.group, None)
            self._urgent.pop(route.group, None)
            self._stamps.pop(route.group, None)
        began = self._clock.monotonic()
        try:
            result = await self._routes.write(routes, term)
        except RouteError as error:
            self._figures.routes_failed(len(routes), self._clock.monotonic() - began)
            self._followed = None  # the next map has all that failed written again
            self._loud.warning("routes not written", error=error)
            return
        self._figures.routes_written(result, self._clock.monotonic() - began)
        if result.refused:
            self._followed = None
        self._note(result)
        by_group = {route.group: route for route in routes}
        for group in (*result.written, *result.unchanged):
            self._wanted[group] = self._written[group] = by_group[group]

    async def _remove(self, groups: Iterable[GroupKey]) -> None:
        gone = list(groups)
        self._acts += 1
        for start in range(0, len(gone), BATCH):
            batch = gone[start : start + BATCH]
            try:
                self._note(await self._routes.remove(batch, self._term()))
            except RouteError as error:
                self._followed = None
                self._loud.warning("routes not removed", error=error)
                continue
            for group in batch:
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


def _same_addresses(found: Route | None, route: Route) -> bool:
    if found is None:
        return False
    # Ten thousand are compared at each look; nearly always they are one address, and equal.
    return found.addresses == route.addresses or set(found.addresses) == set(route.addresses)
