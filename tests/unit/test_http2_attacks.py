"""A hostile peer is bounded in what it makes a server hold and do, and others do not pay for it."""

import logging
import struct
from dataclasses import replace

import pytest

from epp_worker.http2 import Http2Limits, frames
from epp_worker.http2.contract import GrpcStream
from epp_worker.http2.errors import ErrorCode
from tests.http2_peer import FakeTransport, Recorder, Wire, grpc, raw
from tests.http2_peer import request_headers as head

MIB = 1024 * 1024
HELLO = frames.PREFACE + frames.settings({})


def block(fields: list[tuple[str, str]]) -> bytes:
    """Header fields as literals that touch no table."""
    out = b""
    for name, value in fields:
        out += b"\0" + bytes((len(name),)) + name.encode() + bytes((len(value),)) + value.encode()
    return out


def headers(stream_id: int) -> bytes:
    """HEADERS of a call to the echo service."""
    return raw(frames.HEADERS, frames.FLAG_END_HEADERS, stream_id, block(head()))


def data(stream_id: int, content: bytes) -> bytes:
    """DATA frames with this content."""
    parts = [content[at : at + 16_384] for at in range(0, len(content), 16_384)]
    return b"".join(raw(frames.DATA, 0, stream_id, part) for part in parts)


def joined(wire: Wire, hello: bytes = HELLO) -> FakeTransport:
    """One more connection on the wire's server, greeted; the wire speaks through it from now on."""
    wire.connect()
    wire.feed(hello)
    wire.take()
    return wire.transport


def windows(*values: int) -> bytes:
    """SETTINGS with these initial window sizes, one after the other."""
    payload = b"".join(struct.pack(">HI", 4, value) for value in values)
    return raw(frames.SETTINGS, 0, 0, payload)


def goaway_code(wire: Wire) -> int | None:
    """The code of the GOAWAY that was written, if one was."""
    codes = [payload[4:8] for kind, _, _, payload in wire.frames() if kind == frames.GOAWAY]
    return int.from_bytes(codes[0], "big") if codes else None


def test_many_window_sizes_in_one_frame_move_each_stream_once() -> None:
    """2,730 values for 4,000 streams in a frame of 16 kB took seconds; only the last one counts.

    The largest window, if the stream moved to it, would be too large by the one byte that the peer
    has granted before.
    """
    wire = Wire()
    joined(wire)
    wire.feed(headers(1) + raw(frames.WINDOW_UPDATE, 0, 1, struct.pack(">I", 1)))
    stream = wire.connection.streams[1]
    wire.feed(windows(*(frames.MAX_WINDOW, 70_000) * 1_364, frames.MAX_WINDOW, 72_729))
    assert stream.window == 72_730
    assert goaway_code(wire) is None
    wire.feed(windows(frames.MAX_WINDOW))
    assert goaway_code(wire) == ErrorCode.FLOW_CONTROL_ERROR


def test_settings_are_acknowledged_before_their_windows_are_used() -> None:
    """grpc-core resets a stream whose DATA overtakes the acknowledgement of a larger window."""
    wire = Wire()
    joined(wire, frames.PREFACE + windows(0))
    wire.feed(headers(1) + data(1, grpc(b"hello")))
    assert not [kind for kind, *_ in wire.frames() if kind == frames.DATA]
    kinds = [kind for kind, *_ in wire.talk(windows(100))]
    assert kinds == [frames.SETTINGS, frames.DATA]


def test_moving_the_windows_of_many_streams_counts_as_many_idle_frames() -> None:
    """A SETTINGS frame that moves 160 streams weighs as much as ten idle frames, and one more."""
    wire = Wire(limits=Http2Limits(max_idle_frames=100))
    joined(wire)  # its SETTINGS were the first idle frame
    wire.feed(b"".join(headers(1 + 2 * turn) for turn in range(160)))
    for turn in range(9):
        wire.feed(windows(70_000 + turn))
    assert goaway_code(wire) is None
    wire.feed(windows(80_000))
    assert goaway_code(wire) == ErrorCode.ENHANCE_YOUR_CALM


def test_a_read_full_of_work_is_done_in_turns() -> None:
    """After 0.25 ms a connection waits for its next turn and reads nothing in between; nothing is
    lost, and the order stays."""
    wire = Wire()

    class Slow(Recorder):
        """A handler to whom each message takes 0.09 ms."""

        def received(self, message: bytes) -> None:
            """Let time pass."""
            super().received(message)
            wire.loop.now += 0.00009

    made: list[Slow] = []

    def service(stream: GrpcStream) -> Slow:
        made.append(Slow(stream))
        return made[-1]

    wire.service.make = service
    transport = joined(wire)
    sent = [b"%03d" % number + b"x" * 600 for number in range(12)]
    wire.connection.data_received(headers(1) + b"".join(data(1, grpc(one)) for one in sent))
    assert made[0].messages == sent[:3]
    assert not transport.reading
    wire.connection.data_received(data(1, grpc(b"late")))  # was under way when we paused
    wire.loop.run()
    assert made[0].messages == [*sent, b"late"]
    assert transport.reading


def test_busy_connections_share_a_turn() -> None:
    """With two others that have more to do, a third works for a third of the time."""
    wire = Wire()

    class Slow(Recorder):
        """A handler to whom each message takes 0.06 ms."""

        def received(self, message: bytes) -> None:
            """Let time pass."""
            super().received(message)
            wire.loop.now += 0.00006

    made: list[Slow] = []

    def service(stream: GrpcStream) -> Slow:
        made.append(Slow(stream))
        return made[-1]

    wire.service.make = service
    sent = [b"x" * 100] * 12
    busy = []
    for _ in range(3):
        joined(wire)
        busy.append(wire.connection)
    for connection in busy:
        connection.data_received(headers(1) + b"".join(data(1, grpc(one)) for one in sent))
    assert [len(one.messages) for one in made] == [5, 3, 2]
    wire.lose()
    wire.loop.run()
    assert [len(one.messages) for one in made] == [12, 12, 2]
    assert wire.shared.resting == 0


def test_a_frame_full_of_messages_is_done_in_turns() -> None:
    """3,276 messages in a frame: others are served in between; each comes once and in order, and
    the client's END_STREAM comes last. Each byte is granted once."""
    wire = Wire(limits=Http2Limits(stream_window=65_535, connection_window=65_535))
    joined(wire)
    wire.feed(headers(1))
    handler = wire.service.last
    handler.answers = False
    sent = [b"%04d" % number for number in range(1_500)]
    content = grpc(*sent)
    first, second = content[:10_001], content[10_001:]
    wire.connection.data_received(raw(frames.DATA, 0, 1, first))
    assert handler.messages == sent[:128]
    wire.connection.data_received(raw(frames.DATA, frames.FLAG_END_STREAM, 1, second))
    wire.loop.run()
    assert handler.messages == sent
    assert handler.closed == 1
    left = 65_535 - len(content)
    assert wire.connection.receive.take(left - 32_768) == 0
    assert wire.connection.receive.take(1) == 65_535 - 32_767


def test_streams_are_bounded_over_all_connections() -> None:
    """Beyond `max_open_streams` a stream is refused, to be tried elsewhere; room comes back."""
    wire = Wire(limits=Http2Limits(max_open_streams=3))
    joined(wire)
    wire.feed(headers(1) + headers(3))
    first = wire.connection
    joined(wire)
    wire.feed(headers(1) + headers(3))
    resets = [f for f in wire.frames() if f[0] == frames.RST_STREAM]
    assert resets == [(frames.RST_STREAM, 0, 3, frames.pack_u32(ErrorCode.REFUSED_STREAM))]
    first.connection_lost(None)
    wire.feed(headers(5))
    assert wire.shared.streams_held == 2
    wire.feed(frames.rst_stream(1, ErrorCode.CANCEL) + frames.rst_stream(5, ErrorCode.CANCEL))
    assert wire.shared.streams_held == 0


def test_unread_answers_are_bounded_over_all_connections() -> None:
    """When all connections together hold too much, the one that holds most is cut, and only it."""
    wire = Wire(limits=Http2Limits(max_send_bytes=3 * MIB))
    shut = frames.PREFACE + windows(0)
    held = {}
    for name, size in (("small", MIB // 2), ("greedy", 2 * MIB)):
        joined(wire, shut)
        held[name] = wire.connection
        wire.feed(headers(1) + data(1, grpc(b"a" * size)))
    assert wire.shared.unsent.held == 2 * MIB + MIB // 2 + 10
    joined(wire, shut)
    wire.feed(headers(1) + data(1, grpc(b"a" * MIB)))
    assert held["greedy"].closing
    assert not held["small"].closing
    assert not wire.connection.closing
    assert wire.counters.send_overflows == 1
    held["small"].connection_lost(None)
    wire.lose()
    assert wire.shared.unsent.held == 0


def test_small_answers_that_wait_take_little_more_than_their_bytes() -> None:
    """They are put together, and still leave byte for byte, wherever windows cut them."""
    wire = Wire()
    joined(wire, frames.PREFACE + windows(0))
    wire.feed(headers(1))
    stream = wire.connection.streams[1]
    sent = [b"%d" % number * (1 + number % 60) for number in range(2_000)]
    for message in sent[:1_000]:
        stream.send(message)
    assert len(stream._queue._pieces or ()) < 20
    wire.feed(raw(frames.WINDOW_UPDATE, 0, 1, frames.pack_u32(12_345)))
    sent[1_700] = b"x" * 5_000
    for message in sent[1_000:]:
        stream.send(message)
    wire.feed(raw(frames.WINDOW_UPDATE, 0, 0, frames.pack_u32(2**24)))
    wire.feed(raw(frames.WINDOW_UPDATE, 0, 1, frames.pack_u32(2**24)))
    written = b"".join(payload for kind, _, _, payload in wire.frames() if kind == frames.DATA)
    assert written == grpc(*sent)
    assert wire.shared.unsent.held == 0


def test_what_a_full_socket_holds_counts_too() -> None:
    """PINGs whose answers are never read fill the socket's buffer, not a window."""
    wire = Wire(limits=Http2Limits(max_send_bytes=MIB))
    transport = joined(wire)
    wire.connection.pause_writing()
    transport.buffered = MIB // 2
    wire.feed(frames.ping(b"12345678"))
    assert wire.shared.unsent.held == MIB // 2
    wire.connection.resume_writing()
    assert wire.shared.unsent.held == 0
    wire.connection.pause_writing()
    transport.buffered = MIB + 1
    wire.feed(frames.ping(b"12345678"))
    assert goaway_code(wire) == ErrorCode.ENHANCE_YOUR_CALM
    assert wire.shared.unsent.held == 0


def test_a_fault_that_is_repeated_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """12,000 garbage connections a few seconds long are one line, not 12,000."""
    caplog.set_level(logging.INFO)
    wire = Wire()
    for _ in range(50):
        wire.connect()
        wire.feed(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        wire.lose()
    assert [record.getMessage() for record in caplog.records] == ["connection fault"]
    assert wire.counters.connection_faults == {"PROTOCOL_ERROR": 50}


def test_the_bounds_of_the_whole_server_are_checked() -> None:
    """A bound of nothing is a mistake."""
    with pytest.raises(Exception, match="max_open_streams"):
        replace(Http2Limits(), max_open_streams=0)
    with pytest.raises(Exception, match="max_send_bytes"):
        replace(Http2Limits(), max_send_bytes=0)
