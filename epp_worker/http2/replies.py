"""Header blocks that we send, ready made.

Nothing we send is ever put into a dynamic table, so most blocks are constants and any block may
be sent on any connection. A connection's very first block begins with `TABLE_SIZE_ZERO`.
"""

from dataclasses import dataclass
from typing import Final

TABLE_SIZE_ZERO: Final = b"\x20"
"""HPACK: dynamic table size update to 0 (RFC 7541, 6.3). Needed at the start of the first block
after a peer has lowered SETTINGS_HEADER_TABLE_SIZE; harmless at any block's start."""

MAX_GRPC_MESSAGE: Final = 1024
"""`grpc-message` is cut at this many bytes: trailers must fit the smallest frame and peers limit
their header lists (8 KiB in grpc-core)."""

_PLAIN = frozenset(range(0x20, 0x7F)) - {0x25}


def _length(value: int) -> bytes:
    """An HPACK integer with a 7-bit prefix and no Huffman bit."""
    if value < 127:
        return bytes((value,))
    parts = bytearray((127,))
    value -= 127
    while value >= 128:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def field(name: bytes, value: bytes) -> bytes:
    """A header field, literal, not indexed (RFC 7541, 6.2.2)."""
    return b"\x00" + _length(len(name)) + name + _length(len(value)) + value


def percent_encoded(message: str) -> bytes:
    """A status message as gRPC sends it: printable ASCII stays, the rest is %XX of UTF-8."""
    raw = message.encode("utf-8", "replace")[:MAX_GRPC_MESSAGE]
    return b"".join(b"%c" % byte if byte in _PLAIN else b"%%%02X" % byte for byte in raw)


_STATUS_200 = b"\x88"  # static table entry 8
_CONTENT_TYPE = b"\x0f\x10"  # literal not indexed, name = static entry 31

ENCODINGS: Final = ("identity", "gzip")
"""How the messages that we take may be compressed."""

RESPONSE_HEADERS: Final = (
    _STATUS_200
    + _CONTENT_TYPE
    + b"\x10application/grpc"
    + field(b"grpc-accept-encoding", ",".join(ENCODINGS).encode())
)

_TRAILERS: Final = tuple(field(b"grpc-status", b"%d" % code) for code in range(17))


@dataclass(frozen=True, slots=True)
class Refusal:
    """The plain HTTP answer to a request that is no gRPC call."""

    block: bytes
    body: bytes


def _refusal(status: bytes, text: bytes, *more: bytes) -> Refusal:
    length = field(b"content-length", b"%d" % len(text))
    kind = field(b"content-type", b"text/plain; charset=utf-8")
    return Refusal(b"".join((field(b":status", status), kind, length, *more)), text)


_PORT: Final = b"This port is for gateways: it speaks gRPC (ext_proc) over HTTP/2. "

NOT_GRPC: Final = _refusal(b"415", _PORT + b"The content type must be application/grpc.\n")
NOT_POST: Final = _refusal(
    b"405", _PORT + b"Metrics and state are on worker.http_port.\n", field(b"allow", b"POST")
)
NOT_POST_HEAD: Final = Refusal(NOT_POST.block, b"")

HTTP_1: Final = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"connection: close\r\ncontent-length: %d\r\n\r\n%s" % (len(NOT_POST.body), NOT_POST.body)
)
"""To a client that speaks HTTP/1."""


def trailers(status: int, message: str) -> bytes:
    """The block that ends a call after its headers were sent."""
    block = _TRAILERS[status]
    return block + field(b"grpc-message", percent_encoded(message)) if message else block


def trailers_only(status: int, message: str) -> bytes:
    """The one block of a call that ends before any answer."""
    return RESPONSE_HEADERS + trailers(status, message)
