"""A connection as its peer sees it: preface, SETTINGS, PING, GOAWAY, and all that is illegal."""

import itertools
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from epp_worker.http2 import Http2Limits
from epp_worker.http2.connection import Connection
from epp_worker.http2.errors import ErrorCode
from epp_worker.http2.frames import PREFACE
from tests.http2_peer import ECHO, Client, FakeTransport, Wire, exchange, grpc, raw, split

DATA, HEADERS, PRIORITY, RST, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
ACK = END_STREAM = 1
END_HEADERS = 4
HELLO = PREFACE + raw(SETTINGS, 0, 0)

BLOCK = (
    b"\x83\x86"  # :method POST, :scheme http
    + b"\x04"
    + bytes((len(ECHO),))
    + ECHO.encode()
    + b"\x01\x05a.b:1"
    + b"\x0f\x10\x10application/grpc"
)
"""A request's header block by hand, without the dynamic table (RFC 7541, appendix A)."""


def greeted(limits: Http2Limits | None = None) -> Wire:
    """A connection whose peer has said hello, its answers taken."""
    wire = Wire(limits=limits)
    wire.talk(HELLO, raw(SETTINGS, ACK, 0))
    return wire


def fault_of(wire: Wire) -> int | None:
    """The code of the last GOAWAY, if the connection was ended by one."""
    codes = [struct.unpack(">I", p[4:8])[0] for k, _, _, p in wire.frames() if k == GOAWAY]
    if wire.closed():
        assert codes
        return int(codes[-1])
    return None


def test_says_settings_first_and_acknowledges_the_peers() -> None:
    """4096 streams, 1 MiB windows, 16 KiB header lists; then 16 MiB in all."""
    wire = Wire()
    settings, window = wire.frames()
    assert settings[:3] == (SETTINGS, 0, 0)
    assert dict(struct.iter_unpack(">HI", settings[3])) == {3: 4096, 4: 1 << 20, 6: 16384}
    assert window == (WINDOW, 0, 0, struct.pack(">I", (16 << 20) - 65535))
    assert wire.talk(HELLO) == [(SETTINGS, ACK, 0, b"")]


@pytest.mark.parametrize(
    "hello",
    [b"GET / HTTP/1.1\r\n", b"\x16\x03\x01\x02\x00\x01", PREFACE[:23] + b"x", b"PRI * HTTP/1"],
)
def test_closes_on_a_bad_preface(hello: bytes) -> None:
    """HTTP/1 and TLS are not answered in HTTP/2: just closed, and counted."""
    wire = Wire()
    wire.take()
    assert wire.talk(hello) == []
    assert wire.closed()
    assert wire.counters.connection_faults == {"PROTOCOL_ERROR": 1}


def test_the_first_call_turns_the_header_table_off() -> None:
    """SETTINGS_HEADER_TABLE_SIZE = 0, once; a client that sets its table up first thing is right
    until then."""
    wire, client = Wire(), Client()
    exchange(wire, client)
    for expected in ([(SETTINGS, 0, 0, struct.pack(">HI", 1, 0))], []):
        client.open()
        wire.feed(client.out())
        assert [each for each in wire.frames() if each[0] == SETTINGS] == expected


def test_accepts_the_preface_in_pieces() -> None:
    """One byte a read is as good as one read."""
    wire = Wire()
    wire.take()
    for byte in HELLO:
        wire.feed(bytes((byte,)))
    assert wire.frames() == [(SETTINGS, ACK, 0, b"")]


@pytest.mark.parametrize("first", [raw(PING, 0, 0, bytes(8)), raw(SETTINGS, ACK, 0), raw(77, 0, 0)])
def test_the_first_frame_must_be_settings(first: bytes) -> None:
    """RFC 9113, 3.4."""
    wire = Wire()
    wire.feed(PREFACE + first)
    assert fault_of(wire) == ErrorCode.PROTOCOL_ERROR


def test_answers_ping_with_the_same_bytes_and_ignores_strange_acks() -> None:
    """An acknowledgement that we never asked for means nothing."""
    wire = greeted()
    assert wire.talk(raw(PING, 0, 0, b"12345678")) == [(PING, ACK, 0, b"12345678")]
    assert wire.talk(raw(PING, ACK, 0, b"87654321")) == []


def test_ignores_unknown_frames_flags_and_settings() -> None:
    """RFC 9113, 5.5."""
    wire = greeted()
    assert wire.talk(raw(11, 0xFF, 5, b"abc"), raw(0xFF, 0, 0)) == []
    assert wire.talk(raw(SETTINGS, 0, 0, struct.pack(">HI", 0xABCD, 7))) == [
        (SETTINGS, ACK, 0, b"")
    ]
    assert not wire.closed()


@pytest.mark.parametrize(
    ("setting", "value", "code"),
    [
        (2, 2, ErrorCode.PROTOCOL_ERROR),
        (4, 1 << 31, ErrorCode.FLOW_CONTROL_ERROR),
        (5, 16383, ErrorCode.PROTOCOL_ERROR),
        (5, 1 << 24, ErrorCode.PROTOCOL_ERROR),
    ],
)
def test_refuses_settings_out_of_range(setting: int, value: int, code: ErrorCode) -> None:
    """RFC 9113, 6.5.2."""
    wire = greeted()
    wire.feed(raw(SETTINGS, 0, 0, struct.pack(">HI", setting, value)))
    assert fault_of(wire) == code


ILLEGAL = {
    "DATA on stream 0": (raw(DATA, 0, 0, b"x"), ErrorCode.PROTOCOL_ERROR),
    "DATA on an idle stream": (raw(DATA, 0, 9, b"x"), ErrorCode.PROTOCOL_ERROR),
    "DATA on an even stream": (raw(DATA, 0, 2, b"x"), ErrorCode.PROTOCOL_ERROR),
    "DATA of nothing but a flag": (raw(DATA, 8, 1), ErrorCode.FRAME_SIZE_ERROR),
    "DATA all padding and more": (raw(DATA, 8, 1, b"\x05abcd"), ErrorCode.PROTOCOL_ERROR),
    "HEADERS on stream 0": (raw(HEADERS, 4, 0, BLOCK), ErrorCode.PROTOCOL_ERROR),
    "HEADERS on an even stream": (raw(HEADERS, 4, 4, BLOCK), ErrorCode.PROTOCOL_ERROR),
    "HEADERS too short for priority": (raw(HEADERS, 0x24, 3, b"1234"), ErrorCode.FRAME_SIZE_ERROR),
    "HEADERS over-padded": (raw(HEADERS, 0xC, 3, b"\x09abc"), ErrorCode.PROTOCOL_ERROR),
    "HEADERS not HPACK": (raw(HEADERS, 4, 3, b"\xff\xff\xff\xff\xff"), ErrorCode.COMPRESSION_ERROR),
    "PRIORITY on stream 0": (raw(PRIORITY, 0, 0, bytes(5)), ErrorCode.PROTOCOL_ERROR),
    "PRIORITY of 4": (raw(PRIORITY, 0, 3, bytes(4)), ErrorCode.FRAME_SIZE_ERROR),
    "RST_STREAM on stream 0": (raw(RST, 0, 0, bytes(4)), ErrorCode.PROTOCOL_ERROR),
    "RST_STREAM on an idle stream": (raw(RST, 0, 3, bytes(4)), ErrorCode.PROTOCOL_ERROR),
    "RST_STREAM of 5": (raw(RST, 0, 1, bytes(5)), ErrorCode.FRAME_SIZE_ERROR),
    "SETTINGS on a stream": (raw(SETTINGS, 0, 1), ErrorCode.PROTOCOL_ERROR),
    "SETTINGS of 5": (raw(SETTINGS, 0, 0, bytes(5)), ErrorCode.FRAME_SIZE_ERROR),
    "SETTINGS ack with payload": (raw(SETTINGS, 1, 0, bytes(6)), ErrorCode.FRAME_SIZE_ERROR),
    "PUSH_PROMISE": (raw(PUSH, 4, 1, bytes(4) + BLOCK), ErrorCode.PROTOCOL_ERROR),
    "PING on a stream": (raw(PING, 0, 1, bytes(8)), ErrorCode.PROTOCOL_ERROR),
    "PING of 7": (raw(PING, 0, 0, bytes(7)), ErrorCode.FRAME_SIZE_ERROR),
    "GOAWAY on a stream": (raw(GOAWAY, 0, 1, bytes(8)), ErrorCode.PROTOCOL_ERROR),
    "GOAWAY of 7": (raw(GOAWAY, 0, 0, bytes(7)), ErrorCode.FRAME_SIZE_ERROR),
    "WINDOW_UPDATE of 3": (raw(WINDOW, 0, 0, bytes(3)), ErrorCode.FRAME_SIZE_ERROR),
    "WINDOW_UPDATE by 0": (raw(WINDOW, 0, 0, bytes(4)), ErrorCode.PROTOCOL_ERROR),
    "WINDOW_UPDATE over the top": (
        raw(WINDOW, 0, 0, b"\x7f\xff\xff\xff"),
        ErrorCode.FLOW_CONTROL_ERROR,
    ),
    "WINDOW_UPDATE on an idle stream": (raw(WINDOW, 0, 7, b"\0\0\0\1"), ErrorCode.PROTOCOL_ERROR),
    "CONTINUATION of nothing": (raw(CONTINUATION, 4, 1, b""), ErrorCode.PROTOCOL_ERROR),
    "a frame of 16385": (raw(DATA, 0, 1, bytes(16385)), ErrorCode.FRAME_SIZE_ERROR),
    "an older stream": (
        raw(HEADERS, 4, 7, BLOCK) + raw(HEADERS, 4, 3, BLOCK),
        ErrorCode.PROTOCOL_ERROR,
    ),
    "HEADERS after the end": (
        raw(HEADERS, 5, 3, BLOCK) + raw(HEADERS, 5, 3, BLOCK),
        ErrorCode.STREAM_CLOSED,
    ),
    "PING inside a header block": (
        raw(HEADERS, 0, 3, BLOCK) + raw(PING, 0, 0, bytes(8)),
        ErrorCode.PROTOCOL_ERROR,
    ),
    "an unknown frame inside a header block": (
        raw(HEADERS, 0, 3, BLOCK) + raw(99, 0, 3),
        ErrorCode.PROTOCOL_ERROR,
    ),
    "another stream's CONTINUATION": (
        raw(HEADERS, 0, 3, BLOCK) + raw(CONTINUATION, 4, 5),
        ErrorCode.PROTOCOL_ERROR,
    ),
}


@pytest.mark.parametrize("name", ILLEGAL)
def test_illegal_frames_end_the_connection(name: str) -> None:
    """GOAWAY with the RFC's code, every call aborted once, and the socket closed."""
    frames, code = ILLEGAL[name]
    wire = greeted()
    wire.feed(raw(HEADERS, END_HEADERS, 1, BLOCK))
    wire.feed(frames + raw(PING, 0, 0, bytes(8)))
    assert fault_of(wire) == code
    assert wire.service.handlers[0].aborts == 1
    assert wire.counters.streams_open == 0
    wire.feed(raw(PING, 0, 0, bytes(8)))
    assert wire.take() == b""


@pytest.mark.parametrize("state", ["open", "half-closed", "answered", "reset"])
def test_no_frame_of_any_shape_breaks_anything(state: str) -> None:
    """Every type x flags x length x stream: an answer or GOAWAY, never an exception or a leak."""
    prologue = {
        "open": raw(HEADERS, 4, 1, BLOCK),
        "half-closed": raw(HEADERS, 4, 1, BLOCK) + raw(DATA, 1, 1, grpc(b"x")[:3]),
        "answered": raw(HEADERS, 4, 1, BLOCK) + raw(DATA, 1, 1, grpc(b"x")),
        "reset": raw(HEADERS, 4, 1, BLOCK) + raw(RST, 0, 1, bytes(4)),
    }[state]
    wire = Wire()
    wire.lose()
    shapes = itertools.product(
        range(12), (0, 1, 4, 5, 8, 0x2C, 0xFF), (0, 1, 4, 5, 6, 8, 9), (0, 1, 2, 3)
    )
    for kind, flags, size, stream_id in shapes:
        wire.connect()
        wire.feed(HELLO + raw(SETTINGS, ACK, 0) + prologue)
        wire.feed(raw(kind, flags, stream_id, bytes(range(1, size + 1))))
        wire.take()
        wire.feed(raw(PING, 0, 0, b"--pong--"))
        alive = (PING, ACK, 0, b"--pong--") in split(wire.take())
        assert alive or wire.closed() or wire.connection.block is not None
        wire.lose()
        assert wire.counters.streams_open == 0
    assert all(h.aborts <= 1 for h in wire.service.handlers)
    assert wire.counters.handler_errors == 0
    assert wire.counters.connections_open == 0
    assert wire.shared.budget.held == 0


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
