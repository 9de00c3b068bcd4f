"""What the state streams do, as metric families."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from epp_worker.handover.counts import StreamFigures


def families(figures: StreamFigures) -> Iterator[Metric]:
    """The families of one moment."""
    yield GaugeMetricFamily(
        "epp_fleet_state_stream_lag_seconds",
        "Age of the oldest change that a follower has not been sent yet.",
        value=figures.lag_seconds,
    )
    size = CounterMetricFamily(
        "epp_fleet_state_bytes", "Bytes of state streams.", labels=("direction",)
    )
    size.add_metric(("sent",), figures.sent_bytes)
    size.add_metric(("received",), figures.received_bytes)
    yield size
    snapshots = CounterMetricFamily(
        "epp_fleet_state_snapshots", "Snapshots of groups, by outcome.", labels=("outcome",)
    )
    snapshots.add_metric(("sent",), figures.snapshots_sent)
    snapshots.add_metric(("lagged",), figures.snapshots_lagged)
    snapshots.add_metric(("applied",), figures.snapshots_applied)
    snapshots.add_metric(("unreadable",), figures.unreadable)
    yield snapshots
    yield GaugeMetricFamily(
        "epp_fleet_state_followers", "Workers that follow this one.", value=figures.followers
    )
    yield GaugeMetricFamily(
        "epp_fleet_state_following", "Workers that this one follows.", value=figures.following
    )
