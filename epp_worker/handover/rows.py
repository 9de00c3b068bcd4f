"""A pool's present values as rows of a Feed, and rows taken over."""

from collections.abc import Callable, Iterable, Iterator

import msgspec

from epp_worker.scheduling.endpoint import NEVER, EndpointState, ToldMetrics
from epp_worker.scheduling.pool import PoolState
from epp_worker.scheduling.state_merge import hear_counts, hear_metrics
from fleet.control.state_messages import MetricsRow, PoolRows, encode_rows

PIECE_BYTES = 16 * 1024
"""A slot's piece; making one takes well under a millisecond."""
ENDPOINTS_AT_ONCE = 128
"""Endpoints in one row of a snapshot: about 10 kB."""
MAX_COUNT = 2.0**53
"""Requests that a model server may report."""


def rows_of(
    number: int,
    states: Iterable[EndpointState],
    pool: PoolState,
    origin: str,
    now: float,
    *,
    whole: bool,
) -> msgspec.Raw:
    """Counts and metrics of some endpoints.

    Args:
        origin: the incarnation of this worker.
        whole: tell the metrics, and what other workers have in flight, too.
    """
    own: dict[str, int] = {}
    counts: dict[str, dict[str, int]] = {origin: own}
    metrics: dict[str, MetricsRow] = {}
    others = pool.origins if whole else None
    for state in states:
        own[state.address] = state.inflight - state.foreign
        if others is not None:
            for other, count in others.of(state.address):
                counts.setdefault(other, {})[state.address] = count
        if whole and (state.metrics_at != NEVER or state.failures):
            metrics[state.address] = _metrics(state, now)
    return encode_rows(PoolRows(number, counts, metrics))


def _metrics(state: EndpointState, now: float) -> MetricsRow:
    age = None if state.metrics_at == NEVER else round((now - state.metrics_at) * 1000)
    return MetricsRow(
        state.waiting,
        state.running,
        state.kv,
        age,
        state.inflight_seen,
        state.failures,
        state.refused,
    )


def slot_rows(number: int, name: str, piece: bytes) -> msgspec.Raw:
    """One piece of a slot."""
    return encode_rows(PoolRows(number, slots=((name, piece),)))


def snapshot_rows(
    number: int, pool: PoolState, origin: str, now: Callable[[], float], *, whole: bool
) -> Iterator[msgspec.Raw]:
    """All of a pool, a piece at a time; the pool may change between two of them.

    Args:
        whole: else only what this worker has in flight: an owner had the rest from us before.
    """
    states = tuple(pool.endpoints())
    for start in range(0, len(states), ENDPOINTS_AT_ONCE):
        some = states[start : start + ENDPOINTS_AT_ONCE]
        yield rows_of(number, some, pool, origin, now(), whole=whole)
    for slot in tuple(pool.slots.values()) if whole else ():
        for piece in slot.snapshot(PIECE_BYTES):
            yield slot_rows(number, slot.name, piece)


def take_over(
    pool: PoolState,
    rows: PoolRows,
    *,
    speaker: str,
    incarnation: str,
    accepts: Callable[[str], bool],
    now: float,
    scrapes: bool,
    relay: bool,
) -> None:
    """Merge rows into a pool's state.

    Args:
        speaker: the worker that told it.
        incarnation: the life of it that did.
        accepts: whether an incarnation's counts may be taken; never those of this worker's own.
        scrapes: this worker reads the endpoints itself.
        relay: what is new in slots is to be told on to those that follow here.

    Raises:
        ValueError: a slot cannot read its piece.
    """
    for origin, counts in rows.counts.items():
        if accepts(origin):
            hear_counts(pool, speaker, origin, counts)
    if rows.metrics:
        told = {address: _told(row, now) for address, row in rows.metrics.items()}
        hear_metrics(pool, told, scrapes=scrapes)
    for name, piece in rows.slots:
        slot = pool.slot(name)
        if slot is not None:
            slot.apply(incarnation, piece, relay=relay)


def _told(row: MetricsRow, now: float) -> ToldMetrics:
    at = NEVER if row.age_ms is None else now - max(0, row.age_ms) / 1000
    return ToldMetrics(
        _number(row.waiting, MAX_COUNT),
        _number(row.running, MAX_COUNT),
        _number(row.kv, 1.0),
        at,
        max(0, row.seen),
        max(0, row.failures),
        bool(row.refused),
    )


def _number(value: float | None, most: float) -> float | None:
    """Nothing that a scrape would not take; NaN above all, with which no endpoints compare."""
    return value if value is not None and 0.0 <= value <= most else None
