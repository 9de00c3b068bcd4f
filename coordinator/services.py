"""The leader creates the Services that claimed pools name and that do not exist.

Applying an InferencePool is all that a tenant does. Only Services that we created are ever written
again, to add a port or an owner; everything is idempotent, so nothing is lost if two leaders should
do it at once, and nothing is remembered across terms.

A route does not wait for its Service: EndpointSlices may be there first.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from coordinator.claims import Claims, Touched
from coordinator.ownership import ServiceKey
from coordinator.ownership.wanted import Wanted, amended, manifest, satisfied, wanted
from fleet.clock import Clock
from fleet.errors import KubeConflict, KubeError, KubeThrottled
from fleet.kube.contract import KubeApi
from fleet.model import Pool
from fleet.telemetry import RateLimited

log = logging.getLogger(__name__)

IN_FLIGHT = 16
"""Services that are being written at once."""

AT_ONCE = 250
"""Pools looked at in one turn of the loop when a term begins."""

FIRST_RETRY_SECONDS = 0.5
LONGEST_RETRY_SECONDS = 60.0

IDLE_SECONDS = 0.25
"""How soon a lease that was in doubt is looked at again."""

CONFIRM_SECONDS = 5.0
"""What was written shows in the source by then, or is looked at once more."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A Service that could not be written.

    Attributes:
        tries: in a row.
        next_try: monotonic seconds.
    """

    message: str
    tries: int
    next_try: float


class ServiceKeeper:
    """One coordinator's hand on Services; `run` is part of each of its terms."""

    def __init__(self, api: KubeApi, claims: Claims, *, clock: Clock, rng: random.Random) -> None:
        self._api = api
        self._claims = claims
        self._fleet = claims.ownership.fleet
        self._controller_name = claims.ownership.claim.controller_name
        self._clock = clock
        self._rng = rng
        self._loud = RateLimited(log, clock)
        self._due: dict[ServiceKey, float] = {}
        self._busy: set[ServiceKey] = set()
        self._tries: dict[ServiceKey, int] = {}
        self._failures: dict[ServiceKey, Failure] = {}
        self._paused_until = 0.0
        self._wake = asyncio.Event()

    @property
    def failures(self) -> Mapping[ServiceKey, Failure]:
        """What this term has not managed to write so far."""
        return self._failures

    async def run(self, may_act: Callable[[], bool]) -> None:
        """Keep Services until cancelled.

        Args:
            may_act: whether the lease covers this moment; asked before every write.
        """
        self._forget()
        await self._claims.wait_synced()
        self._claims.flush()
        forget_listener = self._claims.on_change(self._touched)
        try:
            await self._look_at_all()
            async with asyncio.TaskGroup() as tasks:
                while True:
                    await self._pause(self._start(tasks, may_act))
        finally:
            forget_listener()
            self._forget()

    def _forget(self) -> None:
        for memory in (self._due, self._tries, self._failures):
            memory.clear()
        self._busy.clear()

    async def _look_at_all(self) -> None:
        """10,000 pools take some 0.2 s: not in one turn of the loop."""
        refs = tuple(self._claims.decisions())
        for first in range(0, len(refs), AT_ONCE):
            self._touched(frozenset(refs[first : first + AT_ONCE]))
            await asyncio.sleep(0)

    def _touched(self, refs: Touched) -> None:
        """These pools were decided anew: look at their Services, unless they are in order."""
        now = self._clock.monotonic()
        pools = [pool for ref in refs if (pool := self._claims.pool(ref)) is not None]
        groups = {group for pool in pools for group in pool.groups}
        for key in {ServiceKey(group.namespace, group.service) for group in groups}:
            if self._in_order(key):
                self._done(key)
            else:
                failure = self._failures.get(key)
                self._due[key] = now if failure is None else failure.next_try
        self._wake.set()

    def _wanted(self, key: ServiceKey) -> Wanted | None:
        decisions = self._claims.decisions()
        return wanted(key, ((pool, decisions[pool.ref]) for pool in self._pools(key)))

    def _pools(self, key: ServiceKey) -> Iterable[Pool]:
        pools = (self._claims.pool(ref) for ref in self._claims.naming(key))
        return (pool for pool in pools if pool is not None)

    def _in_order(self, key: ServiceKey) -> bool:
        want = self._wanted(key)
        if want is None:
            return True
        return satisfied(want, self._claims.service(key), fleet=self._fleet)

    def _start(self, tasks: asyncio.TaskGroup, may_act: Callable[[], bool]) -> float:
        """Start what is due; returns the seconds until something else is."""
        now = self._clock.monotonic()
        if not self._due:
            return LONGEST_RETRY_SECONDS
        if not may_act():
            return IDLE_SECONDS
        if now < self._paused_until:
            return self._paused_until - now
        for key in [key for key, due in self._due.items() if due <= now and key not in self._busy]:
            if len(self._busy) >= IN_FLIGHT:
                return LONGEST_RETRY_SECONDS  # the next one to end wakes us
            del self._due[key]
            self._busy.add(key)
            tasks.create_task(self._keep(key, may_act), name=f"service {key}")
        waiting = [due for key, due in self._due.items() if key not in self._busy]
        return max(0.0, min(waiting, default=now + LONGEST_RETRY_SECONDS) - now)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()

    async def _keep(self, key: ServiceKey, may_act: Callable[[], bool]) -> None:
        try:
            want = self._wanted(key)
            if want is None or satisfied(want, self._claims.service(key), fleet=self._fleet):
                self._done(key)
            elif may_act():
                await self._write(want)
                # The source shows it soon, and touches the pools; if an event was lost, look again.
                self._failures.pop(key, None)
                self._later(key, max(CONFIRM_SECONDS, self._back_off(key)))
            else:
                self._later(key, IDLE_SECONDS)
        except KubeThrottled as error:
            self._paused_until = self._clock.monotonic() + error.retry_after_seconds
            self._later(key, error.retry_after_seconds)
        except KubeConflict:
            self._later(key, self._back_off(key))  # somebody was faster: read and decide again
        except (KubeError, ValueError) as error:
            self._failed(key, str(error))
        finally:
            self._busy.discard(key)
            self._wake.set()

    async def _write(self, want: Wanted) -> None:
        if not want.exists:
            try:
                await self._api.create(_collection(want.key), self._manifest(want))
            except KubeConflict:
                log.info("service exists already", extra={"service": str(want.key)})
            else:
                log.info("service created", extra={"service": str(want.key), "ports": want.ports})
                return
        path = f"{_collection(want.key)}/{want.key.name}"
        changed = amended(
            await self._api.get(path),
            want,
            fleet=self._fleet,
            controller_name=self._controller_name,
        )
        if changed is not None:
            await self._api.replace(path, changed)
            log.info("service extended", extra={"service": str(want.key), "ports": want.ports})

    def _manifest(self, want: Wanted) -> dict[str, object]:
        return manifest(want, fleet=self._fleet, controller_name=self._controller_name)

    def _later(self, key: ServiceKey, seconds: float) -> None:
        due = self._clock.monotonic() + seconds
        self._due[key] = min(due, self._due.get(key, due))

    def _back_off(self, key: ServiceKey) -> float:
        """Seconds until the next try: doubled with each, +-20 %."""
        tries = self._tries[key] = self._tries.get(key, 0) + 1
        seconds = min(LONGEST_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2.0 ** min(tries - 1, 16))
        return seconds * self._rng.uniform(0.8, 1.2)

    def _failed(self, key: ServiceKey, message: str) -> None:
        seconds = self._back_off(key)
        next_try = self._clock.monotonic() + seconds
        self._failures[key] = Failure(message, self._tries[key], next_try)
        self._due[key] = next_try
        self._loud.warning(
            "service not written", key=str(key), extra={"service": str(key), "problem": message}
        )

    def _done(self, key: ServiceKey) -> None:
        self._tries.pop(key, None)
        self._failures.pop(key, None)


def _collection(key: ServiceKey) -> str:
    return f"/api/v1/namespaces/{key.namespace}/services"
