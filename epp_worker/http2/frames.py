"""HTTP/2 frames as bytes (RFC 9113, section 4 and 6): the numbers, and builders for what we send.

Reading is done in place by `reader`, on the buffer that the socket gave us: no object is made per
frame.
"""

import struct
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""What every client says first (RFC 9113, 3.4)."""

HEAD_BYTES: Final = 9
"""Length of a frame's head."""

DATA: Final = 0
HEADERS: Final = 1
PRIORITY: Final = 2
RST_STREAM: Final = 3
SETTINGS: Final = 4
PUSH_PROMISE: Final = 5
PING: Final = 6
GOAWAY: Final = 7
WINDOW_UPDATE: Final = 8
CONTINUATION: Final = 9

FLAG_ACK: Final = 0x1
FLAG_END_STREAM: Final = 0x1
FLAG_END_HEADERS: Final = 0x4
FLAG_PADDED: Final = 0x8
FLAG_PRIORITY: Final = 0x20

MIN_MAX_FRAME: Final = 16_384
"""The smallest SETTINGS_MAX_FRAME_SIZE there is; also what we accept."""

MAX_MAX_FRAME: Final = 16_777_215
"""The largest SETTINGS_MAX_FRAME_SIZE there is."""

MAX_WINDOW: Final = 0x7FFF_FFFF
"""No flow-control window may pass this (RFC 9113, 6.9.1)."""

DEFAULT_TABLE_SIZE: Final = 4096
"""HPACK table size before anybody said otherwise."""

DEFAULT_WINDOW: Final = 65_535
"""Every window's size before anybody said otherwise."""

KEEPALIVE_PING: Final = b"\x00epp-ka\x00"
GOAWAY_PING: Final = b"\x00epp-ga\x00"
"""Opaque bytes of our own PINGs."""

MAX_STREAM_ID: Final = 0x7FFF_FFFF

read_u32: Final = struct.Struct(">I").unpack_from
read_setting: Final = struct.Struct(">HI").unpack_from
pack_u32: Final = struct.Struct(">I").pack

_pack_head: Final = struct.Struct(">BHBBI").pack
_pack_u32_frame: Final = struct.Struct(">BHBBII").pack
_pack_setting: Final = struct.Struct(">HI").pack


def frame_head(length: int, kind: int, flags: int, stream_id: int) -> bytes:
    """The nine bytes before a payload of `length` bytes."""
    return _pack_head(length >> 16, length & 0xFFFF, kind, flags, stream_id)


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    """A whole frame."""
    return frame_head(len(payload), kind, flags, stream_id) + payload


def rst_stream(stream_id: int, code: int) -> bytes:
    """RST_STREAM with an error code."""
    return _pack_u32_frame(0, 4, RST_STREAM, 0, stream_id, code)


def window_update(stream_id: int, increment: int) -> bytes:
    """WINDOW_UPDATE; stream 0 is the connection."""
    return _pack_u32_frame(0, 4, WINDOW_UPDATE, 0, stream_id, increment)


def goaway(last_stream_id: int, code: int, reason: str = "") -> bytes:
    """GOAWAY; `reason` is debug data for whoever reads the peer's log."""
    payload = pack_u32(last_stream_id) + pack_u32(code) + reason.encode("ascii", "replace")[:256]
    return frame(GOAWAY, 0, 0, payload)


def ping(opaque: bytes, *, ack: bool = False) -> bytes:
    """PING with its eight opaque bytes."""
    return frame(PING, FLAG_ACK if ack else 0, 0, opaque)


def settings(values: dict[int, int]) -> bytes:
    """SETTINGS with the given identifiers and values."""
    payload = b"".join(_pack_setting(name, value) for name, value in values.items())
    return frame(SETTINGS, 0, 0, payload)


SETTINGS_ACK: Final = frame(SETTINGS, FLAG_ACK, 0)
