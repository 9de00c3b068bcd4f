"""What one stream has to send and no window admits yet."""

import struct
from collections import deque
from collections.abc import Sequence
from typing import Final

_CRUMB: Final = 256
_CRUMBS: Final = 16_384
"""Shorter messages that must wait are put together up to the other size: each for itself would take
five times its bytes."""

_pack_prefix: Final = struct.Struct(">BI").pack


class SendQueue:
    """Bytes in order. Messages keep the objects they came as; nothing is copied before it goes.

    Most streams never queue anything: the deque, 0.6 kB even when it is empty, is made when needed.
    """

    __slots__ = ("_pieces",)

    def __init__(self) -> None:
        self._pieces: deque[bytes | bytearray | memoryview] | None = None

    def add(self, data: bytes) -> None:
        """Queue bytes as they are."""
        self._made().append(data)

    def add_messages(self, messages: Sequence[bytes]) -> None:
        """Queue gRPC messages, each with its prefix."""
        pieces = self._made()
        for message in messages:
            prefix = _pack_prefix(0, len(message))
            if len(message) >= _CRUMB:
                pieces.append(prefix)
                pieces.append(message)
            elif pieces and type(last := pieces[-1]) is bytearray and len(last) < _CRUMBS:
                last += prefix
                last += message
            else:
                pieces.append(bytearray(prefix + message))

    def take(self, size: int) -> bytes:
        """Remove the next `size` bytes, which must be there."""
        pieces = self._made()
        parts: list[bytes | bytearray | memoryview] = []
        while size:
            piece = pieces[0]
            if len(piece) <= size:
                parts.append(piece)
                pieces.popleft()
                size -= len(piece)
            else:
                rest = memoryview(piece)
                parts.append(rest[:size])
                pieces[0] = rest[size:]
                size = 0
        return b"".join(parts)

    def clear(self) -> None:
        """Forget everything."""
        self._pieces = None

    def _made(self) -> "deque[bytes | bytearray | memoryview]":
        pieces = self._pieces
        if pieces is None:
            pieces = self._pieces = deque()
        return pieces
