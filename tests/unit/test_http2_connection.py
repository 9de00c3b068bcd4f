"""A connection as its peer sees it: preface, SETTINGS, PING, GOAWAY, and all that is illegal."""

import itertools
import struct

import pytest

from epp_worker.http2.errors import ErrorCode
from epp_worker.http2.frames import PREFACE
from tests.http2_greeted import (
    ACK,
    BLOCK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    GOAWAY,
    HEADERS,
    HELLO,
    PING,
    PRIORITY,
    PUSH,
    RST,
    SETTINGS,
    WINDOW,
    fault_of,
    greeted,
)
from tests.http2_peer import Client, Wire, exchange, grpc, raw, split


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
