"""All metrics of a coordinator, for docs/metrics.md; see `fleet.metrics.reference`."""

from coordinator.metrics import elections, gauges, pools, terms
from coordinator.routes import slice_metrics
from fleet.metrics import declared_in, process, series
from fleet.metrics.reference import Section
from fleet.sources import metrics as sources
from fleet.store import metrics as store

COORDINATOR = Section(
    "Coordinators",
    "`/metrics` on `coordinator.http_port` (8080); every replica has a page of its own, and shows "
    "the fleet as it knows it.",
    declared_in(gauges, terms, elections, pools, slice_metrics, sources, store, series, process),
)

SECTIONS = (COORDINATOR,)
