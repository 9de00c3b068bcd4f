"""Keeps what is known of the endpoints fresh, at a price that the worker can pay.

Each pool has a pace of its own; each endpoint has one connection and at most one scrape under way,
so an endpoint that hangs, dribbles or never ends delays nobody but itself. Everything happens in
callbacks of one timer and of the connections: thousands of scrapes a second have no tasks, and a
pick never waits for one. It asks for a scrape when its data is old, and goes on with what is known:
waiting would cost every such request a task and up to 10 ms, to save one pick of a pool that has
been idle, where queues are short anyway.
"""

import asyncio
import heapq
import itertools
import logging
import random
import time

from epp_worker.datalayer import pace
from epp_worker.datalayer.counts import ScrapeCounts
from epp_worker.datalayer.fetch import READ_BYTES, MetricsConnection, ScrapeFailed
from epp_worker.datalayer.metrics_text import EngineMetrics
from epp_worker.datalayer.targets import Connect, Connection, Followed, Phase, Places, Target
from epp_worker.scheduling.endpoint import EndpointState
from epp_worker.scheduling.pool import PoolState
from fleet.clock import Clock
from fleet.settings.model import ScrapeSettings

log = logging.getLogger(__name__)

KEEP_SECONDS = 4.0
"""A connection is closed rather than kept idle for longer: uvicorn, in front of vLLM, closes its
own after 5 s."""

TICK_SECONDS = 0.001
"""What is due within so short a time shares a wake-up."""
BATCH = 8
"""Scrapes begun at once. The answers of a whole pool in one turn of the loop would let picks wait
for milliseconds: a page costs about 0.1 ms."""
STRETCH_EVERY_SECONDS = 1.0
LOGS_PER_WINDOW = 10
LOG_WINDOW_SECONDS = 10.0


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
        self._buffer = bytearray(READ_BYTES)
        self._connect = connect or self._over_http
        self._rng = rng or random.Random()  # noqa: S311 - spreads load, guards nothing
        self._followed: dict[PoolState, Followed] = {}
        self._due: list[tuple[float, int, Followed]] = []
        self._number = itertools.count()
        self._healthy = Places(settings.max_in_flight)
        self._suspect = Places(max(1, settings.max_in_flight // 4))
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._ended: asyncio.Future[None] | None = None
        self._cost = pace.FIXED_COST_SECONDS * 2
        self._stretch = 1.0
        self._stretch_at = float("-inf")
        self._log_window = float("-inf")
        self._logged = 0

    def add(self, pool: PoolState) -> None:
        """Begin to scrape a pool; idempotent."""
        if pool in self._followed:
            return
        followed = Followed(pool, self._clock.monotonic())
        self._followed[pool] = followed
        pool.on_stale = lambda: self._hurry(followed)
        self._put(followed, followed.due)
        self.refresh(pool)

    def remove(self, pool: PoolState) -> None:
        """Stop scraping a pool; idempotent. What is known of its endpoints stays."""
        followed = self._followed.pop(pool, None)
        if followed is not None:
            followed.gone = True
            pool.on_stale = None
            for target in followed.targets.values():
                target.drop()

    def refresh(self, pool: PoolState) -> None:
        """Follow changed endpoints: those that are new, or ready anew, are scraped at once, old
        ones no more."""
        followed = self._followed.get(pool)
        if followed is None:
            return
        states = set(pool.endpoints())
        for state in followed.targets.keys() - states:
            followed.targets.pop(state).drop()
        anew = [target for target in followed.targets.values() if target.ready_anew()]
        new = states - followed.targets.keys()
        for state in new:
            followed.targets[state] = Target(followed, state, self._connect, self._done)
        now = self._clock.monotonic()
        if (new or anew) and followed.due > now:
            self._put(followed, now)

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
        self._ended = asyncio.get_running_loop().create_future()
        try:
            self._tick()
            await self._ended
        finally:
            self._ended = None
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            for followed in self._followed.values():
                for target in followed.targets.values():
                    target.drop()

    async def first(self, pool: PoolState) -> None:
        """Have each endpoint scraped once, or tried; at most 2 x the scrape timeout.

        Returns at once for a pool that was not added, or is removed already: the caller's wish may
        be older than the removal.
        """
        followed = self._followed.get(pool)
        if followed is None:
            return
        now = self._clock.monotonic()
        self._line_up(followed, now)
        ends = [
            target.ended() for target in followed.targets.values() if target.phase is not Phase.IDLE
        ]
        if ends:
            self._wake(now)
            await asyncio.wait(ends, timeout=2 * self._settings.timeout_seconds)

    def interval(self, pool: PoolState) -> float:
        """Seconds between scrapes of each endpoint of this pool, now."""
        return pace.base_interval(pool.request_rate(), self._settings) * self._stretch

    # --- the timer

    def _put(self, followed: Followed, due: float) -> None:
        """Have the pool scraped at `due`."""
        followed.due = due
        heapq.heappush(self._due, (due, next(self._number), followed))
        if self._ended is not None:
            self._wake(due)

    def _wake(self, at: float) -> None:
        """Have the timer fire at `at`, or before."""
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        self._timer_at = at
        delay = max(0.0, at - self._clock.monotonic())
        self._timer = asyncio.get_running_loop().call_later(delay, self._tick)

    def _tick(self) -> None:
        self._timer = None
        try:
            now = self._clock.monotonic()
            self._give_up(now)
            if self._ended is not None:
                self._update_stretch(now)
                self._start_due(now)
            for places in (self._healthy, self._suspect):
                places.begin(BATCH, now)
            self._wake_next(now)
        except Exception as error:  # noqa: BLE001 - ends `run`, which is what is watched
            self._fault(error)

    def _wake_next(self, now: float) -> None:
        """Set the timer to the next thing that has its time."""
        for places in (self._healthy, self._suspect):
            if places.waiting():
                self._wake(now + TICK_SECONDS)
            if (begun := places.oldest()) is not None:
                self._wake(begun + self._settings.timeout_seconds)
        if self._ended is not None:
            self._wake(self._stretch_at + STRETCH_EVERY_SECONDS)
            if self._due:
                self._wake(self._due[0][0])

    def _start_due(self, now: float) -> None:
        while self._due and self._due[0][0] <= now + TICK_SECONDS:
            due, _, followed = heapq.heappop(self._due)
            if followed.due == due and not followed.gone:  # else it was put elsewhere since
                self._line_up(followed, now)
                self._put(followed, now + followed.interval * self._rng.uniform(0.9, 1.1))

    def _line_up(self, followed: Followed, now: float) -> None:
        followed.started = now
        followed.interval = self.interval(followed.pool)
        self._update_stale(followed, now)
        for target in followed.targets.values():
            if target.phase is Phase.IDLE and target.not_before <= now:
                (self._suspect if target.state.failures else self._healthy).line_up(target)

    def _give_up(self, now: float) -> None:
        """What is not complete in time is a failed scrape."""
        limit = self._settings.timeout_seconds
        for places in (self._healthy, self._suspect):
            for target in places.overdue(limit, now + TICK_SECONDS):
                target.connection.cancel()
                self._done(target, ScrapeFailed(f"not complete within {limit} s"))

    def _update_stretch(self, now: float) -> None:
        if now - self._stretch_at < STRETCH_EVERY_SECONDS:
            return
        self._stretch_at = now
        self._roll_log_window(now)
        wanted = sum(self._wanted(followed) for followed in self._followed.values())
        self._stretch = pace.stretch(wanted, self._cost, self._settings)

    def _wanted(self, followed: Followed) -> float:
        """Scrapes/s that a pool wants; endpoints that fail are asked less often."""
        interval = pace.base_interval(followed.pool.request_rate(), self._settings)
        return sum(
            1.0 / (max(interval, pace.back_off(state.failures)) if state.failures else interval)
            for state in followed.targets
        )

    def _update_stale(self, followed: Followed, now: float) -> None:
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

    def _hurry(self, followed: Followed) -> None:
        """A pick used old data: scrape soon, as far as the budget has room for extra scrapes."""
        now = self._clock.monotonic()
        rate = followed.pool.request_rate()
        soon = max(now, followed.started + pace.hurried(rate, self._stretch, self._settings))
        if followed.due > soon:
            self._put(followed, soon)

    # --- what scrapes come to

    def _done(self, target: Target, result: EngineMetrics | Exception) -> None:
        target.end()
        try:
            self._note(target, result)
            if self._healthy.waiting() or self._suspect.waiting():
                self._wake(self._clock.monotonic() + TICK_SECONDS)
        except Exception as error:  # noqa: BLE001 - ends `run`, which is what is watched
            self._fault(error)

    def _note(self, target: Target, result: EngineMetrics | Exception) -> None:
        self.scrapes += 1
        busy = target.connection.busy_seconds
        cost = pace.FIXED_COST_SECONDS + busy - target.busy
        target.busy = busy
        self._cost += (cost - self._cost) / 64
        state = target.state
        if isinstance(result, ScrapeFailed):
            self._failed(target, result)
            return
        if isinstance(result, Exception):
            raise result
        if state.failures:
            failures = state.failures
            self._log("endpoint scraped again", target.followed, state, failures=failures)
        state.scraped(
            waiting=result.waiting,
            running=result.running,
            kv=result.kv,
            at=target.at,
            inflight=target.inflight,
        )
        state.described(
            lora_running=result.lora_running,
            lora_waiting=result.lora_waiting,
            lora_max=result.lora_max,
            block_size=result.block_size,
            blocks=result.blocks,
        )
        self.dropped_values += result.dropped
        if target.followed.interval > KEEP_SECONDS:
            target.connection.close()

    def _failed(self, target: Target, failure: ScrapeFailed) -> None:
        self.errors += 1
        state = target.state
        first = state.failures == 0
        state.scrape_failed(refused=failure.refused)
        wait = pace.back_off(state.failures) * self._rng.uniform(0.75, 1.25)
        target.not_before = self._clock.monotonic() + wait
        if first:
            self._log("scrape failed", target.followed, state, why=str(failure))

    def _fault(self, error: Exception) -> None:
        log.error("scraper failed", exc_info=error)
        if self._ended is not None and not self._ended.done():
            self._ended.set_exception(error)

    def _log(self, event: str, followed: Followed, state: EndpointState, **extra: object) -> None:
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
        now, buffer = time.thread_time, self._buffer
        return MetricsConnection(host, port, limit=limit, now=now, buffer=buffer)
