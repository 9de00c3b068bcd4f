"""Messages of the internal port to bytes and back. A damaged or newer message is a FormatError."""

from typing import Any, TypeVar

import msgspec

from fleet.control.messages import FORMAT, Down, MapUpdate, Up
from fleet.errors import FormatError

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
"""Bound on one message; a map of 10,000 groups takes about 2 MB."""

T = TypeVar("T")

_encoder = msgspec.msgpack.Encoder()
_up: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(Up)
_down: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(Down)
_map_update = msgspec.msgpack.Decoder(MapUpdate)


def encode(message: Down | Up | MapUpdate) -> bytes:
    """The message as it goes over the wire."""
    return _encoder.encode(message)


def _checked(format_number: int, message: T) -> T:
    if format_number > FORMAT + 1:
        raise FormatError(f"a message of format {format_number}; this version reads {FORMAT}")
    return message


def decode_up(data: bytes) -> Up:
    """What a worker sent. Raises FormatError."""
    message: Up = _decode(_up, data)
    return _checked(message.format, message)


def decode_down(data: bytes) -> Down:
    """What a leader sent. Raises FormatError."""
    message: Down = _decode(_down, data)
    return _checked(message.format, message)


def decode_map_update(data: bytes) -> MapUpdate:
    """What a leader pushed to a follower. Raises FormatError."""
    message: MapUpdate = _decode(_map_update, data)
    return _checked(message.format, message)


def _decode(decoder: msgspec.msgpack.Decoder[Any], data: bytes) -> Any:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise FormatError(f"unreadable message on the internal port: {error}") from error
