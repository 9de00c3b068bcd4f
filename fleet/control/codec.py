"""Messages of the internal port to bytes and back. A damaged or newer message is a FormatError.

A format that is too new is told by its number, whatever else of the message cannot be read.
"""

import contextlib
from collections.abc import Collection
from typing import Any, TypeVar, get_args

import msgspec

from fleet.control.messages import FORMAT, Down, MapUpdate, Unknown, Up, WatchMap
from fleet.errors import FormatError

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
"""Bound on one message; a map of 10,000 groups takes about 2 MB."""

T = TypeVar("T")


class _Numbered(msgspec.Struct, frozen=True):
    """Of any message of any version, what tells whether the rest is meant for us."""

    format: int = FORMAT


_encoder = msgspec.msgpack.Encoder()
_up: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(Up)
_down: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(Down)
_kind = msgspec.msgpack.Decoder(Unknown)
_numbered = msgspec.msgpack.Decoder(_Numbered)
_KNOWN = frozenset(str(kind.__struct_config__.tag) for kind in (*get_args(Up), *get_args(Down)))
_map_update = msgspec.msgpack.Decoder(MapUpdate)
_watch_map = msgspec.msgpack.Decoder(WatchMap)


def encode(message: Down | Up | MapUpdate | WatchMap) -> bytes:
    """The message as it goes over the wire."""
    return _encoder.encode(message)


def checked(format_number: int, message: T) -> T:
    """The message, if this version reads its format. Raises FormatError."""
    if not 1 <= format_number <= FORMAT + 1:
        raise FormatError(
            f"a message of format {format_number}; this version (format {FORMAT}) reads formats "
            f"1 to {FORMAT + 1}"
        )
    return message


def decode_up(data: bytes) -> Up | Unknown:
    """What a worker sent. Raises FormatError."""
    message: Up | Unknown = either_with(_up, data, _KNOWN)
    return checked(message.format, message)


def decode_down(data: bytes) -> Down | Unknown:
    """What a leader sent. Raises FormatError."""
    message: Down | Unknown = either_with(_down, data, _KNOWN)
    return checked(message.format, message)


def decode_map_update(data: bytes) -> MapUpdate:
    """What a leader pushed to a follower. Raises FormatError."""
    message: MapUpdate = decode_with(_map_update, data)
    return checked(message.format, message)


def decode_watch_map(data: bytes) -> WatchMap:
    """What a follower asked for; version N-1 says nothing, and asks for no parts.

    Raises FormatError.
    """
    if not data:
        return WatchMap()
    request: WatchMap = decode_with(_watch_map, data)
    return checked(request.format, request)


def either_with(decoder: msgspec.msgpack.Decoder[Any], data: bytes, known: Collection[str]) -> Any:
    """A message of a kind that we know, or of one that a later version has added.

    Args:
        known: tags of the kinds that the decoder reads.

    Raises:
        FormatError: damaged.
    """
    try:
        return decode_with(decoder, data)
    except FormatError:
        message: Unknown = decode_with(_kind, data)
        if message.type in known:
            raise
        return message


def decode_with(decoder: msgspec.msgpack.Decoder[Any], data: bytes) -> Any:
    """A message of one kind. Raises FormatError."""
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        with contextlib.suppress(msgspec.DecodeError, RecursionError):
            number = _numbered.decode(data)
            checked(number.format, number)
        raise FormatError(f"unreadable message on the internal port: {error}") from error
