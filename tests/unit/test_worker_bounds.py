"""The bounds of a worker: settings become limits, and each bound is on the metrics page."""

from dataclasses import fields

from epp_worker.bounds import BoundWatch, http2_limits
from epp_worker.extproc.budget import BodyBudget
from epp_worker.http2 import Http2Limits, Http2Server
from epp_worker.http2.bounds import Bound
from epp_worker.metrics import Figures, MetricsPage
from epp_worker.turns import Turns
from fleet.model import EpochVersion
from fleet.settings import BoundSettings, Settings, WorkerSettings

MIB = 1024 * 1024
NONE = EpochVersion(0, 0)


def test_defaults_are_the_servers_own() -> None:
    """What nobody sets is as the transport would have it, but for the room around a message."""
    limits = http2_limits(Settings(), 1_000_000)
    changed = {f.name for f in fields(Http2Limits) if getattr(limits, f.name) != f.default}
    assert changed == {"max_message_bytes"}
    assert limits.max_message_bytes == 17 * MIB


def test_settings_become_limits() -> None:
    """Files may allow fewer connections than are wanted; answers' parts follow the whole."""
    worker = WorkerSettings(max_body_bytes=MIB, max_buffered_bytes=8 * MIB)
    bounds = BoundSettings(
        max_connections=500,
        max_streams=1_000,
        max_header_bytes=2_048,
        max_unsent_bytes=32 * MIB,
        keepalive_seconds=0,
    )
    limits = http2_limits(Settings(worker=worker, bounds=bounds), 200)
    assert limits.max_connections == 200
    assert limits.max_open_streams == 1_000
    assert limits.max_header_list_bytes == limits.max_header_block_bytes == 2_048
    assert limits.max_partial_bytes == 8 * MIB
    assert (limits.max_connection_send_bytes, limits.max_stream_send_bytes) == (8 * MIB, 2 * MIB)
    assert limits.keepalive_seconds == 0


def test_each_bound_is_on_the_page_from_the_start() -> None:
    """An alert on a rate needs the zero before the first time."""
    server = Http2Server({})
    server.counters.hit(Bound.PREFACE)
    turns = Turns(lambda _: None, lambda: 0.0)
    watch = BoundWatch(server, BodyBudget(per_stream=1, total=2), turns)
    figures = Figures(
        streams_total=[0] * 17,
        streams_open=0,
        connections_open=0,
        picks={},
        strays={},
        strays_waiting=0,
        holds={},
        inflight={},
        loop_lag_seconds=0.0,
        loop_busy_ratio=0.0,
        seen=NONE,
        applied=NONE,
        bounds_hit=watch.hits(),
        held_bytes=watch.held(),
        connection_faults={"ENHANCE_YOUR_CALM": 3},
    )
    page = MetricsPage().render(figures).decode()
    for name in (*(bound.value for bound in Bound), "body", "pool_bodies", "bodies"):
        value = 1.0 if name == "preface" else 0.0
        assert f'epp_fleet_bounds_hit_total{{bound="{name}"}} {value}' in page
    for what in ("bodies", "messages", "unsent", "turns"):
        assert f'epp_fleet_held_bytes{{what="{what}"}} 0.0' in page
    assert 'epp_fleet_connection_faults_total{code="ENHANCE_YOUR_CALM"} 3.0' in page
