"""Keeps what is known of the endpoints fresh, at a price that the worker can pay.

Each pool has a pace of its own; each endpoint has one connection and at most one scrape under way,
so an endpoint that hangs, dribbles or never ends delays nobody but itself. Endpoints that fail may
fill only a part of the places, or a pool full of dead pods would starve the healthy ones.
"""

import asyncio
import functools
import logging
import random
from collections.abc import Callable
from typing import Protocol

from epp_worker.datalayer import pace
from epp_worker.datalayer.counts import ScrapeCounts
from epp_worker.datalayer.fetch import MetricsConnection, ScrapeFailed
from epp_worker.datalayer.metrics_text import EngineMetrics
from epp_worker.scheduling.pool import EndpointState, PoolState
from epp_worker.scheduling.subset import split_address
from fleet.clock import Clock
from fleet.settings.model import ScrapeSettings

log = logging.getLogger(__name__)

KEEP_SECONDS = 4.0
"""A connection is closed rather than kept idle for longer: uvicorn, in front of vLLM, closes its
own after 5 s."""

LONGEST_SLEEP_SECONDS = 1.0
TICK_SECONDS = 0.001
"""Pools due within so short a time share a wake-up."""
STRETCH_EVERY_SECONDS = 1.0
LOGS_PER_WINDOW = 10
LOG_WINDOW_SECONDS = 10.0


class Connection(Protocol):
    """Reads one endpoint; see `epp_worker.datalayer.fetch.MetricsConnection`."""

    busy_seconds: float

    async def fetch(self) -> EngineMetrics:
        """The endpoint's metrics now, or ScrapeFailed."""
        ...

    def close(self) -> None:
        """Drop what is open."""
        ...


Connect = Callable[[str, int], Connection]
"""Makes the connection to an ip and port; nothing is opened yet."""


class _Target:
    """One endpoint and how to reach it."""

    __slots__ = ("connection", "not_before", "state", "task")

    def __init__(self, state: EndpointState, connect: Connect) -> None:
        address = split_address(state.address)
        if address is None or address[1] is None:
            raise ValueError(f"no ip:port: {state.address}")
        self.state = state
        self.connection = connect(address[0], address[1])
        self.not_before = 0.0
        self.task: asyncio.Task[None] | None = None


class _Followed:
    """A pool that is scraped."""

    __slots__ = ("due", "interval", "pool", "settle_at", "started", "targets")

    def __init__(self, pool: PoolState, now: float) -> None:
        self.pool = pool
        self.targets: dict[EndpointState, _Target] = {}
        self.interval = 0.0
        self.started = float("-inf")
        self.due = now
        self.settle_at: float | None = None


class Scraper:
    """Scrapes the endpoints of the pools that it was given.

    Attributes:
        scrapes: finished scrapes, good or not.
        errors: those that failed.
        dropped_values: samples with an impossible value.
    """

    def __init__(
        self,
        settings: ScrapeSettings,
        *,
        clock: Clock,
        rng: random.Random | None = None,
        connect: Connect | None = None,
    ) -> None:
        """
        Args:
            rng: spreads pools and retries over time.
            connect: how endpoints are reached; over HTTP if not given.
        """
        self.scrapes = 0
        self.errors = 0
        self.dropped_values = 0
        self._settings = settings
        self._clock = clock
        self._connect = connect or self._over_http
        self._rng = rng or random.Random()  # noqa: S311 - spreads load, guards nothing
        self._followed: dict[PoolState, _Followed] = {}
        self._slots = asyncio.Semaphore(settings.max_in_flight)
        self._suspect_slots = asyncio.Semaphore(max(1, settings.max_in_flight // 4))
        self._wake = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._fault: BaseException | None = None
        self._cost = pace.FIXED_COST_SECONDS * 2
        self._stretch = 1.0
        self._stretch_at = float("-inf")
        self._log_window = float("-inf")
        self._logged = 0

    def add(self, pool: PoolState) -> None:
        """Begin to scrape a pool; idempotent."""
        if pool in self._followed:
            return
        followed = _Followed(pool, self._clock.monotonic())
        self._followed[pool] = followed
        pool.on_stale = lambda: self._hurry(followed)
        self.refresh(pool)

    def remove(self, pool: PoolState) -> None:
        """Stop scraping a pool; idempotent. What is known of its endpoints stays."""
        followed = self._followed.pop(pool, None)
        if followed is not None:
            pool.on_stale = None
            for target in followed.targets.values():
                _drop(target)

    def refresh(self, pool: PoolState) -> None:
        """Follow changed endpoints: new ones are scraped at once, old ones no more."""
        followed = self._followed.get(pool)
        if followed is None:
            return
        states = set(pool.endpoints())
        for state in followed.targets.keys() - states:
            _drop(followed.targets.pop(state))
        for state in states - followed.targets.keys():
            followed.targets[state] = _Target(state, self._connect)
            followed.due = self._clock.monotonic()
        self._wake.set()

    def endpoints_failing(self) -> int:
        """Ready endpoints whose last scrape failed."""
        return sum(
            1
            for followed in self._followed.values()
            for state in followed.targets
            if state.failures
        )

    def counts(self) -> ScrapeCounts:
        """For the metrics."""
        return ScrapeCounts(
            good=self.scrapes - self.errors,
            failed=self.errors,
            dropped_values=self.dropped_values,
            endpoints_failing=self.endpoints_failing(),
        )

    async def run(self) -> None:
        """Scrape until cancelled; an unexpected fault in any scrape ends it."""
        try:
            while True:
                self._wake.clear()
                if self._fault is not None:
                    raise self._fault
                delay = self._start_due()
                try:
                    async with asyncio.timeout(delay):
                        await self._wake.wait()
                except TimeoutError:
                    pass
        finally:
            for followed in self._followed.values():
                for target in followed.targets.values():
                    _drop(target)

    async def first(self, pool: PoolState) -> None:
        """Have each endpoint scraped once, or tried; at most 2 x the scrape timeout.

        Returns at once for a pool that was not added, or is removed already: the caller's wish may
        be older than the removal.
        """
        followed = self._followed.get(pool)
        if followed is None:
            return
        self._start(followed, self._clock.monotonic())
        tasks = [target.task for target in followed.targets.values() if target.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=2 * self._settings.timeout_seconds)

    def interval(self, pool: PoolState) -> float:
        """Seconds between scrapes of each endpoint of this pool, now."""
        return pace.base_interval(pool.request_rate(), self._settings) * self._stretch

    def _start_due(self) -> float:
        """Start what is due; returns the seconds until something else is."""
        now = self._clock.monotonic()
        self._update_stretch(now)
        soonest = now + LONGEST_SLEEP_SECONDS
        for followed in self._followed.values():
            if followed.due <= now + TICK_SECONDS:
                self._start(followed, now)
            soonest = min(soonest, followed.due)
        return max(0.0, soonest - now)

    def _start(self, followed: _Followed, now: float) -> None:
        followed.started = now
        followed.interval = self.interval(followed.pool)
        followed.due = now + followed.interval * self._rng.uniform(0.9, 1.1)
        self._update_stale(followed, now)
        for target in followed.targets.values():
            if target.task is None and target.not_before <= now:
                task = asyncio.create_task(self._scrape(followed, target))
                target.task = task
                self._tasks.add(task)
                task.add_done_callback(functools.partial(self._done, target))

    def _update_stretch(self, now: float) -> None:
        if now - self._stretch_at < STRETCH_EVERY_SECONDS:
            return
        self._stretch_at = now
        self._roll_log_window(now)
        wanted = sum(self._wanted(followed) for followed in self._followed.values())
        self._stretch = pace.stretch(wanted, self._cost, self._settings)

    def _wanted(self, followed: _Followed) -> float:
        """Scrapes/s that a pool wants; endpoints that fail are asked less often."""
        interval = pace.base_interval(followed.pool.request_rate(), self._settings)
        return sum(
            1.0 / (max(interval, pace.back_off(state.failures)) if state.failures else interval)
            for state in followed.targets
        )

    def _update_stale(self, followed: _Followed, now: float) -> None:
        """A shorter interval makes metrics overdue only after each endpoint had time to be read at
        that pace; else a burst on an idle pool would run to the first pod that answers."""
        wanted = pace.stale_after(followed.interval)
        if wanted >= followed.pool.stale_after:
            followed.pool.stale_after = wanted
            followed.settle_at = None
        elif followed.settle_at is None:
            followed.settle_at = now + 2 * self._settings.timeout_seconds
        elif now >= followed.settle_at:
            followed.pool.stale_after = wanted
            followed.settle_at = None

    def _hurry(self, followed: _Followed) -> None:
        """A pick used old data: scrape soon, as far as the budget has room for extra scrapes."""
        now = self._clock.monotonic()
        rate = followed.pool.request_rate()
        soon = max(now, followed.started + pace.hurried(rate, self._stretch, self._settings))
        if followed.due > soon:
            followed.due = soon
            self._wake.set()

    async def _scrape(self, followed: _Followed, target: _Target) -> None:
        state = target.state
        async with self._suspect_slots if state.failures else self._slots:
            connection = target.connection
            at, inflight = self._clock.monotonic(), state.inflight
            busy = connection.busy_seconds
            why = ""
            refused = False
            try:
                async with asyncio.timeout(self._settings.timeout_seconds):
                    metrics = await connection.fetch()
            except TimeoutError:
                why = f"not complete within {self._settings.timeout_seconds} s"
            except ScrapeFailed as error:
                why, refused = str(error), error.refused
            self.scrapes += 1
            cost = pace.FIXED_COST_SECONDS + connection.busy_seconds - busy
            self._cost += (cost - self._cost) / 64
            if why:
                self._failed(followed, target, why, refused=refused)
                return
            if state.failures:
                self._log("endpoint scraped again", followed, state, failures=state.failures)
            state.scraped(
                waiting=metrics.waiting,
                running=metrics.running,
                kv=metrics.kv,
                at=at,
                inflight=inflight,
            )
            self.dropped_values += metrics.dropped
            if followed.interval > KEEP_SECONDS:
                connection.close()

    def _failed(self, followed: _Followed, target: _Target, why: str, *, refused: bool) -> None:
        self.errors += 1
        state = target.state
        first = state.failures == 0
        state.scrape_failed(refused=refused)
        wait = pace.back_off(state.failures) * self._rng.uniform(0.75, 1.25)
        target.not_before = self._clock.monotonic() + wait
        if first:
            self._log("scrape failed", followed, state, why=why)

    def _done(self, target: _Target, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        target.task = None
        if not task.cancelled() and (fault := task.exception()) is not None:
            self._fault = fault
            self._wake.set()

    def _log(self, event: str, followed: _Followed, state: EndpointState, **extra: object) -> None:
        """Transitions only, and a bounded number of them."""
        self._roll_log_window(self._clock.monotonic())
        self._logged += 1
        if self._logged <= LOGS_PER_WINDOW:
            pool = str(followed.pool.pool.ref)
            log.warning(event, extra={"pool": pool, "endpoint": state.address, **extra})

    def _roll_log_window(self, now: float) -> None:
        if now - self._log_window > LOG_WINDOW_SECONDS:
            if self._logged > LOGS_PER_WINDOW:
                log.warning(
                    "scrape messages left out", extra={"count": self._logged - LOGS_PER_WINDOW}
                )
            self._log_window = now
            self._logged = 0

    def _over_http(self, host: str, port: int) -> Connection:
        limit = self._settings.max_page_bytes
        return MetricsConnection(host, port, limit=limit, now=self._clock.monotonic)


def _drop(target: _Target) -> None:
    if target.task is not None:
        target.task.cancel()
    target.connection.close()
