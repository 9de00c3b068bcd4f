"""What the state streams do, as metric families."""

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric

from epp_worker.handover.counts import StreamFigures
from fleet.metrics import counter, gauge

LAG = gauge(
    "epp_fleet_state_stream_lag_seconds",
    "Age of the oldest change that a follower has not been sent yet.",
)
BYTES = counter(
    "epp_fleet_state_bytes_total", "Bytes of state streams.", ("direction",), series="2 directions"
)
SNAPSHOTS = counter(
    "epp_fleet_state_snapshots_total",
    "Snapshots of groups, by outcome.",
    ("outcome",),
    series="4 outcomes",
)
FOLLOWERS = gauge("epp_fleet_state_followers", "Workers that follow this one.")
FOLLOWING = gauge("epp_fleet_state_following", "Workers that this one follows.")


def families(figures: StreamFigures) -> Iterator[Metric]:
    """The families of one moment."""
    yield LAG.of(figures.lag_seconds)
    yield BYTES.by({"sent": figures.sent_bytes, "received": figures.received_bytes})
    yield SNAPSHOTS.by(
        {
            "sent": figures.snapshots_sent,
            "lagged": figures.snapshots_lagged,
            "applied": figures.snapshots_applied,
            "unreadable": figures.unreadable,
        }
    )
    yield FOLLOWERS.of(figures.followers)
    yield FOLLOWING.of(figures.following)
