"""gRPC messages out of a stream of bytes: flag, length, message, again and again."""

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from epp_worker.http2 import frames
from epp_worker.http2.bounds import Bound
from epp_worker.http2.statuses import INTERNAL, NO_ROOM, RESOURCE_EXHAUSTED

_GZIP: Final = 16 + zlib.MAX_WBITS
"""zlib: with gzip's header and checksum."""

_MOST_RATIO: Final = 64
_INFLATED_FREELY: Final = 1024 * 1024
"""Longer messages may inflate to so many times their length. Text comes to 3 to 20 times; a bomb of
16 kB that came to 16 MiB would stop the loop for 50 ms, again and again."""

_PREFIX_BYTES: Final = 5
_read_prefix: Final = struct.Struct(">BI").unpack_from
_pack_prefix: Final = struct.Struct(">BI").pack
_pack_heads: Final = struct.Struct(">BHBBIBI").pack
"""Head of a DATA frame and of the first gRPC message in it."""


def data_frame(stream_id: int, messages: Sequence[bytes], size: int) -> bytes:
    """A DATA frame of whole messages, one at least, which come to `size` with their prefixes."""
    first = messages[0]
    high, low = size >> 16, size & 0xFFFF
    heads = _pack_heads(high, low, frames.DATA, 0, stream_id, 0, len(first))
    if len(messages) == 1:
        return heads + first
    parts = [heads, first]
    for message in messages[1:]:
        parts += (_pack_prefix(0, len(message)), message)
    return b"".join(parts)


class MessageFault(Exception):
    """The call cannot go on. Never leaves the stream.

    Attributes:
        status: the gRPC status that the client gets.
        bound: what it ran into, if it was a bound.
    """

    def __init__(self, status: int, reason: str, bound: Bound | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.bound = bound


class Waiting(Protocol):
    """Who waits for the rest of a message."""

    def starve(self) -> None:
        """End, and let go of what is held: others need the room."""
        ...


class MessageBudget:
    """What unfinished messages may hold, one message and a whole server; bytes.

    Attributes:
        waiting: those who hold a part of one; who has received nothing for longest comes first.
    """

    __slots__ = ("held", "max_held", "max_message", "waiting")

    def __init__(self, max_message: int, max_held: int) -> None:
        self.max_message = max_message
        self.max_held = max_held
        self.held = 0
        self.waiting: dict[Waiting, None] = {}

    def make_room(self, size: int, asking: Waiting) -> None:
        """Have those give up who wait longest, until `size` more bytes fit; never `asking`."""
        self.waiting.pop(asking, None)
        while self.waiting and self.held + size > self.max_held:
            idlest = next(iter(self.waiting))
            del self.waiting[idlest]
            idlest.starve()


class Assembler:
    """One stream's unfinished message. Each byte of it is copied twice, however it arrives.

    Attributes:
        inflated: bytes that compressed messages of the last `feed` came to so far.
    """

    __slots__ = ("_at", "_budget", "_buffer", "_data", "_direct", "_gzip", "_need", "inflated")

    def __init__(self, budget: MessageBudget, *, gzip: bool = False) -> None:
        self._budget = budget
        self._gzip = gzip
        self.inflated = 0
        self._buffer: bytearray | None = None
        self._need = 0
        self._data = b""
        self._at = 0
        self._direct = True

    @property
    def partial(self) -> bool:
        """Whether bytes of an unfinished message are held."""
        return self._buffer is not None

    def whole(self, data: bytes, start: int, end: int) -> bytes | None:
        """The message, if data[start:end] is exactly one, as nearly all frames of an Envoy are, and
        nothing is held; None = see `feed`."""
        size = end - start - _PREFIX_BYTES
        if size < 0 or self._buffer is not None or size > self._budget.max_message:
            return None
        told = data[start + 1] << 24 | data[start + 2] << 16
        told |= data[start + 3] << 8 | data[start + 4]
        return data[start + _PREFIX_BYTES : end] if not data[start] and told == size else None

    def feed(self, data: bytes, start: int, end: int) -> Iterator[bytes]:
        """The messages completed by data[start:end]; stop early and the rest is dropped.

        Raises:
            MessageFault: not to be inflated, too large, no budget, or no gRPC framing at all.
        """
        self.inflated = 0
        self._direct = self._buffer is None
        if self._buffer is not None:
            self._hold(data, start, end)
            if len(self._buffer) < self._need:
                return
            data = bytes(self._buffer)
            start, end = 0, len(data)
            self.clear()
        while end - start >= _PREFIX_BYTES:
            flag, size = _read_prefix(data, start)
            if flag or size > self._budget.max_message:
                self._check(flag, size)
            after = start + _PREFIX_BYTES + size
            if after > end:
                break
            self._data, self._at = data, after
            message = data[start + _PREFIX_BYTES : after]
            yield self._inflate(message) if flag else message
            start = after
        self._data = b""
        if start < end:
            self._hold(data, start, end)

    def cut_short(self, end: int) -> bytes:
        """What of a feed that was stopped early has not been looked at.

        Args:
            end: as it was given to `feed`.
        """
        data, self._data = self._data, b""
        return data[self._at : end if self._direct else len(data)]

    def clear(self) -> None:
        """Let go of what is held."""
        if self._buffer is not None:
            self._budget.held -= len(self._buffer)
            self._buffer = None

    def _hold(self, data: bytes, start: int, end: int) -> None:
        budget = self._budget
        if budget.held + end - start > budget.max_held:
            self.clear()
            raise MessageFault(RESOURCE_EXHAUSTED, NO_ROOM, Bound.PARTIAL_MESSAGES)
        buffer = self._buffer
        if buffer is None:
            buffer = self._buffer = bytearray()
            self._need = _PREFIX_BYTES
        budget.held += end - start
        buffer += memoryview(data)[start:end]
        if self._need == _PREFIX_BYTES and len(buffer) >= _PREFIX_BYTES:
            flag, size = _read_prefix(buffer)
            if flag or size > budget.max_message:
                self._check(flag, size)
            self._need = _PREFIX_BYTES + size

    def _check(self, flag: int, size: int) -> None:
        if flag > 1:
            self.clear()
            raise MessageFault(INTERNAL, "not gRPC framing")
        if flag and not self._gzip:
            self.clear()
            raise MessageFault(INTERNAL, "a compressed message on a stream without grpc-encoding")
        if size > self._budget.max_message:
            self.clear()
            raise self._too_large(f"message of {size} bytes")

    def _inflate(self, message: bytes) -> bytes:
        """Never more than a message may have, whatever the peer packed."""
        most = min(self._budget.max_message, max(_INFLATED_FREELY, _MOST_RATIO * len(message)))
        unpack = zlib.decompressobj(_GZIP)
        try:
            whole = unpack.decompress(message, most + 1)
        except zlib.error:
            raise MessageFault(INTERNAL, "a message is not gzip") from None
        if len(whole) > most:
            raise self._too_large("inflated message")
        if not unpack.eof or unpack.unused_data:
            raise MessageFault(INTERNAL, "a message is not one whole gzip member")
        self.inflated += len(whole)
        return whole

    def _too_large(self, what: str) -> MessageFault:
        reason = f"{what} over {self._budget.max_message}"
        return MessageFault(RESOURCE_EXHAUSTED, reason, Bound.MESSAGE)
