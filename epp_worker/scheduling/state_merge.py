"""How what other workers tell of a pool joins what is known of it here.

Counts: each origin's are its own, and add up. Metrics: a worker that scrapes takes only newer ones;
one that does not takes what it is told.
"""

from collections.abc import Collection, Mapping

from epp_worker.scheduling.endpoint import NEVER, EndpointState, ToldMetrics
from epp_worker.scheduling.pool import PoolState
from epp_worker.scheduling.state_origins import MAX_ADDRESSES, Origins

PROMOTED_FRESH_SECONDS = 1.0
"""For so long a promoted worker takes the metrics that it was told as fresh, whatever their age:
its own first scrape is on its way."""


def hear_counts(pool: PoolState, speaker: str, origin: str, counts: Mapping[str, int]) -> None:
    """`speaker` says what `origin` has in flight."""
    if pool.origins is None:
        pool.origins = Origins()
    _count_anew(pool, pool.origins.hear(speaker, origin, counts))


def begin_anew(pool: PoolState, speaker: str) -> None:
    """`speaker` is about to say again what is in flight: nothing of what it said before counts."""
    if pool.origins is not None:
        _count_anew(pool, pool.origins.forget(speaker))


def forget_speaker(pool: PoolState, speaker: str) -> None:
    """What `speaker` said of requests in flight is void."""
    if pool.origins is not None:
        _settle(_count_anew(pool, pool.origins.forget(speaker)))


def keep_living(pool: PoolState, living: Collection[str], dead: Collection[str]) -> None:
    """Drop what incarnations that do not live have counted.

    Args:
        dead: those that lived until now.
    """
    for slot in pool.slots.values():
        for origin in dead:
            slot.clear_origin(origin)
    if pool.origins is not None:
        _settle(_count_anew(pool, pool.origins.keep(living)))
        if not pool.origins:
            pool.origins = None


def hear_metrics(pool: PoolState, metrics: Mapping[str, ToldMetrics], *, scrapes: bool) -> None:
    """Take over metrics by endpoint address; those of an endpoint that is not listed here yet wait
    for it.

    Args:
        scrapes: this worker reads the endpoints itself.
    """
    for address, told in metrics.items():
        state = pool.find(address)
        if state is None:
            _put_off(pool, address, told)
        elif told.at > state.metrics_at or not scrapes:
            state.heard(told)


def _put_off(pool: PoolState, address: str, told: ToldMetrics) -> None:
    if pool.unplaced is None:
        pool.unplaced = {}
    if len(pool.unplaced) < MAX_ADDRESSES:
        pool.unplaced[address] = told


def trust(pool: PoolState, now: float) -> None:
    """This worker is promoted: what it was told counts as fresh for a moment."""
    oldest = now - pool.stale_after + PROMOTED_FRESH_SECONDS
    for state in pool.endpoints():
        if state.metrics_at != NEVER:
            state.metrics_at = max(state.metrics_at, oldest)
            state.changes.count += 1


def _count_anew(pool: PoolState, addresses: Collection[str]) -> list[EndpointState]:
    origins = pool.origins
    changed = []
    for address in addresses:
        state = pool.find(address)
        if state is not None and origins is not None:
            state.told(origins.total(address))
            changed.append(state)
    return changed


def _settle(states: Collection[EndpointState]) -> None:
    """Requests went without an end that any metrics could show: what is open now is the start
    from which further picks count."""
    for state in states:
        state.inflight_seen = min(state.inflight_seen, state.inflight)
        state.changes.count += 1
