"""Every type of frame with flags, lengths, streams that it must not have: what RFC 9113 wants."""

from dataclasses import dataclass

import pytest

from epp_worker.http2 import frames
from epp_worker.http2.errors import ErrorCode
from tests.http2_peer import Wire, grpc, messages_in, raw, request_headers
from tests.unit.test_http2_attacks import HELLO, block

PROTOCOL, SIZE = ErrorCode.PROTOCOL_ERROR, ErrorCode.FRAME_SIZE_ERROR
FLOW, CLOSED = ErrorCode.FLOW_CONTROL_ERROR, ErrorCode.STREAM_CLOSED
OPEN, HALF, GONE, IDLE, EVEN = 1, 3, 5, 11, 2
BY = 9
"""The stream that nothing happens to."""

REQUEST = block(request_headers())
TRAILERS = block([("x", "y")])


@dataclass(frozen=True)
class Dies:
    """The connection ends by GOAWAY with this code."""

    code: ErrorCode


@dataclass(frozen=True)
class Resets:
    """The stream is reset with this code, and nothing else happens."""

    code: ErrorCode


@dataclass(frozen=True)
class Ignores:
    """Nothing happens."""


def setting(name: int, value: int) -> bytes:
    """One setting."""
    return name.to_bytes(2, "big") + value.to_bytes(4, "big")


def u32(value: int) -> bytes:
    """Four bytes."""
    return value.to_bytes(4, "big")


Case = tuple[int, int, int, bytes]
Outcome = Dies | Resets | Ignores

CASES: list[tuple[str, Case, Outcome]] = [
    # 6.1 DATA
    ("DATA on 0", (0, 0, 0, b"x"), Dies(PROTOCOL)),
    ("DATA on an even stream", (0, 0, EVEN, b"x"), Dies(PROTOCOL)),
    ("DATA on an idle stream", (0, 0, IDLE, b"x"), Dies(PROTOCOL)),
    ("DATA after END_STREAM", (0, 0, HALF, b"x"), Resets(CLOSED)),
    ("DATA on a closed stream", (0, 0, GONE, b"x"), Resets(CLOSED)),
    ("DATA padded by nothing", (0, 8, OPEN, b""), Dies(SIZE)),
    ("DATA with more padding than frame", (0, 8, OPEN, b"\x05abc"), Dies(PROTOCOL)),
    ("DATA all padding", (0, 8, OPEN, b"\x03abc"), Ignores()),
    ("DATA with flags that it has not", (0, 0xF6, OPEN, b""), Ignores()),
    # 6.2 HEADERS
    ("HEADERS on 0", (1, 4, 0, REQUEST), Dies(PROTOCOL)),
    ("HEADERS on an even stream", (1, 4, EVEN, REQUEST), Dies(PROTOCOL)),
    ("HEADERS on a lower stream", (1, 4, 7, REQUEST), Dies(PROTOCOL)),
    ("HEADERS after END_STREAM", (1, 5, HALF, TRAILERS), Resets(CLOSED)),
    ("HEADERS on a closed stream", (1, 5, GONE, TRAILERS), Dies(CLOSED)),
    ("HEADERS, too short for a priority", (1, 0x24, IDLE, b"abc"), Dies(SIZE)),
    ("HEADERS with more padding than frame", (1, 0xC, IDLE, b"\xffabc"), Dies(PROTOCOL)),
    ("HEADERS that are no HPACK", (1, 4, IDLE, b"\xff\xff\xff\xff"), Dies(ErrorCode(9))),
    ("HEADERS of nothing", (1, 4, IDLE, b""), Resets(PROTOCOL)),
    ("trailers without END_STREAM", (1, 4, OPEN, TRAILERS), Resets(PROTOCOL)),
    ("trailers with a pseudo header", (1, 5, OPEN, REQUEST), Resets(PROTOCOL)),
    # 6.3 PRIORITY
    ("PRIORITY on 0", (2, 0, 0, b"\0\0\0\3\1"), Dies(PROTOCOL)),
    ("PRIORITY of 4 bytes", (2, 0, OPEN, b"abcd"), Resets(SIZE)),
    ("PRIORITY on an idle stream", (2, 0, IDLE, b"\0\0\0\3\1"), Ignores()),
    ("PRIORITY on an even stream", (2, 0, EVEN, b"\0\0\0\3\1"), Ignores()),
    # 6.4 RST_STREAM
    ("RST_STREAM on 0", (3, 0, 0, u32(8)), Dies(PROTOCOL)),
    ("RST_STREAM on an idle stream", (3, 0, IDLE, u32(8)), Dies(PROTOCOL)),
    ("RST_STREAM of 3 bytes", (3, 0, OPEN, b"abc"), Dies(SIZE)),
    ("RST_STREAM of 5 bytes", (3, 0, OPEN, b"abcde"), Dies(SIZE)),
    ("RST_STREAM on a closed stream", (3, 0, GONE, u32(8)), Ignores()),
    ("RST_STREAM with an unknown code", (3, 0, HALF, u32(0xDEAD)), Ignores()),
    # 6.5 SETTINGS
    ("SETTINGS on a stream", (4, 0, OPEN, b""), Dies(PROTOCOL)),
    ("SETTINGS of 5 bytes", (4, 0, 0, b"abcde"), Dies(SIZE)),
    ("SETTINGS ACK with a payload", (4, 1, 0, setting(3, 1)), Dies(SIZE)),
    ("SETTINGS push 2", (4, 0, 0, setting(2, 2)), Dies(PROTOCOL)),
    ("SETTINGS window 2^31", (4, 0, 0, setting(4, 1 << 31)), Dies(FLOW)),
    ("SETTINGS frame 16,383", (4, 0, 0, setting(5, 16_383)), Dies(PROTOCOL)),
    ("SETTINGS frame 2^24", (4, 0, 0, setting(5, 1 << 24)), Dies(PROTOCOL)),
    ("SETTINGS unknown", (4, 0xFE, 0, setting(0xABCD, 7)), Ignores()),
    # 6.6 PUSH_PROMISE
    ("PUSH_PROMISE", (5, 4, OPEN, u32(2) + REQUEST), Dies(PROTOCOL)),
    # 6.7 PING
    ("PING on a stream", (6, 0, OPEN, b"12345678"), Dies(PROTOCOL)),
    ("PING of 7 bytes", (6, 0, 0, b"1234567"), Dies(SIZE)),
    ("PING of 9 bytes", (6, 0, 0, b"123456789"), Dies(SIZE)),
    ("PING ACK that nobody asked for", (6, 1, 0, b"12345678"), Ignores()),
    # 6.8 GOAWAY
    ("GOAWAY on a stream", (7, 0, OPEN, bytes(8)), Dies(PROTOCOL)),
    ("GOAWAY of 7 bytes", (7, 0, 0, bytes(7)), Dies(SIZE)),
    # 6.9 WINDOW_UPDATE
    ("WINDOW_UPDATE of 3 bytes", (8, 0, 0, b"abc"), Dies(SIZE)),
    ("WINDOW_UPDATE of 5 bytes", (8, 0, OPEN, b"abcde"), Dies(SIZE)),
    ("WINDOW_UPDATE by 0", (8, 0, 0, u32(0)), Dies(PROTOCOL)),
    ("WINDOW_UPDATE of a stream by 0", (8, 0, OPEN, u32(0)), Resets(PROTOCOL)),
    ("WINDOW_UPDATE too far", (8, 0, 0, u32(0x7FFF_FFFF)), Dies(FLOW)),
    ("WINDOW_UPDATE of a stream too far", (8, 0, OPEN, u32(0x7FFF_FFFF)), Resets(FLOW)),
    ("WINDOW_UPDATE of an idle stream", (8, 0, IDLE, u32(1)), Dies(PROTOCOL)),
    ("WINDOW_UPDATE of an even stream", (8, 0, EVEN, u32(1)), Dies(PROTOCOL)),
    ("WINDOW_UPDATE of a closed stream", (8, 0, GONE, u32(1)), Ignores()),
    ("WINDOW_UPDATE with the reserved bit", (8, 0, OPEN, u32(0x8000_0001)), Ignores()),
    # 6.10 CONTINUATION
    ("CONTINUATION of nothing", (9, 4, OPEN, REQUEST), Dies(PROTOCOL)),
    ("CONTINUATION on 0", (9, 4, 0, REQUEST), Dies(PROTOCOL)),
    # 4.1, 5.5: what nobody knows is ignored
    ("type 10", (10, 0xFF, OPEN, b"x" * 100), Ignores()),
    ("type 255 on an idle stream", (255, 0, IDLE, b""), Ignores()),
]


def prepared() -> Wire:
    """Streams in every state, and one beside them."""
    wire = Wire()
    wire.feed(HELLO)
    for stream_id in (OPEN, HALF, GONE, BY):
        wire.feed(raw(frames.HEADERS, frames.FLAG_END_HEADERS, stream_id, REQUEST))
        wire.service.last.answers = stream_id == BY
    wire.feed(raw(frames.DATA, frames.FLAG_END_STREAM, HALF))
    wire.feed(frames.rst_stream(GONE, ErrorCode.CANCEL))
    wire.take()
    return wire


def outcome(wire: Wire, case: Case) -> Outcome:
    """What became of it; acknowledgements do not count."""
    wire.feed(raw(*case))
    for kind, flags, stream_id, payload in wire.frames():
        if kind == frames.GOAWAY and wire.closed():
            return Dies(ErrorCode(int.from_bytes(payload[4:8], "big")))
        if kind == frames.RST_STREAM:
            assert stream_id == case[2]
            return Resets(ErrorCode(int.from_bytes(payload, "big")))
        assert (kind, flags) == (frames.SETTINGS, frames.FLAG_ACK)
    return Ignores()


@pytest.mark.parametrize(("name", "case", "wanted"), CASES, ids=[case[0] for case in CASES])
def test_what_a_frame_must_not_be(name: str, case: Case, wanted: Outcome) -> None:
    """The outcome is the RFC's; unless the connection ends, the stream beside it is answered."""
    wire = prepared()
    assert outcome(wire, case) == wanted, name
    if isinstance(wanted, Dies):
        assert wire.shared.streams_held == 0
        return
    wire.feed(raw(frames.DATA, 0, BY, grpc(b"still here")))
    answers = [payload for kind, _, _, payload in wire.frames() if kind == frames.DATA]
    assert messages_in(b"".join(answers)) == [b"still here"]


@pytest.mark.parametrize("kind", range(12))
def test_no_frame_is_longer_than_was_agreed(kind: int) -> None:
    """16,385 bytes of any type, on any stream: nothing of it is even looked at."""
    for stream_id in (0, OPEN, IDLE):
        assert outcome(prepared(), (kind, 4, stream_id, bytes(16_385))) == Dies(SIZE)


@pytest.mark.parametrize("kind", [*range(9), 10, 255])
def test_nothing_stands_between_headers_and_their_continuation(kind: int) -> None:
    """Of whatever type and stream; nor another stream's CONTINUATION."""
    wire = prepared()
    wire.feed(raw(frames.HEADERS, 0, IDLE, REQUEST[:10]))
    assert outcome(wire, (kind, 0, IDLE, b"")) == Dies(PROTOCOL)
    wire = prepared()
    wire.feed(raw(frames.HEADERS, 0, IDLE, REQUEST[:10]))
    assert outcome(wire, (frames.CONTINUATION, 4, OPEN, REQUEST[10:])) == Dies(PROTOCOL)


@pytest.mark.parametrize("kind", range(12))
def test_the_first_frame_is_settings(kind: int) -> None:
    """Anything else ends the connection, an acknowledgement too."""
    wire = Wire()
    wire.feed(frames.PREFACE)
    wire.take()
    if kind != frames.SETTINGS:
        assert outcome(wire, (kind, 0, 0, b"")) == Dies(PROTOCOL)
    else:
        assert outcome(wire, (kind, frames.FLAG_ACK, 0, b"")) == Dies(PROTOCOL)
