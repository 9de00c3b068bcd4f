"""One pool as the scheduler sees it: its ready endpoints, what is known of each, and the picks.

Everything here happens in one step on one event loop: choosing and counting are never apart, so
that two requests of the same moment see each other.
"""

import math
import random
from collections.abc import Callable, Collection, Mapping, Sequence

from epp_worker.extproc.replies import pick_reply
from epp_worker.scheduling.contract import Pick, PickRequest, Refusal
from epp_worker.scheduling.scoring import best
from epp_worker.scheduling.subset import join, split_address
from fleet.model.pools import Endpoint, Pool

NEVER = float("-inf")

RATE_SECONDS = 10.0
"""Time constant of `request_rate`."""

REFRESH_AFTER_SECONDS = 1.0
"""A pick whose data is older than this asks for a scrape."""

STALE_AFTER_SECONDS = 90.0
"""Three times the longest scrape interval: overdue for certain until a scraper knows better."""

NO_ENDPOINTS = "rejected-no-endpoints"
_NO_READY = Refusal(503, NO_ENDPOINTS, "The pool has no ready endpoint.")
_NOT_ALLOWED = Refusal(503, NO_ENDPOINTS, "No ready endpoint of the pool is in the allowed subset.")


class EndpointState:
    """An endpoint and what is known of it.

    Attributes:
        address: `ip:port` as it goes on the wire.
        ip: normalised ip, for subset hints without a port.
        key: normalised `ip:port`, for subset hints.
        waiting: requests queued in the model server; None = unknown.
        running: requests being computed; None = unknown.
        kv: KV cache in use, 0..1; None = unknown.
        metrics_at: when the three above were asked for, monotonic seconds; -inf = never.
        inflight: our own open requests.
        inflight_seen: `inflight` at `metrics_at`; what came later the metrics cannot show.
        failures: failed scrapes since the last good one.
        refused: the last scrape found nobody listening.
        headers_reply: prebuilt ext_proc answer that names this endpoint.
    """

    __slots__ = (
        "address",
        "endpoint",
        "failures",
        "headers_reply",
        "inflight",
        "inflight_seen",
        "ip",
        "key",
        "kv",
        "metrics_at",
        "refused",
        "running",
        "waiting",
    )

    def __init__(self, endpoint: Endpoint) -> None:
        parts = split_address(endpoint.address)
        if parts is None or parts[1] is None:
            raise ValueError(f"endpoint of pod {endpoint.pod} has no ip:port: {endpoint.address}")
        self.endpoint = endpoint
        self.address = endpoint.address
        self.ip = parts[0]
        self.key = join(parts[0], parts[1])
        self.waiting: float | None = None
        self.running: float | None = None
        self.kv: float | None = None
        self.metrics_at = NEVER
        self.inflight = 0
        self.inflight_seen = 0
        self.failures = 0
        self.refused = False
        self.headers_reply = pick_reply(endpoint.address)

    def scraped(
        self,
        *,
        waiting: float | None,
        running: float | None,
        kv: float | None,
        at: float,
        inflight: int,
    ) -> None:
        """Note a good scrape that was asked for at `at`, with `inflight` requests open then.

        A value that the page did not have is unknown from now on. A page with none of them proves
        only that the server answers.
        """
        self.failures = 0
        self.refused = False
        self.waiting, self.running, self.kv = waiting, running, kv
        if waiting is not None or running is not None or kv is not None:
            self.metrics_at = at
            self.inflight_seen = inflight

    def scrape_failed(self, *, refused: bool) -> None:
        """Note a failed scrape; the last values stay until they are overdue."""
        self.failures += 1
        self.refused = refused


class _Pick:
    """An open pick; see `epp_worker.scheduling.contract.Pick`."""

    __slots__ = ("_open", "_pool", "address", "headers_reply", "pool", "state")

    def __init__(self, pool: "PoolState", state: EndpointState) -> None:
        self._pool = pool
        self._open = True
        self.pool = pool.pool.ref
        self.state = state
        self.address = state.address
        self.headers_reply = state.headers_reply
        state.inflight += 1

    def served_by(self, address: str) -> None:
        served = self._pool.find(address)
        if not self._open or served is self.state:
            return
        self._pool.mismatches += 1
        if served is not None:
            self.state.inflight -= 1
            served.inflight += 1
            self.state = served

    def release(self) -> None:
        if self._open:
            self._open = False
            self.state.inflight -= 1


class PoolState:
    """The endpoints of one pool and the requests that are open on them.

    Attributes:
        pool: the pool as last read.
        on_stale: called, without waiting, by a pick whose data is older than 1 s.
        stale_after: metrics older than this many seconds are overdue; set by the scraper.
        mismatches: responses served by another endpoint than the one picked.
    """

    __slots__ = (
        "_by_key",
        "_now",
        "_rate_at",
        "_recent",
        "_rng",
        "_states",
        "mismatches",
        "on_stale",
        "pool",
        "stale_after",
    )

    def __init__(self, pool: Pool, *, now: Callable[[], float], rng: random.Random) -> None:
        """
        Args:
            now: monotonic seconds.
            rng: breaks ties between the best.
        """
        self.pool = pool
        self.on_stale: Callable[[], None] | None = None
        self.stale_after = STALE_AFTER_SECONDS
        self.mismatches = 0
        self._now = now
        self._rng = rng
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
        self.pool = pool

    def set_endpoints(self, endpoints: Sequence[Endpoint]) -> None:
        """Replace the ready endpoints; the same pod at the same address keeps its state.

        A pick that is still open on an endpoint that is gone releases harmlessly.
        """
        kept = {(state.endpoint.pod_uid, state.address): state for state in self._states}
        states = []
        for endpoint in endpoints:
            state = kept.get((endpoint.pod_uid, endpoint.address))
            if state is None:
                state = EndpointState(endpoint)
            else:
                state.endpoint = endpoint
            states.append(state)
        self._states = tuple(states)
        self._by_key = {state.key: state for state in states}

    def endpoints(self) -> Collection[EndpointState]:
        """The ready endpoints."""
        return self._states

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
        favourites = best(candidates, now - self.stale_after)
        chosen = favourites[0] if len(favourites) == 1 else self._rng.choice(favourites)
        if self.on_stale is not None and now - chosen.metrics_at > REFRESH_AFTER_SECONDS:
            self.on_stale()
        return _Pick(self, chosen)

    def inflight(self) -> Mapping[str, int]:
        """Our open requests by endpoint address."""
        return {state.address: state.inflight for state in self._states}

    def request_rate(self) -> float:
        """Requests/s, smoothed over about 10 s; falls by itself as time passes."""
        return self._decayed(self._now()) / RATE_SECONDS

    def _decayed(self, now: float) -> float:
        return self._recent * math.exp(min(0.0, self._rate_at - now) / RATE_SECONDS)

    def _count(self, now: float) -> None:
        self._recent = self._decayed(now) + 1.0
        self._rate_at = now
