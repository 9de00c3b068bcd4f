"""What a worker serves: streams, picks, strays, holds, and how its loop fares."""

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric

from epp_worker.metrics.figures import Figures
from fleet.metrics import counter, gauge

CODE_NAMES = (
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
)
"""gRPC status codes by number."""

STREAMS = counter(
    "epp_fleet_streams_total",
    "ext_proc streams ended, by gRPC code.",
    ("code",),
    series="17 codes",
)
STREAMS_OPEN = gauge("epp_fleet_streams_open", "ext_proc streams open now.")
CONNECTIONS = gauge("epp_fleet_connections_open", "Gateway connections.")
PICKS = counter(
    "epp_fleet_picks_total",
    "Requests decided: picked, or refused with this HTTP status.",
    ("outcome",),
    series="5 outcomes",
)
STRAYS = counter(
    "epp_fleet_strays_total",
    "Streams of groups that are owned elsewhere.",
    ("outcome",),
    series="4 outcomes",
)
STRAYS_WAITING = gauge("epp_fleet_strays_waiting", "Streams that wait for their group.")
HOLD = gauge("epp_fleet_hold", "Route groups held here.", ("hold",), series="4 holds")
OWNED_LOAD = gauge("epp_fleet_owned_load", "Owned groups plus their streams/s, as placed.")
LOOP_LAG = gauge("epp_fleet_loop_lag_seconds", "Worst delay of the serving loop lately.")
LOOP_BUSY = gauge("epp_fleet_loop_busy_ratio", "Share of a core the serving loop uses.")
RESPONSES = counter(
    "epp_fleet_responses_total",
    "Picked requests that are over.",
    ("outcome",),
    series="3 outcomes",
)
USAGE_UNREADABLE = counter("epp_fleet_usage_unreadable_total", "Usage values not understood.")
SCRAPES = counter(
    "epp_fleet_scrapes_total",
    "Model servers' metrics pages read.",
    ("outcome",),
    series="2 outcomes",
)
VALUES_DROPPED = counter("epp_fleet_scrape_values_dropped_total", "Impossible values on pages.")
FAILING = gauge("epp_fleet_endpoints_failing", "Ready endpoints whose metrics cannot be read.")
EPOCH = gauge("epp_fleet_epoch", "Highest leadership epoch seen.")
MAP_VERSION = gauge("epp_fleet_map_version", "Version of the last share applied.")
MAP_AGE = gauge(
    "epp_fleet_map_age_seconds",
    "Since a leader was connected or the store was read: what this worker holds was the newest map "
    "then; since the start where neither ever was.",
)
PLUGIN_FAULTS = counter(
    "epp_fleet_plugin_faults_total",
    "Calls of scheduling plugins that failed or were slow, by plugin type.",
    ("plugin",),
    series="types of plugins",
    when="after the first fault",
)


def served_families(figures: Figures) -> Iterator[Metric]:
    """All of them."""
    yield STREAMS.by(dict(zip(CODE_NAMES, figures.streams_total, strict=False)))
    yield STREAMS_OPEN.of(figures.streams_open)
    yield CONNECTIONS.of(figures.connections_open)
    yield PICKS.by(figures.picks)
    yield STRAYS.by(figures.strays)
    yield STRAYS_WAITING.of(figures.strays_waiting)
    yield HOLD.by({hold.value: count for hold, count in figures.holds.items()})
    yield OWNED_LOAD.of(figures.owned_load)
    yield LOOP_LAG.of(figures.loop_lag_seconds)
    yield LOOP_BUSY.of(figures.loop_busy_ratio)
    yield RESPONSES.by(figures.responses)
    yield USAGE_UNREADABLE.of(figures.usage_unreadable)
    scrapes = figures.scrapes
    yield SCRAPES.by({"good": scrapes.good, "failed": scrapes.failed})
    yield VALUES_DROPPED.of(scrapes.dropped_values)
    yield FAILING.of(scrapes.endpoints_failing)
    yield EPOCH.of(figures.seen.epoch)
    yield MAP_VERSION.of(figures.applied.version)
    yield MAP_AGE.of(figures.map_age_seconds)
    yield PLUGIN_FAULTS.by(figures.plugin_faults)
