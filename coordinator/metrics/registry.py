"""All metrics of one coordinator, from where its parts keep their numbers."""

from collections.abc import Callable, Iterator

from prometheus_client import ProcessCollector
from prometheus_client.metrics_core import Metric

from coordinator.claims import Claims
from coordinator.metrics.elections import ElectionFigures
from coordinator.metrics.exposition import LateRegistry
from coordinator.metrics.gauges import (
    EXPIRY,
    MAP_AGE,
    STORE_BEHIND,
    claim_families,
    view_families,
)
from coordinator.metrics.leading import TermFigures
from coordinator.metrics.pools import Leading, pool_families, worker_families
from coordinator.metrics.terms import term_families
from coordinator.routes.contract import Routes
from coordinator.routes.slice_metrics import families as slice_families
from coordinator.routes.slices import EndpointSliceRoutes
from coordinator.view import View
from fleet.metrics import Collected, Families
from fleet.metrics.process import build_info
from fleet.metrics.series import SERIES_DROPPED
from fleet.model import ShardMap
from fleet.settings.metrics import MetricsSettings
from fleet.sources.contract import Source
from fleet.sources.metrics import families as source_families
from fleet.sources.metrics import source_figures
from fleet.store.contract import Store
from fleet.store.metrics import families as store_families
from fleet.store.metrics import store_errors


class Metrics:
    """All of them, in a registry of their own; what there are thousands of comes by `late`.

    Attributes:
        term: what terms count.
        election: what the candidate counts.
    """

    def __init__(self, settings: MetricsSettings | None = None) -> None:
        self.registry = LateRegistry(self._late)
        self.term = TermFigures()
        self.election = ElectionFigures()
        self._settings = settings or MetricsSettings()
        self._leading: Callable[[], Leading | None] = lambda: None
        self._show(lambda: iter((build_info(),)))
        ProcessCollector(registry=self.registry)

    def _show(self, families: Families) -> None:
        self.registry.register(Collected(families))

    def show(self, view: View, epoch: Callable[[], int]) -> None:
        """Export the gauges of this coordinator."""
        self._show(lambda: view_families(view, epoch))
        self._show(self.election.families)

    def show_terms(
        self,
        leading: Callable[[], Leading | None],
        map_age: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        """Export what terms count, and pools and workers where this process leads.

        Args:
            leading: what a leader knows; None on followers.
            map_age: since when the map known here was not confirmed, in seconds.
            wall: wall-clock seconds.
        """
        self._leading = leading

        def families() -> Iterator[Metric]:
            now = leading()
            led: ShardMap | None = None if now is None else now.shard_map
            yield from term_families(self.term, led, wall())
            yield MAP_AGE.of(map_age())

        self._show(families)

    def _late(self) -> Families:
        leading = self._leading()

        def families() -> Iterator[Metric]:
            pools, dropped = pool_families(leading, self._settings.max_pools)
            yield from pools
            yield from worker_families(leading)
            yield SERIES_DROPPED.of(dropped)

        return families

    def show_source(self, source: Source) -> None:
        """Export how old the copy of pools is, and what its lists and watches do."""
        self._show(lambda: source_families(source_figures(source)))

    def show_store(self, store: Store, behind_seconds: Callable[[], float]) -> None:
        """Export what goes wrong with the store, and how long it has lacked the newest map."""
        self._show(lambda: store_families(store_errors(store)))
        self._show(lambda: iter((STORE_BEHIND.of(behind_seconds()),)))

    def show_routes(self, routes: Routes) -> None:
        """Export whether what gateways follow is watched and can be written."""
        if isinstance(routes, EndpointSliceRoutes):
            self._show(lambda: slice_families(routes))

    def show_claims(self, claims: Claims) -> None:
        """Export what is decided about pools."""
        self._show(lambda: claim_families(claims))

    def show_expiry(self, seconds: Callable[[], float]) -> None:
        """Export how long the internal port's certificate is still good."""
        self._show(lambda: iter((EXPIRY.of(seconds()),)))
