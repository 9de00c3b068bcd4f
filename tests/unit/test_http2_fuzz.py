"""Frames at random: whatever three peers send, nobody's bytes stay behind when they are gone."""

import random
import struct

import pytest

from epp_worker.http2 import Http2Limits, frames
from epp_worker.http2.settings import INITIAL_WINDOW_SIZE
from tests.http2_peer import Wire, grpc, raw, request_headers

SEEDS = 40
LIMITS = Http2Limits(
    max_partial_bytes=3_000,
    max_streams=8,
    max_open_streams=10,
    max_send_bytes=20_000,
    max_stream_send_bytes=9_000,
    max_connection_send_bytes=15_000,
)
BLOCK = b"".join(
    b"\0" + bytes((len(name),)) + name.encode() + bytes((len(value),)) + value.encode()
    for name, value in request_headers()
)
KINDS = (0, 0, 0, 0, 1, 1, 1, 3, 4, 6, 8, 8, 8, *range(10), 77)
SIZES = (0, 1, 100, 5_000, 16_384, 65_535, 1 << 24, 1 << 31)


def content(rng: random.Random) -> bytes:
    """Of a DATA frame: messages, halves of them, crumbs, or nonsense."""
    return rng.choice(
        (
            grpc(b""),
            grpc(*[b"ab"] * rng.randrange(300)),
            b"\0\0\0\7\xd0" + b"x" * rng.randrange(1_500),
            rng.randbytes(rng.randrange(30)),
            grpc(b"z" * rng.randrange(2_000)),
            b"x" * 500,
        )
    )


def frame(rng: random.Random) -> bytes:
    """One frame, more often right than wrong."""
    kind, stream_id = rng.choice(KINDS), rng.choice((1, 3, 5, 7, 9, 11))
    if rng.random() < 0.02:
        return raw(
            kind, rng.randrange(256), rng.choice((0, 2, 1)), rng.randbytes(rng.randrange(20))
        )
    match kind:
        case frames.DATA:
            return raw(kind, rng.choice((0, 0, 0, 1)), stream_id, content(rng))
        case frames.HEADERS:
            return raw(kind, rng.choice((4, 4, 4, 5)), rng.randrange(1, 40, 2), BLOCK)
        case frames.RST_STREAM:
            return frames.rst_stream(stream_id, 8)
        case frames.SETTINGS:
            value = rng.choice(SIZES[:6])
            return raw(kind, 0, 0, struct.pack(">HI", INITIAL_WINDOW_SIZE, value))
        case frames.WINDOW_UPDATE:
            return frames.window_update(rng.choice((0, stream_id)), rng.choice(SIZES[1:7]))
        case _:
            return frames.ping(rng.randbytes(8))


def trouble(rng: random.Random, wire: Wire) -> None:
    """What befalls a connection beside frames."""
    connection, transport = wire.connection, wire.transport
    chance = rng.random()
    if chance < 0.04:
        connection.pause_writing()
        transport.buffered = rng.choice((0, 5_000, 14_000))
    elif chance < 0.08:
        transport.buffered = 0
        connection.resume_writing()
    elif chance < 0.1:
        connection.go_away()
    elif chance < 0.13:
        wire.loop.advance(rng.choice((0.1, 12, 40)))
    elif chance < 0.2:
        wire.loop.now += rng.choice((0.001, 0.004))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_stays_behind(seed: int) -> None:
    """Every bound's account is at zero once the connections are gone, no handler is aborted twice,
    and nothing but a connection's fault ever ends a connection."""
    rng = random.Random(seed)
    wire = Wire(limits=LIMITS)
    ends = []
    for _ in range(3):
        wire.connect()
        ends.append((wire.connection, wire.transport))
        window = struct.pack(">HI", INITIAL_WINDOW_SIZE, rng.choice(SIZES[:6]))
        wire.feed(frames.PREFACE + raw(frames.SETTINGS, 0, 0, window))
    for _ in range(60):
        wire.connection, wire.transport = rng.choice(ends)
        if wire.transport.aborted:
            continue
        sent = b"".join(frame(rng) for _ in range(rng.randrange(1, 5)))
        cut = rng.randrange(len(sent) + 1)
        for part in (sent[:cut], sent[cut:]):
            wire.connection.data_received(part)
            if rng.random() < 0.5:
                wire.loop.run()
        trouble(rng, wire)
    for connection, _ in ends:
        connection.connection_lost(None)
    wire.loop.run()
    shared = wire.shared
    assert shared.streams_held == shared.counters.streams_open == 0
    assert shared.unsent.held == shared.budget.held == shared.resting == 0
    assert not shared.budget.waiting
    assert shared.counters.handler_errors == 0
    assert all(handler.aborts <= 1 for handler in wire.service.handlers)
