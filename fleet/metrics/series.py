"""Which pools have series of their own, and what is left out of a page for that."""

from collections.abc import Iterable
from heapq import nsmallest

from fleet.metrics.declared import gauge
from fleet.model import PoolRef

SERIES_DROPPED = gauge(
    "epp_fleet_series_dropped",
    "Series epp_fleet_* of pools that are left out because there are more than metrics.max_pools.",
)


def shown_pools(refs: Iterable[PoolRef], most: int) -> frozenset[PoolRef]:
    """The pools that have series of their own: the first by name."""
    every = frozenset(refs)
    return every if len(every) <= most else frozenset(nsmallest(most, every))
