"""Routes as EndpointSlices: what Istio, agentgateway and kube-proxy follow, fenced by epoch.

The rules, for each group:

1. Its slices are compared with the route in a local copy; a higher epoch, or a higher version of
   the same epoch, refuses it. The term is looked at right before a request is sent, and the request
   carries the resourceVersion that was compared: whoever was faster makes it a conflict, and then
   all is read and decided again. So does an answer that never came.
2. A slice is written if its addresses or its epoch differ from what stands there; a new version
   alone rewrites nothing.
3. Only slices that bear our labels, and this fleet's, are ever written or deleted.

The copy follows one list and watch; reading costs no request. It may be behind by as long as a
watch takes, which the fence does not mind. What stands there in any form but ours (another port
name, a condition, a targetRef) counts as absent, so that it is written again.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from coordinator.election.contract import Term
from coordinator.routes.contract import Route, WriteResult
from coordinator.routes.pace import Pace, Setbacks
from coordinator.routes.slice_copy import SliceCopy
from coordinator.routes.slice_format import (
    API_VERSION,
    IPV4,
    Slice,
    decode,
    selector,
    slice_name,
)
from coordinator.routes.slice_writer import SliceWriter, Verdict
from fleet.clock import Clock
from fleet.errors import KubeUnavailable, RouteError
from fleet.kube.contract import KubeApi
from fleet.kube.listwatch import ListWatch
from fleet.kube.listwatch_cache import Key
from fleet.kube.listwatch_condition import Condition
from fleet.kube.listwatch_events import Collection
from fleet.kube.listwatch_pace import Pace as WatchPace
from fleet.kube.names import port_name
from fleet.model import GroupKey
from fleet.settings.model import Settings

IN_FLIGHT: Final = 50
"""Requests at once, until the API server asks for less."""

WATCH_SECONDS: Final = 10.0
GRACE_SECONDS: Final = 3.0
"""How long the server keeps a watch, and how much later we cut it: a half-open one hides foreign
writes for at most 13 s. It is resumed where it ended, which costs next to nothing."""

SYNC_SECONDS: Final = 5.0
"""How long a read waits for the first list."""

PORT_NAMES_SECONDS: Final = 2.0
"""How often all slices are compared with the port names of their Services, which seldom change."""

_NAMED_IN_ERRORS: Final = 3

PortName = Callable[[GroupKey], str | None]
"""The name of the group's port in its Service; None if that Service is not known."""


def _unknown(group: GroupKey) -> str | None:
    return None


@dataclass(slots=True)
class _Tally:
    """What became of the groups of one call."""

    verdicts: dict[GroupKey, Verdict] = field(default_factory=dict)
    faults: dict[GroupKey, str] = field(default_factory=dict)
    silent: str = ""

    def result(self, groups: Sequence[GroupKey], highest_epoch: int) -> WriteResult:
        """In the order of `groups`; raises RouteError if anything failed."""
        if self.faults or self.silent:
            named = list(self.faults.values())[:_NAMED_IN_ERRORS]
            more = len(groups) - len(self.verdicts) - len(named) - bool(self.silent)
            named += [self.silent] if self.silent else []
            raise RouteError("; ".join(named) + (f"; and {more} more" if more > 0 else ""))
        of = {verdict: [g for g in groups if self.verdicts[g] is verdict] for verdict in Verdict}
        return WriteResult(
            written=tuple(of[Verdict.WRITTEN]),
            unchanged=tuple(of[Verdict.UNCHANGED]),
            refused=tuple(of[Verdict.REFUSED]),
            highest_epoch=highest_epoch,
        )


class EndpointSliceRoutes:
    """`coordinator.routes.contract.Routes` over an API server. `start` it, `close` it."""

    def __init__(
        self,
        api: KubeApi,
        settings: Settings,
        clock: Clock,
        *,
        rng: random.Random,
        service_port: PortName = _unknown,
    ) -> None:
        """Nothing is asked yet.

        Args:
            rng: spreads what many processes would do at once.
            service_port: gateways find a slice's port by the name that the Service gives it.
                While a Service is not known, a slice keeps the name that it has; a new one gets
                that of the Services that we create.
        """
        self._fleet = settings.fleet
        self._clock = clock
        self._service_port = service_port
        self._copy = SliceCopy()
        self._pace = Pace(IN_FLIGHT, clock)
        self._setbacks = Setbacks(clock)
        self._writer = SliceWriter(api, self._copy, self._pace, fleet=settings.fleet, clock=clock)
        kube = settings.kubernetes
        pace = replace(
            WatchPace.of(kube),
            watch_seconds=min(WATCH_SECONDS, kube.watch_seconds),
            grace_seconds=GRACE_SECONDS,
        )
        named = [name.strip() for name in kube.watch_namespaces.split(",") if name.strip()]
        namespaces: Sequence[str | None] = named or [None]
        self._said: dict[GroupKey, Route] = {}
        self._unreadable: set[GroupKey] = set()
        self._check_names_at = 0.0
        self._synced = asyncio.Event()
        self._watches = [
            ListWatch[Slice | None](
                api,
                Collection(f"/apis/{API_VERSION}", "endpointslices", namespace),
                keep=lambda raw: decode(raw, self._fleet),
                told=self._copy.told,
                pace=pace,
                clock=clock,
                rng=rng,
                synced=self._note_synced,
                selectors={"labelSelector": selector(settings.fleet)},
            )
            for namespace in namespaces
        ]

    def start(self) -> None:
        """Begin to watch; needs a running loop."""
        for watch in self._watches:
            watch.start()

    async def close(self) -> None:
        """Stop; idempotent."""
        for watch in self._watches:
            await watch.close()

    def conditions(self) -> tuple[Condition, ...]:
        """How the watches are doing: one, or one per watched namespace."""
        return tuple(watch.condition() for watch in self._watches)

    @property
    def throttled(self) -> int:
        """How often the API server told us to write more slowly."""
        return self._pace.throttled

    @property
    def failing(self) -> int:
        """How many groups could not be written when they were last tried."""
        return len(self._setbacks)

    def _note_synced(self) -> None:
        if all(watch.synced for watch in self._watches):
            self._synced.set()

    async def read(self) -> Mapping[GroupKey, Route]:
        """All routes as last heard of; asks nothing once the first list is there.

        Raises:
            RouteError: the first list did not come within `SYNC_SECONDS`.
        """
        try:
            async with asyncio.timeout(SYNC_SECONDS):
                await self._synced.wait()
        except TimeoutError:
            why = next(
                (each.failing for each in self.conditions() if each.failing), "no answer yet"
            )
            raise RouteError(f"EndpointSlices are not listed yet: {why}") from None
        age = max(each.list_age_seconds for each in self.conditions())
        self._copy.listed(self._named, self._clock.monotonic() - age)
        self._look()
        return dict(self._said)

    def _look(self) -> None:
        """Take in what changed; ten thousand groups looked at four times a second are too many."""
        changed: Iterable[GroupKey] = self._copy.take_changed()
        now = self._clock.monotonic()
        if now >= self._check_names_at:
            self._check_names_at = now + PORT_NAMES_SECONDS
            changed = {*self._said, *self._unreadable, *self._copy.groups()}
        for group in changed:
            found = self._copy.route(group)
            if found is not None and found[1] == self._port_name(group):
                self._said[group] = found[0]
                self._unreadable.discard(group)
            else:
                self._said.pop(group, None)
                (self._unreadable.add if self._copy.of(group) else self._unreadable.discard)(group)

    def unreadable(self) -> frozenset[GroupKey]:
        """Groups with slices of ours in any form but ours, as of the last `read`."""
        return frozenset(self._unreadable)

    def where(self, group: GroupKey) -> str:
        """The slices that hold the route of `group`; where it would be, if there is none."""
        try:
            names = [each.name for each in self._copy.of(group)]
            names = names or [slice_name(group, IPV4, self._fleet)]
        except RouteError as error:
            return str(error)
        return ", ".join(f"EndpointSlice {group.namespace}/{name}" for name in names)

    def _named(self, key: Key) -> bool:
        return any(key in watch.values for watch in self._watches)

    def _port_name(self, group: GroupKey) -> str:
        """The port's name in the Service; of one that is not known, as it stands already."""
        known = self._service_port(group)
        if known is not None:
            return known
        standing = [each.port_name for each in self._copy.of(group) if each.sound]
        return standing[0] if standing else port_name(group.port)

    async def write(self, routes: Sequence[Route], term: Term) -> WriteResult:
        """Write in the given order, many at once.

        A route is also refused when `term` is over before its turn.

        Raises:
            RouteError: some route could not be written; all others were tried, unless the API
                server does not answer at all.
        """
        by_group = {route.group: route for route in routes}
        return await self._each(
            list(by_group),
            max((route.version.epoch for route in routes), default=0),
            lambda group: self._writer.write(by_group[group], self._port_name(group), term),
            {group: route.addresses for group, route in by_group.items()},
        )

    async def remove(self, groups: Sequence[GroupKey], term: Term) -> WriteResult:
        """Delete the slices of `groups`; a group without any is unchanged.

        Raises:
            RouteError: see `write`.
        """
        return await self._each(
            list(dict.fromkeys(groups)),
            term.epoch,
            lambda group: self._writer.remove(group, term),
            {},
        )

    async def _each(
        self,
        groups: Sequence[GroupKey],
        epoch: int,
        act: Callable[[GroupKey], Coroutine[Any, Any, Verdict]],
        wanted: Mapping[GroupKey, object],
    ) -> WriteResult:
        """Have `act` done for each group; `wanted` tells whether it is what failed before."""
        tally = _Tally()
        highest = [epoch]

        async def one(group: GroupKey) -> None:
            try:
                tally.verdicts[group] = await act(group)
            except RouteError as error:
                tally.faults[group] = str(error)
                self._setbacks.failed(group, wanted.get(group), str(error))
            except KubeUnavailable as error:
                tally.silent = f"route {group}: {error}"
                self._pace.silent()
            else:
                self._setbacks.good(group)
            highest.append(self._writer.highest_epoch(group))

        waiting = iter(groups)
        running: set[asyncio.Task[None]] = set()
        try:
            while True:
                while len(running) < self._pace.in_flight and not tally.silent:
                    group = next(waiting, None)
                    if group is None:
                        break
                    setback = self._setbacks.message(group, wanted.get(group))
                    if setback is not None:
                        tally.faults[group] = setback
                        continue
                    running.add(asyncio.create_task(one(group), name=f"route {group}"))
                if not running:
                    break
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        return tally.result(groups, max(highest))
