"""What Prometheus reads of EndpointSlices: is the copy current, and does every write succeed?"""

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric

from coordinator.routes.slices import EndpointSliceRoutes
from fleet.metrics import counter, gauge

_SLICES = "where routes are EndpointSlices"

AGE = gauge(
    "epp_fleet_routes_age_seconds",
    "Since the API server last showed that the copy of our EndpointSlices is current.",
    when=_SLICES,
)
FAILING = gauge(
    "epp_fleet_routes_failing",
    "Groups whose EndpointSlice could not be written when it was last tried.",
    when=_SLICES,
)
THROTTLED = counter(
    "epp_fleet_routes_throttled_total",
    "Requests for EndpointSlices that the API server answered with 429.",
    when=_SLICES,
)


def families(routes: EndpointSliceRoutes) -> Iterator[Metric]:
    """What Prometheus reads; to be called on the loop."""
    yield AGE.of(max(each.age_seconds for each in routes.conditions()))
    yield FAILING.of(routes.failing)
    yield THROTTLED.of(routes.throttled)
