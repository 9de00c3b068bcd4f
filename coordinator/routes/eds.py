"""Routes as Envoy EDS files: one file per route group, replaced by rename, fenced by epoch.

The rules, for each file:

1. Under its lock, what stands there is read and the route is refused if that has a higher epoch,
   or a higher version of the same epoch; then the term's deadline is looked at; then the file is
   renamed into place (Envoy follows renames). A lock that somebody holds for longer than
   `lock_wait_seconds` is passed over: its holder is paused, and finds its own term over.
2. A route is written if its addresses or its epoch differ from what stands there. A new version
   alone rewrites nothing (10,000 files per version would be), so within one epoch the version in a
   file is that of the last change of its addresses. A new epoch rewrites every file.
3. What stands there and cannot be read counts as absent.
"""

import asyncio
import functools
import logging
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import TypeVar

from coordinator.election.contract import Term
from coordinator.routes.contract import Route, WriteResult
from coordinator.routes.eds_file import LOCKS, TEMPORARY, EdsFile
from coordinator.routes.envoy_format import group_of
from coordinator.routes.glance import Glance
from fleet.clock import Clock
from fleet.errors import RouteError
from fleet.model import GroupKey
from fleet.settings.model import RouteSettings

log = logging.getLogger(__name__)

T = TypeVar("T")

BATCH = 32
"""Files per turn in a thread (2 to 10 ms): a cancelled write ends within one."""

LANES = 4
"""Threads that write beside each other: a disk lets each wait for what others write to it. On a
busy one 100 files took 41 ms (p50) and 159 (p90), by four threads 36 and 69."""

FEWEST = 16
"""Files that are worth a thread."""

LOCK_POLL_SECONDS = 0.01

_SETTLED_SECONDS = 0.1
"""A file younger than this may be replaced again within one tick of the file system's clock and
look the same; it is read again. Ticks are 10 ms at most."""

_ABANDONED_SECONDS = 60.0
"""A temporary file this old belongs to a writer that was killed."""

_NAMED_IN_ERRORS = 3


_Stamp = tuple[int, int, int, int]
"""Inode, size, and when it was modified and changed, in nanoseconds."""


class _Verdict(Enum):
    WRITTEN = auto()
    UNCHANGED = auto()
    REFUSED = auto()
    BUSY = auto()


@dataclass(slots=True)
class _Tally:
    """What became of the groups of one call."""

    highest_epoch: int
    groups: dict[_Verdict, list[GroupKey]] = field(
        default_factory=lambda: {verdict: [] for verdict in _Verdict}
    )
    faults: list[str] = field(default_factory=list)

    def add(self, other: "_Tally") -> None:
        """Count what another one has counted."""
        self.highest_epoch = max(self.highest_epoch, other.highest_epoch)
        for verdict, groups in other.groups.items():
            self.groups[verdict] += groups
        self.faults += other.faults

    def result(self) -> WriteResult:
        """Raises RouteError if anything failed."""
        _raise_faults(self.faults)
        return WriteResult(
            written=tuple(self.groups[_Verdict.WRITTEN]),
            unchanged=tuple(self.groups[_Verdict.UNCHANGED]),
            refused=tuple(self.groups[_Verdict.REFUSED]),
            highest_epoch=self.highest_epoch,
        )


def _raise_faults(faults: Sequence[str]) -> None:
    if faults:
        more = len(faults) - _NAMED_IN_ERRORS
        text = "; ".join(faults[:_NAMED_IN_ERRORS]) + (f"; and {more} more" if more > 0 else "")
        raise RouteError(text)


class EdsRoutes:
    """`coordinator.routes.contract.Routes` over a folder, which is created if it is missing."""

    def __init__(self, directory: Path, *, settings: RouteSettings, clock: Clock) -> None:
        self._directory = directory
        self._settings = settings
        self._clock = clock
        self._seen: dict[str, tuple[_Stamp, Route | None]] = {}
        self._routes: Mapping[GroupKey, Route] = {}
        self._reading = asyncio.Lock()
        self._glance = Glance(directory)
        self._still = False
        """Nothing was new, gone or unreadable at the last look."""

    async def read(self) -> Mapping[GroupKey, Route]:
        """All routes as they stand. Files that did not change since the last call are not opened;
        if none did, the answer is the same object. What was renamed into the folder, as all writers
        of routes do, is seen at once; what was written into a file in place, within 5 s.

        Raises:
            RouteError: the folder cannot be listed.
        """
        async with self._reading:
            return await _in_thread(self._read_all)

    def where(self, group: GroupKey) -> str:
        """The file that holds the route of `group`, there or not."""
        return f"EDS file {EdsFile(self._directory, group, self._clock).path}"

    async def write(self, routes: Sequence[Route], term: Term) -> WriteResult:
        """Write in the given order, a few at a time; routes whose lock is held come last.

        A route is also refused when `term` is over before its turn.

        Raises:
            RouteError: some file could not be written; all others were tried.
        """
        by_group = {route.group: route for route in routes}
        highest = max((route.version.epoch for route in routes), default=0)
        return await self._each(
            list(by_group),
            highest,
            lambda group, wait, tally: self._write_one(by_group[group], term, wait, tally),
        )

    async def remove(self, groups: Sequence[GroupKey], term: Term) -> WriteResult:
        """Delete the files of `groups`; one that is not there is unchanged.

        Raises:
            RouteError: some file could not be deleted; all others were tried.
        """
        return await self._each(
            list(dict.fromkeys(groups)),
            term.epoch,
            lambda group, wait, tally: self._remove_one(group, term, wait, tally),
        )

    async def _each(
        self,
        groups: list[GroupKey],
        epoch: int,
        act: Callable[[GroupKey, bool, _Tally], _Verdict],
    ) -> WriteResult:
        tally = _Tally(highest_epoch=epoch)
        busy = await self._pass(groups, act, tally, wait=True)
        deadline = self._clock.monotonic() + self._settings.lock_wait_seconds
        while busy:
            wait = self._clock.monotonic() < deadline
            if wait:
                await self._clock.sleep(LOCK_POLL_SECONDS)
            else:
                names = [str(group) for group in busy[:_NAMED_IN_ERRORS]]
                log.warning("route lock passed over", extra={"count": len(busy), "groups": names})
            busy = await self._pass(busy, act, tally, wait=wait)
        return tally.result()

    async def _pass(
        self,
        groups: Sequence[GroupKey],
        act: Callable[[GroupKey, bool, _Tally], _Verdict],
        tally: _Tally,
        *,
        wait: bool,
    ) -> list[GroupKey]:
        """Try each group once, in batches; those whose lock is held."""
        for start in range(0, len(groups), LANES * BATCH):
            batch = groups[start : start + LANES * BATCH]
            lanes = min(LANES, math.ceil(len(batch) / FEWEST))
            tallies = [_Tally(tally.highest_epoch) for _ in range(lanes)]
            turns = [
                _in_thread(functools.partial(self._batch, batch[n::lanes], act, each, wait))
                for n, each in enumerate(tallies)
            ]
            # All of them end before anything is made of one that failed.
            for ended in await asyncio.gather(*turns, return_exceptions=True):
                if ended is not None:
                    raise ended
            for each in tallies:
                tally.add(each)
        busy = tally.groups[_Verdict.BUSY]
        tally.groups[_Verdict.BUSY] = []
        return busy

    def _batch(
        self,
        groups: Sequence[GroupKey],
        act: Callable[[GroupKey, bool, _Tally], _Verdict],
        tally: _Tally,
        wait: bool,
    ) -> None:
        try:
            (self._directory / LOCKS).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            tally.faults.append(f"routes in {self._directory}: {error.strerror or error}")
            return
        for group in groups:
            try:
                verdict = act(group, wait, tally)
            except RouteError as error:
                tally.faults.append(str(error))
            except OSError as error:
                tally.faults.append(f"route {group}: {error.strerror or error}")
            else:
                tally.groups[verdict].append(group)

    def _write_one(self, route: Route, term: Term, wait: bool, tally: _Tally) -> _Verdict:
        file = EdsFile(self._directory, route.group, self._clock)
        with file.locked(wait=wait) as mine:
            if not mine:
                return _Verdict.BUSY
            standing = file.read()
            if standing is not None:
                tally.highest_epoch = max(tally.highest_epoch, standing.version.epoch)
                if standing.version > route.version:
                    return _Verdict.REFUSED
                if _says_the_same(standing, route):
                    return _Verdict.UNCHANGED
            return _Verdict.WRITTEN if file.replace(route, term) else _Verdict.REFUSED

    def _remove_one(self, group: GroupKey, term: Term, wait: bool, tally: _Tally) -> _Verdict:
        file = EdsFile(self._directory, group, self._clock)
        with file.locked(wait=wait) as mine:
            if not mine:
                return _Verdict.BUSY
            standing = file.read()
            if standing is not None:
                tally.highest_epoch = max(tally.highest_epoch, standing.version.epoch)
                if standing.version.epoch > term.epoch:
                    return _Verdict.REFUSED
            if not file.remove(term):
                return _Verdict.REFUSED
            return _Verdict.WRITTEN if standing is not None else _Verdict.UNCHANGED

    def _read_all(self) -> Mapping[GroupKey, Route]:
        now = self._clock.wall()
        seen: dict[str, tuple[_Stamp, Route | None]] = {}
        routes: dict[GroupKey, Route] = {}
        same = True
        try:
            if self._still and self._glance.unchanged(self._clock.monotonic()):
                return self._routes
            self._still = False
            self._glance.looking(self._clock.monotonic(), now)
            with os.scandir(self._directory) as entries:
                for entry in entries:
                    known = self._seen.get(entry.name)
                    if known is not None and _stamp_of(entry) == known[0]:
                        seen[entry.name] = known
                        route = known[1]
                    else:
                        route = self._look_at(entry, now, seen)
                        same = same and route is None and entry.name not in self._seen
                    if route is not None:
                        routes[route.group] = route
        except FileNotFoundError:
            pass
        except OSError as error:
            raise RouteError(f"routes in {self._directory}: {error.strerror or error}") from None
        same = same and len(seen) == len(self._seen)
        self._seen = seen
        self._still = same
        if not same or len(routes) != len(self._routes):
            self._routes = routes
        return self._routes

    def _look_at(
        self, entry: os.DirEntry[str], now: float, seen: dict[str, tuple[_Stamp, Route | None]]
    ) -> Route | None:
        if entry.name.endswith(TEMPORARY):
            _drop_abandoned(entry, now)
            return None
        group = group_of(entry.name)
        if group is None:
            return None
        try:
            status = entry.stat()
            stamp = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
            route = EdsFile(self._directory, group, self._clock).read()
        except OSError as error:
            log.warning("route unreadable", extra={"group": str(group), "error": str(error)})
            return None
        if abs(now - status.st_mtime) > _SETTLED_SECONDS:
            seen[entry.name] = (stamp, route)
        return route


def _stamp_of(entry: os.DirEntry[str]) -> _Stamp | None:
    try:
        status = entry.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _says_the_same(standing: Route, route: Route) -> bool:
    return standing.version.epoch == route.version.epoch and set(standing.addresses) == set(
        route.addresses
    )


def _drop_abandoned(entry: os.DirEntry[str], now: float) -> None:
    try:
        if now - entry.stat().st_mtime > _ABANDONED_SECONDS:
            Path(entry.path).unlink(missing_ok=True)
    except FileNotFoundError:
        pass  # renamed since it was listed: it was being written
    except OSError as error:
        log.warning("abandoned route file stays", extra={"file": entry.name, "error": str(error)})


async def _in_thread(work: Callable[[], T]) -> T:
    """Run `work` in a thread. Cancelled, it waits for the thread first: afterwards nothing acts."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise
