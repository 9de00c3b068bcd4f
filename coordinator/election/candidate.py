"""One coordinator's part in the election: campaign, lead while the term is valid, step down.

Promises:
- the leader's work runs only inside a term; `Leadership.valid` is false from the term's deadline
  on, whatever the lease's home says later;
- an unknown answer (StoreUnavailable) keeps the term until its deadline, and no longer;
- the work is cancelled and has ended before the lease is given up, never the other way round;
- a holder whose lease is simply gone (the store restarted empty) or who hears of a higher epoch
  acquires again above everything it knows, once; if somebody else was faster it steps down;
- nobody else takes a lease whose home was emptied before its holder must have stopped.
"""

import asyncio
import contextlib
import logging
import math
import random
from collections.abc import Awaitable, Callable
from enum import Enum, auto
from typing import Any, Final

from coordinator.election.contract import Election, Standing, Term
from coordinator.election.leadership import Leadership
from coordinator.metrics.elections import ElectionFigures
from fleet.clock import Clock
from fleet.errors import FleetError, StoreRefused, StoreUnavailable
from fleet.telemetry import RateLimited

log = logging.getLogger(__name__)

BACK_OFF_SECONDS: Final = 1.0
"""After the leader's work failed, or the lease's home refused: somebody else may do better."""

EXPIRED_SECONDS: Final = 0.001
"""What runs out at a given moment is looked at this much later: then it surely has."""

_JITTER: Final = 0.1

Floor = Callable[[], Awaitable[int]]
Lead = Callable[[Leadership], Awaitable[None]]
OnRollback = Callable[[Standing], None]
Work = asyncio.Task[None]


class _End(Enum):
    """How a term ended."""

    LOST = auto()
    EXPIRED = auto()
    WORK_ENDED = auto()
    STOPPED = auto()


class Candidate:
    """Takes part in one election until cancelled."""

    def __init__(
        self,
        election: Election,
        clock: Clock,
        *,
        floor: Floor,
        lead: Lead,
        rng: random.Random,
        me: str = "",
        on_rollback: OnRollback | None = None,
        figures: ElectionFigures | None = None,
    ) -> None:
        """Args:
        floor: the highest epoch known from members, routes and memory; asked before each acquire.
            If it raises a FleetError nothing is acquired.
        lead: the leader's work; cancelled when the term ends. It must survive that `valid` is false
            for a moment and that the epoch grows. Returning or raising resigns.
        me: this candidate's id: a lease of an earlier life under it is taken over at once.
        on_rollback: called on a renewal that finds the stored map below what was published (or
            gone), each time until it is published again.
        figures: counts what is seen.
        """
        self._figures = figures or ElectionFigures()
        self._election = election
        self._clock = clock
        self._renew_seconds = election.timers.renew_seconds
        self._ttl_seconds = election.timers.ttl_seconds
        self._floor = floor
        self._lead = lead
        self._rng = rng
        self._me = me
        self._on_rollback = on_rollback
        self._standing = Standing(None, 0)
        self._looked = -math.inf
        self._leadership: Leadership | None = None
        self._highest = 0
        self._own_epoch = 0
        self._emptied_at: float | None = None
        self._required = 0
        self._alarm = asyncio.Event()
        self._loud = RateLimited(log, clock)

    def standing(self) -> Standing:
        """The latest observation; nobody and epoch 0 before the first."""
        return self._standing

    def stale(self) -> bool:
        """Whether the latest observation is older than a lease lasts: nobody knows who leads."""
        return self._clock.monotonic() - self._looked > self._ttl_seconds

    def leadership(self) -> Leadership | None:
        """The present leadership, or None while following. Look at its `valid` too."""
        return self._leadership

    def require_epoch_above(self, epoch: int) -> None:
        """`epoch` was seen: a leader at or below it acquires again above it, or resigns."""
        self._required = max(self._required, epoch)
        if self._leadership is not None and self._leadership.epoch <= epoch:
            self._alarm.set()

    async def run(self) -> None:
        """Campaign and lead, over and over. On cancellation: stop the work, then release."""
        while True:
            term = await self._campaign()
            if term is not None and not await self._reign(term):
                await self._clock.sleep(BACK_OFF_SECONDS)

    def _saw(self, standing: Standing) -> None:
        self._standing = standing
        self._looked = self._clock.monotonic()
        self._figures.saw(standing.epoch)

    # Following

    async def _campaign(self) -> Term | None:
        """One look at the lease; the term if it was free and is ours now."""
        pause = self._renew_seconds * self._rng.uniform(1 - _JITTER, 1 + _JITTER)
        try:
            self._saw(await self._election.observe())
            if self._standing.leader is None:
                # What the lease's home has forgotten, routes and workers still tell.
                told = max(self._required, await self._floor())
                if told > self._highest:  # somebody held it since, whom we never saw
                    self._highest, self._emptied_at = told, None
            if self._free(self._standing):
                term = await self._acquire()
                if term is not None:
                    return term
            elif self._standing.expires_in is not None:
                pause = min(pause, self._standing.expires_in + EXPIRED_SECONDS)
        except StoreRefused as error:
            log.error("lease refused", extra={"error": str(error)})
            await self._clock.sleep(BACK_OFF_SECONDS)
            return None
        except FleetError as error:
            self._loud.warning("lease unknown", extra={"error": str(error)})
            await self._clock.sleep(pause)  # what is told meanwhile could not be looked at
            return None
        await self._until_changed(pause)
        return None

    async def _until_changed(self, seconds: float) -> None:
        """Until the lease's home tells of a change, or the time has passed."""
        waits = {
            asyncio.create_task(self._election.changed()),
            asyncio.create_task(self._clock.sleep(seconds)),
        }
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.wait(waits)

    def _free(self, standing: Standing) -> bool:
        """Whether to try for the lease now.

        A lease that is gone with its epoch was not given up: its home was emptied, and the holder
        may act for up to one TTL. It has that long to take it again, or to find out. An epoch of
        which only routes or workers tell was somebody's, too.
        """
        now = self._clock.monotonic()
        if standing.leader is not None or standing.epoch >= self._highest:
            self._emptied_at = None
            self._highest = max(self._highest, standing.epoch)
            return standing.leader is None or standing.leader.id == self._me
        if self._own_epoch == self._highest:
            return True  # the last holder known was this one, and it has stopped
        if self._emptied_at is None:
            log.warning("lease emptied", extra={"epoch": standing.epoch, "seen": self._highest})
            self._emptied_at = now
        return now - self._emptied_at >= self._ttl_seconds

    async def _acquire(self, *, above: int = 0) -> Term | None:
        """Acquire above all that is known. An attempt that is cancelled leaves no lease behind."""
        known = (self._required, self._standing.epoch, self._highest, above)
        floor = max(await self._floor(), *known)
        attempt = asyncio.create_task(self._election.acquire(floor=floor))
        try:
            term = await asyncio.shield(attempt)
        except asyncio.CancelledError:
            with contextlib.suppress(FleetError):
                landed = await attempt
                if landed is not None:
                    await self._release(landed)
            raise
        if term is not None:
            self._me = term.leader.id
            self._own_epoch = term.epoch
            self._highest = max(self._highest, term.epoch)
            self._saw(Standing(term.leader, term.epoch, self._standing.map_version))
        return term

    # Leading

    async def _reign(self, term: Term) -> bool:
        """Lead until the term ends; false if that was for a failure of the leader's work."""
        log.info("leading", extra={"epoch": term.epoch})
        leadership = Leadership(
            self._clock, term, ttl_seconds=self._ttl_seconds, renew=self._alarm.set
        )
        work = asyncio.create_task(self._work(leadership))
        self._leadership = leadership
        end = _End.STOPPED
        try:
            end = await self._keep(leadership, work)
            return end is not _End.WORK_ENDED
        finally:
            leadership.end()
            self._leadership = None
            await _stop(work)
            log.info("not leading", extra={"epoch": leadership.epoch, "end": end.name.lower()})
            await self._release(leadership.term)

    async def _work(self, leadership: Leadership) -> None:
        try:
            await self._lead(leadership)
        except Exception:
            log.exception("leader's work failed, resigning", extra={"epoch": leadership.epoch})
        else:
            log.warning("leader's work ended, resigning", extra={"epoch": leadership.epoch})

    async def _keep(self, leadership: Leadership, work: Work) -> _End:
        """Renew, and raise the epoch when told to, until the term ends."""
        due = self._clock.monotonic() + self._renew_seconds
        while True:
            await self._pause(leadership, work, due)
            if work.done():
                return _End.WORK_ENDED
            if leadership.remaining() <= 0.0:
                return _End.EXPIRED
            due = self._clock.monotonic() + self._renew_seconds
            if self._required >= leadership.epoch:
                kept = await self._raise_epoch(leadership)
            else:
                kept = await self._renew(leadership, work)
            if not kept:
                return _End.LOST

    async def _pause(self, leadership: Leadership, work: Work, due: float) -> None:
        """Until the next renewal, the deadline, the end of the work, or a report of an epoch."""
        seconds = min(due - self._clock.monotonic(), leadership.remaining() + EXPIRED_SECONDS)
        await self._first(asyncio.create_task(self._alarm.wait()), work, seconds)
        self._alarm.clear()

    async def _renew(self, leadership: Leadership, work: Work) -> bool:
        """One renewal; false if the lease is lost for certain."""
        published = leadership.published
        began = self._clock.monotonic()
        attempt = asyncio.create_task(self._election.renew(leadership.term))
        await self._first(attempt, work, leadership.remaining())
        self._figures.renew_seconds.observe(self._clock.monotonic() - began)
        if attempt.cancelled():
            return True  # the deadline or the end of the work came first: the caller sees which
        try:
            term, standing = attempt.result()
        except FleetError as error:
            unsure = {"epoch": leadership.epoch, "error": str(error)}
            self._loud.warning("renewal unknown", extra=unsure)
            return True
        self._saw(standing)
        if term is None:
            return await self._recover(leadership, standing)
        leadership.renewed(term)
        if leadership.rolled_back(standing, published) and self._on_rollback is not None:
            found = {"published": str(published), "stored": str(standing.map_version)}
            log.warning("stored map rolled back", extra=found)
            self._on_rollback(standing)
        return True

    async def _recover(self, leadership: Leadership, standing: Standing) -> bool:
        """The lease is not this term's any more: acquire again unless somebody else has it."""
        holder = standing.leader
        if holder is not None and holder.id != leadership.term.leader.id:
            log.warning("lease lost", extra={"epoch": leadership.epoch, "to": holder.id})
            return False
        log.warning("lease gone, acquiring again", extra={"epoch": leadership.epoch})
        with leadership.suspended():  # until this is answered somebody else may lead
            try:
                return await self._reacquire(leadership)
            except FleetError as error:
                log.warning("acquiring again failed", extra={"error": str(error)})
                return False

    async def _raise_epoch(self, leadership: Leadership) -> bool:
        """A higher epoch was seen: acquire again above it; false = resign."""
        try:
            return await self._reacquire(leadership)
        except StoreUnavailable as error:
            # Not refused: the term runs on, and if the answer was lost the next renewal tells.
            log.warning("acquiring again unknown", extra={"error": str(error)})
            return True
        except FleetError as error:
            log.error("acquiring again refused, resigning", extra={"error": str(error)})
            return False

    async def _reacquire(self, leadership: Leadership) -> bool:
        before = leadership.epoch
        term = await self._acquire(above=before)
        if term is None:
            log.warning("somebody else leads", extra={"epoch": before})
            return False
        leadership.renewed(term)
        log.info("epoch raised", extra={"before": before, "epoch": term.epoch})
        return True

    async def _release(self, term: Term) -> None:
        try:
            await self._election.release(term)
        except FleetError as error:  # it runs out by itself
            log.warning("release failed", extra={"epoch": term.epoch, "error": str(error)})

    async def _first(self, own: "asyncio.Task[Any]", work: Work, seconds: float) -> None:
        """Until one of the two is done or the time has passed; `own` is cancelled if unfinished."""
        timer = asyncio.create_task(self._clock.sleep(seconds))
        try:
            await asyncio.wait({own, work, timer}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            own.cancel()
            timer.cancel()
            await asyncio.wait({own, timer})


async def _stop(work: Work) -> None:
    """Cancel, and return when it has ended."""
    work.cancel()
    await asyncio.wait({work})
