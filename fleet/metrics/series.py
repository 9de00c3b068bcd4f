"""What is left out of a page because there would be too many series."""

from fleet.metrics.declared import gauge

SERIES_DROPPED = gauge(
    "epp_fleet_series_dropped",
    "Series epp_fleet_* of pools that are left out because there are more than metrics.max_pools.",
)
