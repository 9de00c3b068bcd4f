"""The state streams on the worker's metrics page, and how far a follower is behind."""

from dataclasses import replace

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric

from epp_worker.handover.counts import StreamFigures
from epp_worker.handover.metrics import families
from epp_worker.handover.publisher import BATCH_SECONDS
from tests.state_pools import Estate

FIGURES = StreamFigures(
    lag_seconds=0.25,
    sent_bytes=10,
    received_bytes=20,
    snapshots_sent=3,
    snapshots_lagged=1,
    snapshots_applied=4,
    unreadable=2,
    followers=5,
    following=6,
)


def page(figures: StreamFigures) -> list[str]:
    class Collector:
        def collect(self) -> list[Metric]:
            return list(families(figures))

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collector())
    lines = generate_latest(registry).decode().splitlines()
    return [line for line in lines if not line.startswith("#")]


def test_every_figure_is_shown() -> None:
    """Names and labels as dashboards read them."""
    assert page(FIGURES) == [
        "epp_fleet_state_stream_lag_seconds 0.25",
        'epp_fleet_state_bytes_total{direction="sent"} 10.0',
        'epp_fleet_state_bytes_total{direction="received"} 20.0',
        'epp_fleet_state_snapshots_total{outcome="sent"} 3.0',
        'epp_fleet_state_snapshots_total{outcome="lagged"} 1.0',
        'epp_fleet_state_snapshots_total{outcome="applied"} 4.0',
        'epp_fleet_state_snapshots_total{outcome="unreadable"} 2.0',
        "epp_fleet_state_followers 5.0",
        "epp_fleet_state_following 6.0",
    ]
    assert page(replace(FIGURES, lag_seconds=0.0))[0].endswith(" 0.0")


def test_a_followers_lag_is_the_age_of_what_waits_for_it() -> None:
    """A change waits since the end of its batch, until it is taken."""
    estate = Estate()
    key = estate.add("a")
    outbox = estate.outbox()
    estate.publisher.add(outbox, key)
    estate.sent(outbox)
    assert outbox.oldest() is None
    estate.pick(key)
    estate.time.move(BATCH_SECONDS)
    since = outbox.oldest()
    estate.time.move(3.0)
    estate.pick(key)
    estate.time.move(BATCH_SECONDS)
    assert outbox.oldest() == since == 1000.0 + BATCH_SECONDS
    estate.sent(outbox)
    assert outbox.oldest() is None
