"""What Prometheus reads of EndpointSlices: is the copy current, and does every write succeed?"""

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

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


class SliceCollector(Collector):
    """Figures at the time of the scrape; for a process that renders on its loop."""

    def __init__(self, routes: EndpointSliceRoutes) -> None:
        self._routes = routes

    def collect(self) -> Iterator[Metric]:
        """See prometheus_client."""
        conditions = self._routes.conditions()
        yield AGE.of(max(each.age_seconds for each in conditions))
        yield FAILING.of(self._routes.failing)
        yield THROTTLED.of(self._routes.throttled)
