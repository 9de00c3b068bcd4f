"""One pool as the scheduler sees it: its ready endpoints, what is known of each, and the picks.

Everything here happens in one step on one event loop: choosing and counting are never apart, so
that two requests of the same moment see each other.
"""

import logging
import math
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from epp_worker.scheduling.configured import NewScheduler, Schedulers
from epp_worker.scheduling.contract import Pick, PickRequest, Refusal, ResponsePhase
from epp_worker.scheduling.endpoint import Changes, EndpointState, ToldMetrics, Touched
from epp_worker.scheduling.picks import OpenPick
from epp_worker.scheduling.scheduler import PoolView, Scheduler
from epp_worker.scheduling.state_origins import Origins
from epp_worker.scheduling.state_slots import ListedSlot, NewSlot, StateSlot, seen_tables
from epp_worker.scheduling.subset import join, split_address
from fleet.model.pools import RESPONSE_PHASE, Endpoint, Pool
from fleet.model.rewrites import NO_INTENTS, Intents

log = logging.getLogger(__name__)

RATE_SECONDS: Final = 10.0
"""Time constant of `request_rate`."""

REFRESH_AFTER_SECONDS: Final = 1.0
"""A pick whose data is older than this asks for a scrape."""

STALE_AFTER_SECONDS: Final = 90.0
"""Three times the longest scrape interval: overdue for certain until a scraper knows better."""

NO_ENDPOINTS: Final = "rejected-no-endpoints"
_NO_READY: Final = Refusal(503, NO_ENDPOINTS, "The pool has no ready endpoint.")
_NOT_ALLOWED = Refusal(503, NO_ENDPOINTS, "No ready endpoint of the pool is in the allowed subset.")

_PHASES: Final = frozenset(ResponsePhase)


def phase_of(pool: Pool) -> ResponsePhase | None:
    """What a pool's annotation asks for; None without one that can be understood."""
    value = pool.annotations.get(RESPONSE_PHASE, "").strip()
    if value in _PHASES:
        return ResponsePhase(value)
    if value:
        log.warning(
            "annotation not understood",
            extra={
                "pool": str(pool.ref),
                "annotation": RESPONSE_PHASE,
                "value": value[:80],
                "known": ", ".join(sorted(_PHASES)),
            },
        )
    return None


class PoolState:
    """The endpoints of one pool and the requests that are open on them.

    Attributes:
        pool: the pool as last read.
        on_stale: called, without waiting, by a pick whose data is older than 1 s.
        stale_after: metrics older than this many seconds are overdue; set by the scraper.
        mismatches: responses served by another endpoint than the one picked.
        origins: requests in flight by the word of other workers.
        intents: what is said of requests to this pool.
        response_phase: what the pool asks for, else its configuration; None = what the fleet does.
        models: what its model servers say that they serve; None = not known, or nobody asked.
        slots: what else is known of the pool, by name.
        on_new_slot: told of each slot that is made, if somebody follows.
        unplaced: metrics told of endpoints that are not listed here yet, by address.
    """

    __slots__ = (
        "_by_key",
        "_changes",
        "_new_slot",
        "_now",
        "_rate_at",
        "_recent",
        "_rng",
        "_scheduler",
        "_schedulers",
        "_states",
        "_touched",
        "intents",
        "mismatches",
        "models",
        "on_new_slot",
        "on_stale",
        "origins",
        "pool",
        "response_phase",
        "slots",
        "stale_after",
        "unplaced",
    )

    def __init__(
        self,
        pool: Pool,
        *,
        now: Callable[[], float],
        rng: random.Random,
        new_slot: NewSlot = seen_tables,
        schedulers: NewScheduler | None = None,
    ) -> None:
        """
        Args:
            now: monotonic seconds.
            rng: breaks ties between the best.
            new_slot: makes a slot when it is first asked for.
            schedulers: makes the scheduler at the first pick; None = by the built-in configuration.
        """
        self.pool = pool
        self.intents: Intents = NO_INTENTS
        self.response_phase = phase_of(pool)
        self.on_stale: Callable[[], None] | None = None
        self.stale_after = STALE_AFTER_SECONDS
        self.mismatches = 0
        self.models: frozenset[str] | None = None
        self.origins: Origins | None = None
        self.slots: dict[str, StateSlot] = {}
        self.unplaced: dict[str, ToldMetrics] | None = None
        self.on_new_slot: Callable[[StateSlot], None] | None = None
        self._changes = Changes()
        self._new_slot = new_slot
        self._touched: Touched | None = None
        self._now = now
        self._rng = rng
        self._schedulers = Schedulers().scheduler if schedulers is None else schedulers
        self._scheduler: Scheduler | None = None
        self._states: tuple[EndpointState, ...] = ()
        self._by_key: dict[str, EndpointState] = {}
        self._recent = 0.0
        self._rate_at = now()

    def update(self, pool: Pool) -> None:
        """Take a changed pool. Another uid is another pool: nothing known of the old one stays."""
        if pool.uid != self.pool.uid:
            self._states = ()
            self._by_key = {}
            self._recent = 0.0
            self.models = None
            self.origins = None
            self.slots = {}
            self.unplaced = None
            self._scheduler = None
        self.pool = pool
        self.response_phase = phase_of(pool)
        self.reconfigure()

    def set_endpoints(self, endpoints: Sequence[Endpoint]) -> None:
        """Replace the ready endpoints; the same pod at the same address keeps its state.

        A pick that is still open on an endpoint that is gone releases harmlessly.
        """
        kept = {(state.endpoint.pod_uid, state.address): state for state in self._states}
        states = []
        for endpoint in endpoints:
            state = kept.get((endpoint.pod_uid, endpoint.address))
            if state is None:
                state = self._newcomer(endpoint)
            else:
                state.endpoint = endpoint
            states.append(state)
        self._states = tuple(states)
        self._by_key = {state.key: state for state in states}
        for slot in self.slots.values():
            if isinstance(slot, ListedSlot):
                slot.listed(self._states)

    def _newcomer(self, endpoint: Endpoint) -> EndpointState:
        """A new endpoint, with what others have told of it before it was listed here."""
        state = EndpointState(endpoint)
        state.changes = self._changes
        told = None if self.unplaced is None else self.unplaced.pop(endpoint.address, None)
        if told is not None:
            state.heard(told)
        if self.origins is not None:
            state.told(self.origins.total(state.address))
        state.touched = self._touched
        if state.touched is not None:
            state.touched(state)
        return state

    def watch(self, touched: Touched | None) -> None:
        """Have `touched` told of changes at every endpoint; None ends it."""
        self._touched = touched
        for state in self._states:
            state.touched = touched

    def slot(self, name: str) -> StateSlot | None:
        """The slot of this name, made now if it is not here; None for a name that is unknown."""
        slot = self.slots.get(name)
        if slot is None and (slot := self._new_slot(name, self._now)) is not None:
            self.slots[name] = slot
            if isinstance(slot, ListedSlot):
                slot.listed(self._states)
            if self.on_new_slot is not None:
                self.on_new_slot(slot)
        return slot

    def endpoints(self) -> Collection[EndpointState]:
        """The ready endpoints."""
        return self._states

    def has(self, state: EndpointState) -> bool:
        """Whether this endpoint is still one of the pool's."""
        return self._by_key.get(state.key) is state

    def find(self, address: str) -> EndpointState | None:
        """The ready endpoint at `ip:port`, however that is spelled."""
        parts = split_address(address)
        if parts is None or parts[1] is None:
            return None
        return self._by_key.get(join(parts[0], parts[1]))

    def pick(self, request: PickRequest) -> Pick | Refusal:
        """Choose one of the best endpoints and count the request on it, in one step."""
        now = self._now()
        self._count(now)
        candidates: Sequence[EndpointState] = self._states
        if not candidates:
            return _NO_READY
        if request.subset is not None:
            subset = request.subset
            candidates = [c for c in candidates if c.key in subset or c.ip in subset]
            if not candidates:
                return _NOT_ALLOWED
        scheduler = self._scheduler or self._schedule()
        selection = scheduler.select(request, candidates)
        if isinstance(selection, Refusal):
            return selection
        chosen = selection.endpoints[0]
        if self.on_stale is not None and now - chosen.metrics_at > REFRESH_AFTER_SECONDS:
            self.on_stale()
        pick = OpenPick(self, scheduler, selection, request)
        scheduler.picked(request, chosen)
        if selection.others:
            scheduler.prefilled(request, selection.others)
        return pick

    @property
    def scheduler(self) -> Scheduler | None:
        """Who chooses; None before the first pick."""
        return self._scheduler

    def reconfigure(self) -> None:
        """Configurations may have changed: take the right one, if any pick was made so far."""
        if self._scheduler is not None:
            self._schedule()

    def _schedule(self) -> Scheduler:
        view = PoolView(
            self.pool.ref,
            self._now,
            self._rng.random,
            self.slot,
            lambda: self._now() - self.stale_after,
        )
        scheduler = self._scheduler = self._schedulers(self.pool, view, self._scheduler)
        asked = scheduler.config.response_phase
        self.response_phase = phase_of(self.pool) or (ResponsePhase(asked) if asked else None)
        return scheduler

    def now(self) -> float:
        """Monotonic seconds, by the pool's clock."""
        return self._now()

    def inflight(self) -> Mapping[str, int]:
        """Our own open requests by endpoint address."""
        return {state.address: state.inflight - state.foreign for state in self._states}

    def request_rate(self) -> float:
        """Requests/s, smoothed over about 10 s; falls by itself as time passes."""
        return self._decayed(self._now()) / RATE_SECONDS

    def _decayed(self, now: float) -> float:
        return self._recent * math.exp(min(0.0, self._rate_at - now) / RATE_SECONDS)

    def _count(self, now: float) -> None:
        self._recent = self._decayed(now) + 1.0
        self._rate_at = now
