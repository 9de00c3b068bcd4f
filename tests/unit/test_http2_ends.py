"""How HTTP/2 connections end: in good order, for want of words, by floods, and by random frames."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from epp_worker.http2 import Http2Limits
from epp_worker.http2.connection import Connection
from epp_worker.http2.errors import ErrorCode
from epp_worker.http2.frames import PREFACE
from tests.http2_greeted import (
    ACK,
    BLOCK,
    DATA,
    GOAWAY,
    HEADERS,
    PING,
    PRIORITY,
    RST,
    SETTINGS,
    fault_of,
    greeted,
)
from tests.http2_peer import FakeTransport, Wire, grpc, raw


def test_two_phase_goaway_takes_streams_in_between_and_loses_none() -> None:
    """First GOAWAY 2^31-1 + PING; streams still taken; after the answer the real last id."""
    wire = greeted()
    wire.talk(raw(HEADERS, 4, 1, BLOCK))
    wire.connection.go_away()
    wire.connection.go_away()
    wire.loop.run()
    first, ping = wire.frames()
    assert first == (GOAWAY, 0, 0, b"\x7f\xff\xff\xff" + bytes(4))
    assert ping[:2] == (PING, 0)
    wire.feed(raw(HEADERS, 4, 3, BLOCK))
    assert wire.talk(raw(PING, ACK, 0, ping[3])) == [(GOAWAY, 0, 0, b"\0\0\0\x03" + bytes(4))]
    assert wire.talk(raw(HEADERS, 4, 5, BLOCK)) == [
        (RST, 0, 5, struct.pack(">I", ErrorCode.REFUSED_STREAM))
    ]
    for stream_id in (1, 3):
        kinds = [f[0] for f in wire.talk(raw(DATA, 1, stream_id, grpc(b"hi")))]
        assert kinds == [HEADERS, DATA, HEADERS]
        assert not wire.closed()
    wire.loop.advance(0.9)
    assert not wire.closed()  # the peer may close first
    wire.loop.advance(0.2)
    assert wire.closed()
    assert wire.counters.streams_total[0] == 2


def test_goaway_does_not_wait_for_ever() -> None:
    """No answer to the PING: 1 s. Streams that never end: `drain_seconds`."""
    wire = greeted(Http2Limits(drain_seconds=60, keepalive_seconds=0))
    wire.feed(raw(HEADERS, 4, 1, BLOCK))
    wire.connection.go_away()
    wire.loop.run()
    wire.take()
    wire.loop.advance(1.0)
    assert wire.frames() == [(GOAWAY, 0, 0, b"\0\0\0\x01" + bytes(4))]
    wire.loop.advance(59)
    assert not wire.closed()
    wire.loop.advance(1.5)
    assert wire.closed()
    assert wire.service.last.aborts == 1


def test_a_peer_that_goes_away_is_let_go() -> None:
    """Its GOAWAY: streams finish, then the connection closes."""
    wire = greeted()
    wire.feed(raw(HEADERS, 4, 1, BLOCK) + raw(GOAWAY, 0, 0, bytes(8)))
    kinds = [f[0] for f in wire.talk(raw(DATA, 1, 1, grpc(b"last")))]
    assert kinds[-3:] == [HEADERS, DATA, HEADERS]
    wire.loop.advance(3)
    assert wire.closed()
    assert wire.counters.streams_total[0] == 1


def test_a_silent_peer_is_asked_and_then_given_up() -> None:
    """PING after 30-60 s of silence, dead 10 s later; any byte is a sign of life."""
    wire = greeted()
    wire.talk(raw(HEADERS, 4, 1, BLOCK))
    wire.loop.advance(41)
    assert [f[:2] for f in wire.frames()] == [(PING, 0)]
    wire.feed(raw(PING, ACK, 0, b"whatever"))
    wire.loop.advance(29)
    assert wire.take() == b""
    wire.loop.advance(11)
    assert [f[:2] for f in wire.frames()] == [(PING, 0)]
    wire.loop.advance(11)
    assert wire.transport.aborted
    assert wire.service.last.aborts == 1
    assert wire.counters.connections_dead == 1


def test_a_connection_that_never_greets_is_closed() -> None:
    """10 s for preface and SETTINGS."""
    wire = Wire()
    wire.feed(PREFACE)
    wire.loop.advance(9)
    assert not wire.closed()
    wire.loop.advance(2)
    assert wire.transport.aborted


def test_lost_connections_abort_their_calls_once() -> None:
    """And leave nothing behind."""
    wire = greeted()
    wire.feed(raw(HEADERS, 4, 1, BLOCK) + raw(HEADERS, 4, 3, BLOCK) + raw(DATA, 0, 3, b"\0\0\0\0"))
    assert wire.counters.streams_open == 2
    wire.lose()
    assert [h.aborts for h in wire.service.handlers] == [1, 1]
    assert wire.counters.streams_total[1] == 2
    assert (wire.counters.streams_open, wire.counters.connections_open) == (0, 0)
    assert wire.shared.budget.held == 0
    assert wire.shared.emptied.is_set()


def test_connections_beyond_the_bound_are_closed_at_once() -> None:
    """And counted."""
    wire = Wire(limits=Http2Limits(max_connections=1))
    transport = FakeTransport()
    second = Connection(wire.shared)
    second.connection_made(transport)
    assert transport.aborted
    second.connection_lost(None)
    assert wire.counters.connections_refused == 1
    assert wire.counters.connections_open == 1
    assert not wire.closed()


FLOODS = {
    "PING": raw(PING, 0, 0, bytes(8)),
    "SETTINGS": raw(SETTINGS, 0, 0),
    "PRIORITY": raw(PRIORITY, 0, 9, bytes(5)),
    "empty DATA": raw(DATA, 0, 1),
    "padding only": raw(DATA, 8, 1, b"\x02ab"),
    "unknown": raw(200, 0, 0),
    "DATA for a closed stream": raw(DATA, 0, 3, b"x"),
}


@pytest.mark.parametrize("name", FLOODS)
def test_floods_end_the_connection(name: str) -> None:
    """More idle frames than allowed in a window: ENHANCE_YOUR_CALM; spread out they are fine."""
    wire = greeted(Http2Limits(max_idle_frames=50, keepalive_seconds=0))
    wire.feed(raw(HEADERS, 4, 1, BLOCK) + raw(HEADERS, 4, 3, BLOCK) + raw(RST, 0, 3, bytes(4)))
    for _ in range(5):
        wire.loop.advance(11)
        wire.feed(FLOODS[name] * 49)
        assert not wire.closed()
    wire.feed(FLOODS[name] * 2)
    assert fault_of(wire) == ErrorCode.ENHANCE_YOUR_CALM


def test_resets_count_only_where_we_had_not_answered() -> None:
    """Envoy ends nearly every call by RST_STREAM: that is no attack; rapid reset is."""
    wire = greeted(Http2Limits(max_unanswered_resets=10, flood_window=1000))
    for stream_id in range(1, 2001, 2):
        wire.feed(
            raw(HEADERS, 4, stream_id, BLOCK)
            + raw(DATA, 0, stream_id, grpc(b"x"))
            + raw(RST, 0, stream_id, b"\0\0\0\x08")
        )
    assert not wire.closed()
    assert all(h.aborts == 1 for h in wire.service.handlers)
    for stream_id in range(2001, 2023, 2):
        wire.feed(raw(HEADERS, 4, stream_id, BLOCK) + raw(RST, 0, stream_id, bytes(4)))
    assert fault_of(wire) == ErrorCode.ENHANCE_YOUR_CALM


def test_a_peer_that_never_reads_is_cut_off() -> None:
    """PINGs whose answers pile up in the socket's buffer."""
    wire = greeted(Http2Limits(max_connection_send_bytes=1000))
    wire.connection.pause_writing()
    wire.transport.buffered = 1001
    wire.feed(raw(PING, 0, 0, bytes(8)))
    assert wire.closed()
    assert wire.counters.send_overflows == 1
    wire.loop.advance(11)
    assert wire.transport.aborted


FRAMES = st.builds(
    raw,
    st.integers(0, 10),
    st.sampled_from([0, 1, 4, 5, 8, 0x0C, 0x24, 0xFF]),
    st.sampled_from([0, 1, 3, 5, 2**31 - 1]),
    st.one_of(
        st.binary(max_size=20),
        st.just(BLOCK),
        st.just(grpc(b"message")),
        st.integers(0, 2**31).map(lambda value: struct.pack(">I", value)),
    ),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(FRAMES, max_size=20), st.booleans())
def test_random_frames_never_break_the_connection(frames: list[bytes], together: bool) -> None:
    """No exception, whole frames out, every call aborted at most once, nothing left behind."""
    wire = greeted()
    for piece in [b"".join(frames)] if together else frames:
        wire.feed(piece)
    wire.frames()
    wire.loop.advance(100)
    wire.lose()
    assert wire.counters.handler_errors == 0
    assert wire.counters.streams_open == 0
    assert wire.counters.connections_open == 0
    assert wire.connection.out.queued == 0
    assert wire.shared.budget.held == 0
    for handler in wire.service.handlers:
        assert handler.aborts <= 1
    assert sum(wire.counters.streams_total) >= len(wire.service.handlers)
