"""Series of single pools, as text: there are thousands of them.

Nothing is counted for them on the way of a request: a pool's streams and picks are the sums of its
rows (`epp_worker.requests`), which are read while the page is written, in a thread. A pool's series
go with the pool; only the first `max_pools` pools by name have any.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

from epp_worker.metrics.figures import Figures
from epp_worker.metrics.picks import OUTCOMES
from epp_worker.requests.record import ERRORS
from epp_worker.requests.rows import PoolRows
from epp_worker.requests.text import Family, escaped, labels
from epp_worker.scheduling.endpoint import NEVER
from fleet.metrics import Declared, counter, gauge
from fleet.model import PoolRef

_POOLS = "metrics.max_pools"

INFLIGHT = gauge(
    "epp_fleet_inflight_requests",
    "Requests picked here that are not over.",
    ("namespace", "pool", "endpoint"),
    series=f"{_POOLS} x endpoints",
    when="of pools with ready endpoints",
)
POOL_STREAMS = gauge(
    "epp_fleet_pool_streams_open",
    "Streams open now for which an endpoint of the pool was picked.",
    ("namespace", "pool"),
    series=_POOLS,
    when="of pools that are held",
)
POOL_PICKS = counter(
    "epp_fleet_pool_picks_total",
    "Requests to the pool that were decided: picked, or refused with this HTTP status.",
    ("namespace", "pool", "outcome"),
    series=f"{_POOLS} x 5 outcomes",
    when="of pools that are held",
)
POOL_ERRORS = counter(
    "epp_fleet_pool_errors_total",
    "Requests to the pool that failed: refused here, or answered 4xx or 5xx by a model server.",
    ("namespace", "pool", "reason"),
    series=f"{_POOLS} x 5 reasons",
    when="of pools that had such requests",
)
SERVED_ELSEWHERE = counter(
    "epp_fleet_served_elsewhere_total",
    "Responses of another endpoint than the one picked.",
    ("namespace", "pool"),
    series=_POOLS,
    when="of pools that are held",
)
SCRAPE_AGE = gauge(
    "epp_fleet_scrape_age_seconds",
    "Age of the oldest metrics of a ready endpoint, over the pools owned here; those never read "
    "are left out.",
)

REASONS = {
    "BadRequest": "bad_request",
    "RequestTooLarge": "too_large",
    "ResourceExhausted": "exhausted",
    "ServiceUnavailable": "unavailable",
    "ModelServerError": "model_server",
}
"""The label `reason` by the llm-d router's name of the error."""

_STATUS = {name: str(status) for status, name in ERRORS.items()}
_NO_PICKS = dict.fromkeys(OUTCOMES, 0)

Samples = list[tuple[str, float]]


def named_pools(figures: Figures) -> set[PoolRef]:
    """The pools that may have series: those that are held."""
    router = figures.router
    return {pool.ref for pool in router.pools}.union(
        figures.inflight, (ref for ref, _ in router.rows)
    )


def pool_texts(figures: Figures, shown: Collection[PoolRef]) -> tuple[Iterator[str], int]:
    """The families of the pools `shown`, and how many series of others are left out."""
    rows = dict(figures.router.rows)
    inflight: Samples = []
    streams: Samples = []
    picks: Samples = []
    errors: Samples = []
    elsewhere: Samples = []
    dropped = 0
    for ref in named_pools(figures):
        endpoints = figures.inflight.get(ref, {})
        counts = _Counts(rows.get(ref))
        if ref not in shown:
            dropped += 2 + len(OUTCOMES) + len(endpoints) + len(counts.errors)
            continue
        where = labels(namespace=ref.namespace, pool=ref.name)
        inflight += [
            (f'endpoint="{escaped(address)}",{where}', count)
            for address, count in endpoints.items()
        ]
        streams.append((where, counts.running))
        picks += [(f'outcome="{key}",{where}', count) for key, count in counts.picks.items()]
        errors += [(f'reason="{key}",{where}', count) for key, count in counts.errors.items()]
        elsewhere.append((where, figures.served_elsewhere.get(ref, 0)))
    texts = (
        text(INFLIGHT, inflight),
        text(POOL_STREAMS, streams),
        text(POOL_PICKS, picks),
        text(POOL_ERRORS, errors),
        text(SERVED_ELSEWHERE, elsewhere),
    )
    return iter(texts), dropped


class _Counts:
    """The rows of a pool, summed up."""

    __slots__ = ("errors", "picks", "running")

    def __init__(self, rows: PoolRows | None) -> None:
        self.running = 0
        self.picks: Mapping[str, int] = _NO_PICKS
        self.errors: dict[str, int] = {}
        if rows is None:
            return
        picks = dict(_NO_PICKS)
        for row in rows.all():
            self.running += row.running
            picks["picked"] += row.picked
            for name, count in list(row.errors.items()):
                reason = REASONS.get(name, "other")
                self.errors[reason] = self.errors.get(reason, 0) + count
                status = _STATUS.get(name)
                if status is not None:
                    picks[status] += count
        self.picks = picks


def text(declared: Declared, samples: Sequence[tuple[str, float]]) -> str:
    """A family as text; "" without samples."""
    return Family(declared.name, declared.kind.value, declared.text).write(samples)


def scrape_age(figures: Figures) -> float:
    """See `SCRAPE_AGE`; 0 without any."""
    times = (
        state.metrics_at
        for pool in figures.router.pools
        if pool.owned
        for state in pool.endpoints
        if state.metrics_at != NEVER
    )
    return max(0.0, figures.now - min(times, default=figures.now))
