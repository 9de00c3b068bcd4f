"""Flow control both ways: windows, fairness, back-pressure and bounds."""

import struct
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from epp_worker.http2 import Http2Limits
from epp_worker.http2.errors import ErrorCode
from epp_worker.http2.flow import ReceiveWindow
from tests.http2_peer import Client, Wire, exchange, grpc, messages_in, raw

DATA, HEADERS, _, RST, SETTINGS = range(5)
WINDOW = 8


def tiny(window: int, limits: Http2Limits | None = None) -> tuple[Wire, Client]:
    """A client that lets each stream send `window` bytes, and grants nothing by itself."""
    wire, client = Wire(limits=limits), Client(auto=False)
    client.h2.update_settings({4: window})
    exchange(wire, client)
    return wire, client


def answer_with(wire: Wire, client: Client, *bodies: bytes) -> list[int]:
    """Open a stream for each body and have it sent."""
    streams = [client.open() for _ in bodies]
    known = len(wire.service.handlers)
    exchange(wire, client)
    for handler, body in zip(wire.service.handlers[known:], bodies, strict=True):
        handler.stream.send(body)
        handler.stream.end(0)
    wire.loop.run()
    return streams


def grant(increment: int, stream_id: int = 0) -> bytes:
    """WINDOW_UPDATE."""
    return raw(WINDOW, 0, stream_id, struct.pack(">I", increment))


@pytest.mark.parametrize("window", [1, 7, 100])
def test_never_sends_more_than_the_streams_window(window: int) -> None:
    """`h2` raises if we did. All of it arrives in the end, trailers after the last byte."""
    wire, client = tiny(window)
    body = bytes(range(250))
    (stream_id,) = answer_with(wire, client, body)
    exchange(wire, client)
    while not client.answers[stream_id].ended:
        before = len(client.answers[stream_id].body)
        client.h2.increment_flow_control_window(window, stream_id)
        exchange(wire, client)
        assert len(client.answers[stream_id].body) - before <= window
    assert client.answers[stream_id].messages == [body]
    assert client.answers[stream_id].status == 0
    assert wire.connection.out.queued == 0


def test_the_connections_window_is_shared_fairly() -> None:
    """Three streams with much to say: each gets frames in turn as the window opens."""
    wire, client = tiny(1 << 20)
    (filler,) = answer_with(wire, client, bytes(65_535 - 5))
    exchange(wire, client)
    assert client.answers[filler].ended
    streams = answer_with(wire, client, bytes(50_000), bytes(50_000), bytes(50_000))
    assert [f[0] for f in wire.frames()] == [HEADERS] * 3
    data = [f for f in wire.talk(grant(16_384 * 6)) if f[0] == DATA]
    assert [f[2] for f in data] == streams * 2
    assert {len(f[3]) for f in data} == {16_384}


def test_one_blocked_stream_blocks_no_other() -> None:
    """A stream without a window of its own leaves the line to those with one."""
    wire, client = tiny(0)
    first, second = answer_with(wire, client, b"one", b"two")
    wire.take()
    frames = wire.talk(grant(100, second))
    assert [f[:3] for f in frames] == [(DATA, 0, second), (HEADERS, 5, second)]
    assert [f[2] for f in wire.talk(grant(100, first))] == [first, first]


def test_small_answers_queue_behind_large_ones_of_their_own_stream_only() -> None:
    """Order within a stream is kept; a new stream does not overtake those who wait for the
    connection's window."""
    wire, client = tiny(1 << 20)
    answer_with(wire, client, bytes(65_530))
    exchange(wire, client)
    waiting = client.open()
    exchange(wire, client)
    early = wire.service.last
    early.stream.send(b"a" * 10)
    late = client.open()
    exchange(wire, client)
    wire.service.last.stream.send(b"b" * 10)
    early.stream.send(b"c" * 10)
    wire.loop.run()
    assert [f[2] for f in wire.frames() if f[0] == DATA] == []
    data = [f for f in wire.talk(grant(45)) if f[0] == DATA]
    assert [f[2] for f in data] == [waiting, late]
    assert messages_in(data[0][3]) == [b"a" * 10, b"c" * 10]


def test_settings_move_every_streams_window_also_below_zero() -> None:
    """RFC 9113, 6.9.2."""
    wire, client = tiny(20)
    (stream_id,) = answer_with(wire, client, bytes(45))
    assert sum(len(f[3]) for f in wire.frames() if f[0] == DATA) == 20

    def set_window(size: int) -> int:
        frames = wire.talk(raw(SETTINGS, 0, 0, struct.pack(">HI", 4, size)))
        return sum(len(f[3]) for f in frames if f[0] == DATA)

    assert set_window(5) == 0  # 15 below zero now
    assert set_window(19) == 0
    assert set_window(30) == 10
    assert sum(len(f[3]) for f in wire.talk(grant(1000, stream_id)) if f[0] == DATA) == 20
    assert not wire.connection.out.queued


def test_uses_larger_frames_only_where_the_peer_allows_them() -> None:
    """SETTINGS_MAX_FRAME_SIZE."""
    wire, client = tiny(1 << 20)
    wire.talk(grant(1 << 20), raw(SETTINGS, 0, 0, struct.pack(">HI", 5, 40_000)))
    answer_with(wire, client, bytes(90_000))
    sizes = [len(f[3]) for f in wire.frames() if f[0] == DATA]
    assert sizes == [40_000, 40_000, 10_005]


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (grant(0, 1), ErrorCode.PROTOCOL_ERROR),
        (grant(0x7FFF_FFFF, 1), ErrorCode.FLOW_CONTROL_ERROR),
    ],
)
def test_a_bad_window_update_resets_its_stream(frame: bytes, code: ErrorCode) -> None:
    """By 0, or over 2^31-1; the connection goes on."""
    wire, client = tiny(10)
    client.open()
    exchange(wire, client)
    assert wire.talk(frame) == [(RST, 0, 1, struct.pack(">I", code))]
    assert wire.service.last.aborts == 1
    assert not wire.closed()


def test_settings_that_overflow_a_streams_window_end_the_connection() -> None:
    """FLOW_CONTROL_ERROR (RFC 9113, 6.9.2)."""
    wire, client = tiny(10)
    client.open()
    exchange(wire, client)
    wire.feed(grant(0x7FFF_FFFF - 10, 1))
    wire.feed(raw(SETTINGS, 0, 0, struct.pack(">HI", 4, 11)))
    assert wire.counters.connection_faults == {"FLOW_CONTROL_ERROR": 1}


def test_fits_tells_whether_all_would_go_out_now() -> None:
    """Stream window, connection window, things queued, a full socket; 1 KiB for prefixes."""
    wire, client = tiny(5000)
    client.open()
    exchange(wire, client)
    stream = wire.service.last.stream
    assert stream.fits(5000 - 1024)
    assert not stream.fits(5000 - 1023)
    wire.connection.pause_writing()
    assert not stream.fits(1)
    wire.connection.resume_writing()
    stream.send(bytes(3000))
    assert not stream.fits(1000)
    assert stream.fits(900)
    stream.send(bytes(3000))
    assert not stream.fits(1)
    other = Wire()
    peer = Client(auto=False)
    peer.h2.update_settings({4: 1 << 20})
    exchange(other, peer)
    peer.open()
    exchange(other, peer)
    assert other.service.last.stream.fits(65_535 - 1024)
    assert not other.service.last.stream.fits(65_535)


def test_a_full_socket_holds_data_back_but_not_control_frames() -> None:
    """`pause_writing` stops DATA in the queues; `resume_writing` lets it go."""
    wire, client = tiny(1 << 20)
    client.open()
    exchange(wire, client)
    wire.connection.pause_writing()
    wire.service.last.stream.send(b"x" * 10)
    wire.service.last.stream.end(0)
    wire.loop.run()
    assert [f[0] for f in wire.frames()] == [HEADERS]
    assert wire.talk(raw(6, 0, 0, b"12345678")) == [(6, 1, 0, b"12345678")]
    wire.connection.resume_writing()
    wire.loop.run()
    assert [f[0] for f in wire.frames()] == [DATA, HEADERS]


def test_a_stream_that_does_not_take_its_answers_is_reset() -> None:
    """Over `max_stream_send_bytes`: RST_STREAM, counted, aborted after the handler returned."""
    wire, client = tiny(10, Http2Limits(max_stream_send_bytes=1000))
    client.open()
    exchange(wire, client)
    handler = wire.service.last
    handler.stream.send(bytes(2000))
    assert handler.aborts == 0
    wire.loop.run()
    assert handler.aborts == 1
    assert (RST, 0, 1, struct.pack(">I", ErrorCode.ENHANCE_YOUR_CALM)) in wire.frames()
    assert wire.counters.send_overflows == 1
    assert wire.connection.out.queued == 0
    assert not wire.closed()


def test_a_connection_that_does_not_take_its_answers_is_closed() -> None:
    """Over `max_connection_send_bytes`, all streams together."""
    wire, client = tiny(10, Http2Limits(max_connection_send_bytes=5000))
    answer_with(wire, client, *[bytes(1000)] * 6)
    assert wire.closed()
    assert wire.counters.connection_faults == {"ENHANCE_YOUR_CALM": 1}
    assert wire.counters.streams_open == 0


def test_receive_windows_are_refilled_before_they_run_dry() -> None:
    """Half used: a grant for all of it, of stream and connection; nothing for less."""
    wire, client = (
        Wire(limits=Http2Limits(stream_window=70_000, connection_window=140_000)),
        Client(),
    )
    client.open()
    exchange(wire, client)
    piece = grpc(bytes(9_995))
    updates = [f for _ in range(14) for f in wire.talk(raw(DATA, 0, 1, piece)) if f[0] == WINDOW]
    assert [(f[2], struct.unpack(">I", f[3])[0]) for f in updates] == [
        (1, 40_000),
        (0, 80_000),
        (1, 40_000),
        (1, 40_000),
    ]


def test_a_receive_window_grants_back_what_was_used_once_half_is_gone() -> None:
    """100: 50 used is not yet enough, 51 is; then it is full again."""
    window = ReceiveWindow(100)
    assert [window.take(size) for size in (50, 1, 50, 0, 50, 100)] == [0, 51, 0, 0, 100, 100]


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 60),
    st.lists(st.lists(st.binary(max_size=60), max_size=4), min_size=1, max_size=6),
    st.randoms(use_true_random=False),
)
def test_many_streams_through_tiny_windows(
    window: int, bodies: list[list[bytes]], random: Random
) -> None:
    """Whatever the order of grants: every message arrives, in order, windows never overrun."""
    wire, client = tiny(window)
    streams = [client.open() for _ in bodies]
    exchange(wire, client)
    for handler, messages in zip(wire.service.handlers, bodies, strict=True):
        for message in messages:
            handler.stream.send(message)
        handler.stream.end(0)
    wire.loop.run()
    exchange(wire, client)
    while open_ones := [s for s in streams if not client.answers[s].ended]:
        client.h2.increment_flow_control_window(random.randint(1, 40), random.choice(open_ones))
        exchange(wire, client)
    for stream_id, messages in zip(streams, bodies, strict=True):
        assert client.answers[stream_id].messages == messages
        assert client.answers[stream_id].status == 0
    assert wire.connection.out.queued == 0
