"""CPU of the transport alone, per stream: Envoy-like traffic through a connection without sockets.

    python -m tests.bench.transport [STREAMS] [IN_FLIGHT]

A stream is what an Envoy sends for a chat request in FULL_DUPLEX_STREAMED mode: HEADERS (one of
four blocks), a headers message (405 B), a body message (2 KiB), its empty end; two answers; a
response headers message, one answer; RST_STREAM. Bytes are made beforehand.
"""

import sys
import time

import hpack

from epp_worker.http2.contract import GrpcStream, StreamHandler
from epp_worker.http2.frames import PREFACE
from tests.http2_peer import ECHO, Wire, grpc, raw, request_headers

HEADERS_REPLY = bytes(120)
BODY_REPLY = bytes(2070)
RESPONSE_REPLY = bytes(10)


class Picker:
    """Answers like a picker, without thinking."""

    __slots__ = ("count", "stream")

    def __init__(self, stream: GrpcStream) -> None:
        self.stream = stream
        self.count = 0

    def received(self, message: bytes) -> None:
        """The third message completes the request, the fourth is the response's headers."""
        del message
        self.count += 1
        if self.count == 3:
            self.stream.send(HEADERS_REPLY, BODY_REPLY)
        elif self.count == 4:
            self.stream.send(RESPONSE_REPLY)

    def half_closed(self) -> None:
        """Envoy does not."""

    def aborted(self) -> None:
        """The normal end."""


def blocks() -> list[bytes]:
    """Four header blocks without a dynamic table."""
    encoder = hpack.Encoder()
    encoder.header_table_size = 0
    encoder.encode([])
    return [
        encoder.encode(request_headers(path=ECHO, extra=[("x-forwarded-for", f"10.0.0.{n}")]))
        for n in range(4)
    ]


def traffic(streams: int, in_flight: int) -> list[bytes]:
    """Reads of a socket: `in_flight` streams advance a step at a time."""
    heads = blocks()
    reads: list[bytes] = []
    first = grpc(bytes(405))
    body, empty, response = grpc(bytes(2048)), grpc(bytes(4)), grpc(bytes(300))
    for start in range(0, streams, in_flight):
        ids = [2 * n + 1 for n in range(start, min(start + in_flight, streams))]
        reads.append(
            b"".join(
                raw(1, 4, sid, heads[sid // 2 % 4])
                + raw(0, 0, sid, first)
                + raw(0, 0, sid, body)
                + raw(0, 0, sid, empty)
                for sid in ids
            )
        )
        reads.append(b"".join(raw(0, 0, sid, response) for sid in ids))
        sent = len(HEADERS_REPLY) + len(BODY_REPLY) + len(RESPONSE_REPLY) + 15
        grant = (sent * len(ids)).to_bytes(4, "big")
        reads.append(b"".join(raw(3, 0, sid, b"\0\0\0\x08") for sid in ids) + raw(8, 0, 0, grant))
    return reads


def main() -> None:
    """Print microseconds of CPU per stream, best of five."""
    streams = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    in_flight = int(sys.argv[2]) if len(sys.argv) > 2 else 16
    reads = traffic(streams, in_flight)
    best = float("inf")
    for _ in range(5):
        wire = Wire(services={ECHO: _service})
        wire.feed(PREFACE + raw(4, 0, 0) + raw(1, 5, 1, b"\x20" + blocks()[0]))
        wire.feed(raw(4, 1, 0) * 2)
        wire.connection.last_id = 0
        wire.connection.streams.clear()
        feed, written = wire.connection.data_received, wire.transport.written
        began = time.process_time()
        for read in reads:
            feed(read)
            written.clear()
        best = min(best, time.process_time() - began)
    sys.stdout.write(f"{best / streams * 1e6:.1f} us of CPU per stream, {in_flight} in flight\n")


def _service(stream: GrpcStream) -> StreamHandler:
    return Picker(stream)


if __name__ == "__main__":
    main()
