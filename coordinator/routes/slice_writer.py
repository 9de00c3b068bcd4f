"""One group's slices: compare what stands there, look at the term, send, and believe the answer.

Whatever is not a plain success is looked up: a conflict (somebody was faster), a missing object,
and an answer that never came (the write may have landed). Then it is decided again. A slice is
written with the resourceVersion at which its epoch was compared, so nothing can come in between.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from enum import Enum, auto

from coordinator.election.contract import Term
from coordinator.routes.contract import Route
from coordinator.routes.pace import Pace
from coordinator.routes.slice_copy import SliceCopy
from coordinator.routes.slice_format import (
    IPV4,
    Slice,
    collection,
    decode,
    is_ours,
    says_group,
    slice_name,
    slice_path,
)
from coordinator.routes.slice_plan import Step, Steps, highest, removing, writing
from fleet.clock import Clock
from fleet.errors import (
    KubeConflict,
    KubeError,
    KubeNotFound,
    KubeRefused,
    KubeThrottled,
    KubeUnavailable,
    RouteError,
)
from fleet.kube.contract import KubeApi, Raw
from fleet.kube.listwatch_cache import Key
from fleet.model import GroupKey

REQUEST_SECONDS = 1.0
"""The longest that one request may take; less if the lease has less left."""

OF_THE_LEASE = 0.9
"""... namely this share of what it has left."""

ATTEMPTS = 6
"""How often a group is decided again before we say that it cannot be written."""

STAMPS_IN_FLIGHT = 8
"""Slices that lack only an epoch are written by few at a time, each resting as long as its request
took: nobody waits for them, and ten thousand come at once."""


class Verdict(Enum):
    """What became of one group."""

    WRITTEN = auto()
    UNCHANGED = auto()
    REFUSED = auto()


class _TermOver(Exception):
    pass


class SliceWriter:
    """Writes and removes the slices of single groups."""

    def __init__(
        self, api: KubeApi, copy: SliceCopy, pace: Pace, *, fleet: str, clock: Clock
    ) -> None:
        self._api = api
        self._copy = copy
        self._pace = pace
        self._fleet = fleet
        self._clock = clock
        self._stamping = asyncio.Semaphore(STAMPS_IN_FLIGHT)

    async def write(self, route: Route, port_name: str, term: Term) -> Verdict:
        """Have the group's slices say `route`.

        Raises:
            RouteError: they cannot; KubeUnavailable if the API server does not answer.
        """
        slice_name(route.group, IPV4, self._fleet)

        def decide() -> Steps:
            standing = self._copy.of(route.group)
            return writing(route, standing, port_name=port_name, fleet=self._fleet)

        if decide().stamp and decide().steps:
            async with self._stamping:
                began = self._clock.monotonic()
                verdict = await self._until_right(route.group, decide, term)
                await self._clock.sleep(self._clock.monotonic() - began)
                return verdict
        return await self._until_right(route.group, decide, term)

    async def remove(self, group: GroupKey, term: Term) -> Verdict:
        """Delete the group's slices.

        Raises:
            RouteError: they cannot; KubeUnavailable if the API server does not answer.
        """

        def decide() -> Steps:
            return removing(self._copy.of(group), term.epoch)

        name = slice_name(group, IPV4, self._fleet)
        look_first = () if self._copy.of(group) else (name,)
        return await self._until_right(group, decide, term, look_first)

    def highest_epoch(self, group: GroupKey) -> int:
        """The highest epoch that is known to stand on the group's slices."""
        return highest(self._copy.of(group)).epoch

    async def _until_right(
        self,
        group: GroupKey,
        decide: Callable[[], Steps],
        term: Term,
        doubtful: Sequence[str] = (),
    ) -> Verdict:
        """Decide and act until nothing is left to do.

        Args:
            doubtful: names of slices to look at before.
        """
        verdict = Verdict.UNCHANGED
        fault: KubeError | None = None
        try:
            for _ in range(ATTEMPTS):
                for name in doubtful:
                    await self._look_up(group, name, term)
                decision = decide()
                if decision.refused:
                    return Verdict.REFUSED
                if decision.steps:
                    verdict = Verdict.WRITTEN
                doubtful = ()
                for step in decision.steps:
                    fault = await self._take(group, step, term)
                    if fault is not None:
                        doubtful = (step.name,)
                        break
                else:
                    return verdict
        except _TermOver:
            return Verdict.REFUSED
        raise RouteError(f"route {group}: given up after {ATTEMPTS} attempts: {fault}")

    async def _take(self, group: GroupKey, step: Step, term: Term) -> KubeError | None:
        """Send one step; returns what leaves it open whether the step was taken."""
        try:
            await self._send(group, step, term)
        except KubeConflict as error:
            return error
        except KubeNotFound as error:
            if step.standing is None:
                raise RouteError(f"slice {group.namespace}/{step.name}: {error}") from None
            return error
        except KubeUnavailable as error:
            return error
        except KubeRefused as error:
            raise RouteError(f"slice {group.namespace}/{step.name}: {error}") from None
        return None

    async def _send(self, group: GroupKey, step: Step, term: Term) -> None:
        path = slice_path(group.namespace, step.name)
        standing, body = step.standing, step.body
        if body is None:
            if standing is not None:
                options = _only_if(standing)
                await self._paced(
                    term,
                    lambda seconds: self._api.delete(path, body=options, timeout_seconds=seconds),
                )
            self._saw(group, step.name, None)
        elif standing is None:
            made = await self._paced(
                term,
                lambda seconds: self._api.create(
                    collection(group.namespace), body, timeout_seconds=seconds
                ),
            )
            self._saw(group, step.name, made)
        else:
            metadata = body["metadata"] | {"resourceVersion": standing.resource_version}
            changed = body | {"metadata": metadata}
            made = await self._paced(
                term, lambda seconds: self._api.replace(path, changed, timeout_seconds=seconds)
            )
            self._saw(group, step.name, made)

    async def _look_up(self, group: GroupKey, name: str, term: Term) -> None:
        """Read one slice as it stands.

        Raises:
            RouteError: it is somebody else's, or may not be read.
            KubeUnavailable: no answer.
        """
        path = slice_path(group.namespace, name)
        try:
            found: Raw | None = await self._paced(
                term, lambda seconds: self._api.get(path, timeout_seconds=seconds)
            )
        except KubeNotFound:
            found = None
        except KubeRefused as error:
            raise RouteError(f"slice {group.namespace}/{name}: {error}") from None
        if found is not None and not is_ours(found, self._fleet):
            raise RouteError(
                f"slice {group.namespace}/{name}: is not labelled as ours; it was not touched,"
                " delete it to have the group served"
            )
        self._saw(group, name, found)

    def _saw(self, group: GroupKey, name: str, raw: Raw | None) -> None:
        new = None if raw is None else decode(raw, self._fleet, expected=group)
        if new is not None and (raw is None or not says_group(raw, group)):
            # Somebody changed the labels that say whose it is. Its name is ours, but a slice never
            # changes hands between Services: without a family it is deleted and made anew.
            new = replace(new, group=group, family="", sound=False)
        self._copy.seen(Key(group.namespace, name), new, self._clock.monotonic())

    async def _paced(self, term: Term, send: Callable[[float], Awaitable[Raw]]) -> Raw:
        """Send when the API server bears it, unless the term is over by then."""
        while True:
            while (pause := self._pace.pause()) > 0.0:
                self._left(term)
                await self._clock.sleep(pause)
            seconds = min(REQUEST_SECONDS, OF_THE_LEASE * self._left(term))
            try:
                answer = await send(seconds)
            except KubeThrottled as error:
                self._pace.slow_down(error.retry_after_seconds)
                continue
            except KubeRefused:
                self._pace.answered()
                raise
            self._pace.answered()
            return answer

    def _left(self, term: Term) -> float:
        now = self._clock.monotonic()
        if not term.valid(now):
            raise _TermOver
        return term.deadline - now


def _only_if(standing: Slice) -> Raw:
    return {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": standing.uid, "resourceVersion": standing.resource_version},
    }
