"""Kubernetes Events on pools: why one is refused, that it was claimed, is served, is quarantined.

Every replica follows the decisions, but only the leader writes. What a follower has known for
`TOLD_SECONDS` it takes for told, and so are pools that had an owner before this process began: a
new leader does not tell the whole cluster's story again. An event's name follows from what it says:
whoever writes it twice is refused by the API server, and that is as good as written.

Each pool and reason is told once until it changes. What waits is bounded and so is its rate: a
cluster of 10,000 refused pools must not be a flood to its API server.
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from coordinator.claims import Claims, Touched
from coordinator.ownership import Claimed
from coordinator.ownership.notices import (
    CLAIMED,
    PICKER_CONFIG,
    QUARANTINED,
    SERVED,
    WARNING,
    Notice,
    misconfigured,
    notices,
    quarantined,
    served,
)
from fleet.clock import Clock
from fleet.errors import KubeConflict, KubeError, KubeForbidden, KubeThrottled, KubeUnavailable
from fleet.kube.contract import KubeApi, Raw
from fleet.model import Phase, Pool, PoolId, PoolRef, ShardMap
from fleet.picking.choice import NO_CONFIGS, Configs, choose
from fleet.telemetry import RateLimited

log = logging.getLogger(__name__)

COMPONENT = "epp-fleet.dev/coordinator"
MAX_MESSAGE = 1000
"""Characters; the API takes 1,024."""

MAX_WAITING = 10_000
"""Notices that wait; more are dropped, and counted in the log."""

AT_ONCE = 250
"""Pools looked at in one turn of the loop where all are."""

BURST = 50
PER_SECOND = 5.0
TOLD_SECONDS = 30.0
TICK_SECONDS = 0.5

AWAY_SECONDS = 5.0
"""Rest after an API server that does not answer."""

FORBIDDEN_SECONDS = 60.0
"""Rest after a 403: nothing but a new role will change it."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A notice that nobody has written yet, as far as is known here; since monotonic seconds."""

    pool: Pool
    notice: Notice
    since: float


class Announcer:
    """Runs in every replica for as long as the process lives.

    Args:
        leading: whether this replica leads now.
        shard_map: the newest map known here.
        reporter: id of this coordinator.
        configs: the picker configurations.
    """

    def __init__(
        self,
        api: KubeApi,
        claims: Claims,
        *,
        leading: Callable[[], bool],
        shard_map: Callable[[], ShardMap | None],
        reporter: str,
        clock: Clock,
        configs: Callable[[], Configs] = lambda: NO_CONFIGS,
    ) -> None:
        self._api = api
        self._configs = configs
        self._claims = claims
        self._fleet = claims.ownership.fleet
        self._leading = leading
        self._shard_map = shard_map
        self._reporter = reporter
        self._clock = clock
        self._loud = RateLimited(log, clock)
        self._told: dict[PoolId, Mapping[str, Notice]] = {}
        self._lives: dict[PoolRef, PoolId] = {}
        self._waiting: dict[tuple[PoolRef, str], _Waiting] = {}
        self._served: set[PoolId] = set()
        self._quarantined: set[PoolId] = set()
        self._looked: ShardMap | None = None
        self._born = clock.wall()
        self._tokens = float(BURST)
        self._filled = clock.monotonic()
        self._rest_until = 0.0
        self._again = False

    async def run(self) -> None:
        """Follow and tell until cancelled."""
        await self._claims.wait_synced()
        forget_listener = self._claims.on_change(self.decided)
        try:
            await self._decide_all(tuple(self._claims.decisions()))
            while True:
                if self._again:
                    await self._decide_all(tuple(self._lives))
                self._look_at_map()
                await self._tell()
                await self._clock.sleep(TICK_SECONDS)
        finally:
            forget_listener()

    async def _decide_all(self, refs: tuple[PoolRef, ...]) -> None:
        self._again = False
        for first in range(0, len(refs), AT_ONCE):
            self.decided(frozenset(refs[first : first + AT_ONCE]))
            await asyncio.sleep(0)

    # -- what there is to tell --------------------------------------------------------------------

    def decided(self, refs: Touched) -> None:
        """These pools were decided anew."""
        for ref in refs:
            pool, decision = self._claims.pool(ref), self._claims.decisions().get(ref)
            life = self._lives.pop(ref, None)
            told = {} if life is None else self._told.pop(life, {})
            if pool is None or decision is None:
                for reason in (*told, SERVED, QUARANTINED):
                    self._waiting.pop((ref, reason), None)
                continue
            if life != pool.id:
                told = {}
            self._lives[ref] = pool.id
            wanted = dict(notices(decision, self._fleet))
            problem = choose(pool, self._configs()).problem if CLAIMED in wanted else ""
            if problem:
                wanted[PICKER_CONFIG] = misconfigured(problem)
            self._follow(pool, told, wanted)

    def look_again(self) -> None:
        """Picker configurations have changed: any pool may have news."""
        self._again = True

    def _follow(self, pool: Pool, told: Mapping[str, Notice], wanted: Mapping[str, Notice]) -> None:
        for reason in told.keys() - wanted.keys():
            self._waiting.pop((pool.ref, reason), None)
        self._told[pool.id] = wanted
        for reason, notice in wanted.items():
            if told.get(reason) != notice:
                self._wait(pool, notice)

    def _wait(self, pool: Pool, notice: Notice) -> None:
        key = (pool.ref, notice.reason)
        if key not in self._waiting and len(self._waiting) >= MAX_WAITING:
            self._loud.warning("event dropped", extra={"pool": str(pool.ref)})
            return
        self._waiting[key] = _Waiting(pool, notice, self._clock.monotonic())

    def _look_at_map(self) -> None:
        """Tell of pools that have an owner for the first time, and that come into quarantine."""
        shard_map = self._shard_map()
        if shard_map is None or shard_map is self._looked:
            return
        if self._looked is None:
            self._take_for_told(shard_map)
        self._looked = shard_map
        self._claims.flush()
        decisions = self._claims.decisions()
        owned = {
            pool
            for placement in shard_map.placements.values()
            if placement.phase is Phase.OWNED
            for pool in placement.pools
        }
        for each in owned - self._served:
            pool = self._claims.pool(each.ref)
            if pool is not None and pool.id == each and isinstance(decisions[each.ref], Claimed):
                self._wait(pool, served(self._fleet))
                self._served.add(each)
        isolated = _isolated(shard_map)
        for each in isolated - self._quarantined:
            pool = self._claims.pool(each.ref)
            if pool is not None and pool.id == each:
                self._wait(pool, quarantined(self._fleet))
        self._quarantined = isolated
        present = {pool for placement in shard_map.placements.values() for pool in placement.pools}
        self._served &= present

    def _take_for_told(self, shard_map: ShardMap) -> None:
        """Pools that had an owner before we began are no news."""
        for placement in shard_map.placements.values():
            if placement.owners and placement.since < self._born:
                for pool in placement.pools:
                    self._served.add(pool)
                    self._waiting.pop((pool.ref, CLAIMED), None)
                if placement.phase is Phase.QUARANTINED:
                    self._quarantined.update(placement.pools)

    # -- telling ----------------------------------------------------------------------------------

    async def _tell(self) -> None:
        now = self._clock.monotonic()
        if not self._leading():
            old = [key for key, each in self._waiting.items() if now - each.since > TOLD_SECONDS]
            for told in old:
                del self._waiting[told]
            return
        self._tokens = min(float(BURST), self._tokens + PER_SECOND * (now - self._filled))
        self._filled = now
        while self._tokens >= 1.0 and self._leading():
            key = self._next()
            if key is None or self._clock.monotonic() < self._rest_until:
                return
            waiting = self._waiting[key]
            self._tokens -= 1.0
            done = await self._write(waiting)
            if self._waiting.get(key) is waiting:
                del self._waiting[key]
                if not done:
                    self._waiting[key] = waiting  # behind the others: it may be about itself

    def _next(self) -> tuple[PoolRef, str] | None:
        """Whose turn it is. What is good waits for a map, which tells whether it is news at all."""
        if self._looked is not None:
            return next(iter(self._waiting), None)
        warnings = (k for k, each in self._waiting.items() if each.notice.type == WARNING)
        return next(warnings, None)

    async def _write(self, waiting: _Waiting) -> bool:
        """Whether there is nothing more to do about it."""
        event = self._event(waiting)
        path = f"/api/v1/namespaces/{waiting.pool.ref.namespace}/events"
        try:
            await self._api.create(path, event)
        except KubeConflict:
            return True
        except KubeThrottled as error:
            return self._rest(error, error.retry_after_seconds)
        except KubeForbidden as error:
            if "being terminated" in str(error):
                return True  # the pool goes with its namespace
            return self._rest(error, FORBIDDEN_SECONDS)
        except KubeUnavailable as error:
            return self._rest(error, AWAY_SECONDS)
        except KubeError as error:
            self._loud.warning(
                "event refused", extra={"pool": str(waiting.pool.ref), "problem": str(error)}
            )
        return True

    def _rest(self, error: KubeError, seconds: float) -> bool:
        self._rest_until = self._clock.monotonic() + seconds
        self._loud.warning("events not written", extra={"problem": str(error)})
        return False

    def _event(self, waiting: _Waiting) -> Raw:
        pool, notice = waiting.pool, waiting.notice
        said = "\0".join((self._fleet, pool.uid, notice.reason, notice.message))
        digest = hashlib.blake2b(said.encode(), digest_size=8).hexdigest()
        at = datetime.fromtimestamp(self._clock.wall(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "namespace": pool.ref.namespace,
                "name": f"{pool.ref.name[:200].rstrip('.-')}.{digest}",
            },
            "involvedObject": {
                "apiVersion": pool.api_version,
                "kind": "InferencePool",
                "namespace": pool.ref.namespace,
                "name": pool.ref.name,
                "uid": pool.uid,
            },
            "type": notice.type,
            "reason": notice.reason,
            "message": notice.message[:MAX_MESSAGE],
            "source": {"component": COMPONENT, "host": self._reporter},
            "reportingComponent": COMPONENT,
            "reportingInstance": self._reporter,
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
        }


def _isolated(shard_map: ShardMap) -> set[PoolId]:
    return {
        pool
        for placement in shard_map.placements.values()
        if placement.phase is Phase.QUARANTINED
        for pool in placement.pools
    }
