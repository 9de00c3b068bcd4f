"""How much of a fleet is shown to Prometheus."""

from dataclasses import dataclass
from typing import Annotated

from fleet.settings.limits import Range


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """What a process shows at /metrics; see docs/metrics.md."""

    max_pools: Annotated[int, Range(0, 10**6)] = 2_000
    """Pools that have series of their own, the first by namespace and name: 3 each at the leader;
    at a worker that holds the pool 7 and one for each endpoint, twice as many where it is owned,
    and some 130 once it has requests. What is left out is counted by epp_fleet_series_dropped."""
