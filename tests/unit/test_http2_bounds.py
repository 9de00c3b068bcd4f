"""Each bound of the transport: what runs into it, what becomes of that, and what is counted."""

from collections.abc import Callable, Iterable

import pytest

from epp_worker.http2 import Http2Limits, frames
from epp_worker.http2.bounds import Bound
from epp_worker.http2.errors import ErrorCode
from epp_worker.http2.shared import Shared
from tests.attackers import data
from tests.http2_peer import FakeTransport, Wire, grpc, raw
from tests.http2_peer import request_headers as head
from tests.unit.test_http2_attacks import HELLO, block, goaway_code, headers, joined, windows

CALM = ErrorCode.ENHANCE_YOUR_CALM


def streams(count: int, first: int = 1) -> Iterable[int]:
    """Ids."""
    return range(first, first + 2 * count, 2)


def update(stream_id: int, increment: int) -> bytes:
    """WINDOW_UPDATE."""
    return raw(frames.WINDOW_UPDATE, 0, stream_id, frames.pack_u32(increment))


def reset(stream_id: int) -> bytes:
    """RST_STREAM as Envoy sends it."""
    return frames.rst_stream(stream_id, ErrorCode.CANCEL)


def long_header(size: int) -> bytes:
    """HEADERS with one long value, as a literal whose length takes two bytes and more."""
    rest, length = size - 127, b"\x7f"
    while rest >= 128:
        length += bytes((rest % 128 | 128,))
        rest //= 128
    value = length + bytes((rest,)) + b"a" * size
    whole = block(head()) + b"\0\1x" + value
    first, more = (
        whole[:16_000],
        [whole[at : at + 16_000] for at in range(16_000, len(whole), 16_000)],
    )
    out = raw(frames.HEADERS, 0 if more else frames.FLAG_END_HEADERS, 1, first)
    for number, part in enumerate(more, 1):
        out += raw(frames.CONTINUATION, 4 if number == len(more) else 0, 1, part)
    return out


BOMB = (
    block(head())
    + b"\x40\x01x\x7f\xa1\x1e"  # x: 4,000 bytes, into the table ...
    + b"a" * 4_000
    + b"\xbe" * 4  # ... and four times more by one byte each
)

FLOODS: dict[str, Callable[[int], bytes]] = {
    "PING": lambda n: frames.ping(b"12345678") * n,
    "SETTINGS": lambda n: frames.settings({}) * n,
    "GOAWAY": lambda n: frames.goaway(0, 0) * n,
    "PRIORITY": lambda n: raw(frames.PRIORITY, 0, 1, b"\0\0\0\0\x10") * n,
    "unknown type": lambda n: raw(99, 0, 0, b"x") * n,
    "empty DATA": lambda n: headers(1) + raw(frames.DATA, 0, 1) * n,
    "padding alone": lambda n: headers(1) + raw(frames.DATA, 8, 1, b"\5" + b"\0" * 5) * n,
    "DATA on closed": lambda n: headers(1) + reset(1) + raw(frames.DATA, 0, 1, b"x") * n,
    "RST_STREAM on closed": lambda n: headers(1) + reset(1) * (n + 1),
    "window beyond use": lambda n: headers(1) + update(1, 1) * n,
    "window of the connection": lambda n: headers(1) + update(0, 1) * n,
    "window of a closed stream": lambda n: headers(1) + reset(1) + update(1, 9) * n,
    "malformed requests": lambda n: b"".join(
        raw(frames.HEADERS, 4, one, b"\0\1X\1y") for one in streams(n)
    ),
}


@pytest.mark.parametrize("name", FLOODS)
def test_frames_that_bring_nothing(name: str) -> None:
    """90 of them in ten seconds are borne, 110 are not; the peer is told to calm down."""
    limits = Http2Limits(max_idle_frames=100)
    patient, annoyed = Wire(limits=limits), Wire(limits=limits)
    for wire, count in ((patient, 90), (annoyed, 110)):
        joined(wire)
        wire.feed(FLOODS[name](count))
    assert goaway_code(patient) is None or name == "GOAWAY"
    assert patient.counters.bounds[Bound.IDLE_FRAMES] == 0
    assert goaway_code_last(annoyed) == CALM
    assert annoyed.counters.bounds[Bound.IDLE_FRAMES] == 1
    assert annoyed.closed()


def goaway_code_last(wire: Wire) -> int | None:
    """The code of the last GOAWAY."""
    codes = [payload[4:8] for kind, _, _, payload in wire.frames() if kind == frames.GOAWAY]
    return int.from_bytes(codes[-1], "big") if codes else None


def test_a_flood_is_counted_over_ten_seconds() -> None:
    """The same number spread out is no flood."""
    wire = Wire(limits=Http2Limits(max_idle_frames=100))
    joined(wire)
    for _ in range(5):
        wire.feed(FLOODS["PING"](90))
        wire.loop.now += 10.0
    assert not wire.closed()


def test_windows_that_are_used_may_open_as_often_as_they_like() -> None:
    """A client that grants byte for byte what it has read is no attacker."""
    wire = Wire(limits=Http2Limits(max_idle_frames=50))
    joined(wire)
    wire.feed(headers(1))
    for _ in range(500):
        wire.feed(data(1, grpc(b"hello")) + update(0, 10) + update(1, 10))
    assert not wire.closed()


def test_crumbs_of_a_window_are_a_flood() -> None:
    """Opening by one byte while a MiB waits makes a frame of each byte."""
    wire = Wire(limits=Http2Limits(max_idle_frames=50))
    joined(wire, frames.PREFACE + windows(0))
    wire.feed(headers(1) + data(1, grpc(b"a" * 100_000)))
    wire.feed(update(1, 1) * 60)
    assert wire.counters.bounds[Bound.IDLE_FRAMES] == 1
    assert wire.shared.unsent.held == 0


def test_resets_of_unanswered_streams() -> None:
    """CVE-2023-44487: 60 requests that are reset at once."""
    wire = Wire(limits=Http2Limits(max_unanswered_resets=50))
    joined(wire)
    wire.feed(b"".join(headers(one) + reset(one) for one in streams(60)))
    assert goaway_code(wire) == CALM
    assert wire.counters.bounds[Bound.UNANSWERED_RESETS] == 1
    assert wire.shared.streams_held == 0


def test_resets_of_answered_streams_are_free() -> None:
    """Envoy ends every stream so: a thousand of them are a thousand requests."""
    wire = Wire(limits=Http2Limits(max_unanswered_resets=50))
    joined(wire)
    for one in streams(1_000):
        wire.feed(headers(one) + data(one, grpc(b"hello")))
        wire.feed(reset(one))
    assert not wire.closed()


FAULTS: dict[str, Callable[[int], bytes]] = {
    "window of 0": lambda one: update(one, 0),
    "window overflow": lambda one: update(one, frames.MAX_WINDOW),
    "DATA after the end": lambda one: raw(frames.DATA, 1, one) + raw(frames.DATA, 0, one, b"x"),
    "PRIORITY of 4 bytes": lambda one: raw(frames.PRIORITY, 0, one, b"1234"),
    "trailers without an end": lambda one: raw(frames.HEADERS, 4, one, block([("x", "y")])),
}


@pytest.mark.parametrize("name", FAULTS)
def test_streams_that_we_are_made_to_reset(name: str) -> None:
    """CVE-2025-8671: a peer that has us reset its streams pays as if it had done so itself."""
    wire = Wire(limits=Http2Limits(max_unanswered_resets=50))
    joined(wire)
    for one in streams(60):
        wire.feed(headers(one))
        if wire.service.handlers:
            wire.service.last.answers = False
        wire.feed(FAULTS[name](one))
    assert goaway_code(wire) == CALM
    assert wire.counters.bounds[Bound.UNANSWERED_RESETS] == 1


def test_header_lists() -> None:
    """One long value, and a table entry that is named again and again (HPACK bomb)."""
    for attack in (long_header(17_000)[:20_000], raw(frames.HEADERS, 4, 1, BOMB)):
        wire = Wire(limits=Http2Limits(max_header_list_bytes=16_384, max_header_block_bytes=32_768))
        joined(wire, HELLO)
        wire.feed(attack)
        assert goaway_code(wire) == CALM
        assert wire.counters.bounds[Bound.HEADER_LIST] == 1


def test_header_blocks_without_end() -> None:
    """CVE-2024-27316: bytes, or empty CONTINUATIONs."""
    open_block = raw(frames.HEADERS, 0, 1, block(head()))
    for more in (raw(frames.CONTINUATION, 0, 1, b"\0" * 16_000), raw(frames.CONTINUATION, 0, 1)):
        wire = Wire()
        joined(wire)
        wire.feed(open_block + more * 40)
        assert goaway_code(wire) == CALM
        assert wire.counters.bounds[Bound.HEADER_BLOCK] == 1


def refused(wire: Wire) -> int:
    """How many streams were refused, to be tried elsewhere."""
    code = frames.pack_u32(ErrorCode.REFUSED_STREAM)
    return sum(f[0] == frames.RST_STREAM and f[3] == code for f in wire.frames())


def test_streams_per_connection() -> None:
    """Beyond the announced number each is refused; the others go on."""
    wire = Wire(limits=Http2Limits(max_streams=8))
    joined(wire)
    wire.feed(b"".join(headers(one) for one in streams(10)))
    assert refused(wire) == 2
    assert wire.counters.bounds[Bound.STREAMS_PER_CONNECTION] == 2
    assert wire.shared.streams_held == 8


def test_streams_of_the_whole_server() -> None:
    """A connection that takes all it can get leaves a quarter of a quarter to each of four."""
    wire = Wire(limits=Http2Limits(max_open_streams=64))
    greedy = [(joined(wire), wire.connection)[1] for _ in range(3)]
    for connection in greedy:
        wire.connection = connection
        wire.feed(b"".join(headers(one) for one in streams(40)))
    joined(wire)
    held = wire.shared.streams_held
    assert 48 <= held < 64
    assert wire.counters.bounds[Bound.STREAM_RESERVE] > 0
    wire.feed(b"".join(headers(one) for one in streams(4)))
    assert refused(wire) == 0
    assert wire.shared.streams_held == held + 4


def test_answers_that_are_not_read() -> None:
    """Per stream: that stream is reset. Per connection: it ends. Others go on."""
    limits = Http2Limits(max_stream_send_bytes=1_000, max_connection_send_bytes=2_500)
    wire = Wire(limits=limits)
    joined(wire, frames.PREFACE + windows(0))
    wire.feed(headers(1) + data(1, grpc(b"a" * 1_000)))
    assert wire.counters.bounds[Bound.STREAM_SEND] == 1
    wire.feed(b"".join(headers(one) + data(one, grpc(b"a" * 900)) for one in (3, 5, 7)))
    assert wire.counters.bounds[Bound.CONNECTION_SEND] == 1
    assert wire.closed()
    assert wire.shared.unsent.held == 0


def test_messages() -> None:
    """One that is announced too large, and unfinished ones that are too many together."""
    wire = Wire(limits=Http2Limits(max_message_bytes=1_000, max_partial_bytes=1_500))
    joined(wire)
    wire.feed(headers(1) + data(1, b"\0\0\0\x10\0"))
    assert wire.counters.bounds[Bound.MESSAGE] == 1
    half = b"\0\0\0\3\xe8" + b"a" * 600
    wire.feed(b"".join(headers(one) + data(one, half) for one in (3, 5, 7)))
    assert wire.counters.bounds[Bound.PARTIAL_MESSAGES] == 1
    assert wire.counters.streams_total[8] == 2
    assert wire.shared.budget.held == 2 * 605


def test_silence() -> None:
    """Before the preface, and after it when no PING is answered."""
    wire = Wire(limits=Http2Limits(preface_seconds=10, keepalive_seconds=30))
    wire.loop.advance(11)
    assert wire.counters.bounds[Bound.PREFACE] == 1
    assert wire.transport.aborted
    wire.lose()
    wire.connect()
    wire.feed(frames.PREFACE)  # half a greeting is none
    wire.loop.advance(11)
    assert wire.counters.bounds[Bound.PREFACE] == 2
    wire.lose()
    joined(wire)
    wire.loop.advance(80)
    assert wire.counters.bounds[Bound.KEEPALIVE] == 1


def test_connections_that_were_never_used_give_way() -> None:
    """The oldest of them goes, with a GOAWAY; one that has had a stream stays for ever."""
    wire = Wire()
    used = wire.transport
    wire.feed(HELLO + headers(1) + reset(1))
    idle: list[FakeTransport] = [joined(wire) for _ in range(2)]
    shared: Shared = wire.shared
    assert shared.make_room()
    assert [each.aborted for each in (used, *idle)] == [False, True, False]
    assert idle[0].written[3] == frames.GOAWAY
    assert shared.make_room()
    assert not shared.make_room()
    assert not used.aborted


def test_the_streams_of_a_lost_connection_end_in_turns() -> None:
    """64 at once; until they are told, handlers may answer, and nothing comes of it."""
    wire = Wire()
    joined(wire, frames.PREFACE + windows(0))
    wire.feed(b"".join(headers(one) + data(one, grpc(b"a" * 1_000)) for one in streams(200)))
    assert wire.shared.unsent.held == 200 * 1_005
    wire.connection.connection_lost(None)
    handlers = wire.service.handlers
    assert sum(handler.aborts for handler in handlers) == 64
    assert wire.shared.streams_held == wire.shared.unsent.held == 0
    handlers[-1].received(b"too late")
    wire.loop.run()
    assert [handler.aborts for handler in handlers] == [1] * 200
    assert wire.counters.streams_open == wire.shared.unsent.held == 0
    assert not [kind for kind, *_ in wire.frames() if kind == frames.DATA]
