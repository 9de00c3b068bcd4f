"""The coordinator's metrics: counters where things happen, gauges read from the view when asked."""

from collections import Counter as Tally
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from coordinator.claims import Claims
from coordinator.ownership import RefusalReason
from coordinator.routes.contract import Routes
from coordinator.routes.slice_metrics import SliceCollector
from coordinator.routes.slices import EndpointSliceRoutes
from coordinator.view import View
from fleet.model import MemberState, Phase, Reason
from fleet.sources.contract import Source
from fleet.sources.metrics import SourceCollector
from fleet.store.contract import Store
from fleet.store.metrics import StoreCollector


class Metrics:
    """All of them, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._moves = Counter(
            "epp_fleet_moves",
            "Groups that changed hands or failed to.",
            ["reason", "outcome"],
            registry=self.registry,
        )
        self._stale = Counter(
            "epp_fleet_stale_route_writes",
            "Routes found that the leader had not written; each was repaired.",
            registry=self.registry,
        )
        ProcessCollector(registry=self.registry)

    def move(self, reason: Reason, outcome: str) -> None:
        """A group changed hands, or failed to."""
        self._moves.labels(reason.value, outcome).inc()

    def stale_route_write(self) -> None:
        """A route was found that somebody else wrote."""
        self._stale.inc()

    def show(self, view: View, epoch: Callable[[], int]) -> None:
        """Export the gauges of this coordinator."""
        self.registry.register(_Gauges(view, epoch))

    def show_source(self, source: Source) -> None:
        """Export how old the copy of pools is, and what its lists and watches do."""
        self.registry.register(SourceCollector(source))

    def show_store(self, store: Store, behind_seconds: Callable[[], float]) -> None:
        """Export what goes wrong with the store, and how long it has lacked the newest map."""
        self.registry.register(StoreCollector(store))
        gauge = Gauge(
            "epp_fleet_store_behind_seconds",
            "Since when the map that this leader published is not in the store; 0 if it is there, "
            "on followers, and where the lease is in the store, which is then written first.",
            registry=self.registry,
        )
        gauge.set_function(behind_seconds)

    def show_routes(self, routes: Routes) -> None:
        """Export whether what gateways follow is watched and can be written."""
        if isinstance(routes, EndpointSliceRoutes):
            self.registry.register(SliceCollector(routes))

    def show_claims(self, claims: Claims) -> None:
        """Export what is decided about pools."""
        self.registry.register(_ClaimGauges(claims))

    def show_expiry(self, seconds: Callable[[], float]) -> None:
        """Export how long the internal port's certificate is still good."""
        gauge = Gauge(
            "epp_fleet_certificate_expiry_seconds",
            "Seconds until the certificate of the internal port expires.",
            registry=self.registry,
        )
        gauge.set_function(seconds)


class _ClaimGauges(Collector):
    def __init__(self, claims: Claims) -> None:
        self._claims = claims

    def collect(self) -> Iterator[Metric]:
        """See prometheus_client."""
        claimed, reasons = self._claims.tally()
        yield _gauge("epp_fleet_pools_claimed", "Pools that this fleet serves.", claimed)
        refusals = GaugeMetricFamily(
            "epp_fleet_pool_refusals",
            "Refused pools and Services of pools by reason.",
            labels=["reason"],
        )
        for reason in RefusalReason:
            refusals.add_metric([reason.value], reasons[reason.value])
        yield refusals


class _Gauges(Collector):
    def __init__(self, view: View, epoch: Callable[[], int]) -> None:
        self._view = view
        self._epoch = epoch

    def collect(self) -> Iterator[Metric]:
        """See prometheus_client."""
        shard_map = self._view.shard_map()
        placements = [] if shard_map is None else list(shard_map.placements.values())
        phases = Tally(placement.phase for placement in placements)
        states = Tally(status.state for status in self._view.members())
        yield _gauge("epp_fleet_leader", "1 if this replica leads.", int(self._view.leading()))
        yield _gauge("epp_fleet_epoch", "Epoch as known here.", self._epoch())
        yield _gauge(
            "epp_fleet_map_version",
            "Version of the newest map known here.",
            0 if shard_map is None else shard_map.version.version,
        )
        groups = GaugeMetricFamily("epp_fleet_groups", "Route groups by phase.", labels=["phase"])
        for phase in Phase:
            groups.add_metric([phase.value], phases[phase])
        yield groups
        unowned = sum(not placement.owners for placement in placements)
        yield _gauge("epp_fleet_unowned_groups", "Route groups nobody serves.", unowned)
        members = GaugeMetricFamily("epp_fleet_members", "Workers by state.", labels=["state"])
        for state in MemberState:
            members.add_metric([state.value], states[state])
        yield members


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)
