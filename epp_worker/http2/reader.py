"""From bytes to frames: whole ones are handed on in place, and nobody reads longer than a turn.

One read of 256 KiB may hold 37,000 messages, which are 0.4 s of work. So a connection that has more
to do than fits into its share of the loop's turn stops there, reads nothing more from its socket,
and goes on in the next turn, after everybody else.
"""

import asyncio
from typing import Final

from epp_worker.http2 import frames
from epp_worker.http2.errors import ConnectionFault, ErrorCode, PrefaceFault
from epp_worker.http2.receiver import Receiver
from epp_worker.http2.shared import Shared

_TURN_SECONDS: Final = 0.00025
"""All connections that have more to do work this long, together, in one turn of the loop."""

_LEAST_SECONDS: Final = 0.0000625
"""But each at least this long: changing from one to the next costs something too."""

_NOTHING: Final = (b"", 0)

_LONG_FRAME: Final = 64
"""Bytes of a frame after which the clock is read; after shorter ones, only now and then."""


class FrameReader:
    """What a connection has received and not handled yet."""

    __slots__ = (
        "_connection",
        "_have",
        "_later",
        "_need",
        "_pieces",
        "_preface_seen",
        "_resting",
        "_shared",
        "_transport",
    )

    def __init__(self, connection: Receiver, shared: Shared, transport: asyncio.Transport) -> None:
        self._connection = connection
        self._shared = shared
        self._transport = transport
        self._preface_seen = False
        self._later = _NOTHING
        self._resting = False
        self._pieces: list[bytes] = []
        self._have = 0
        self._need = 0

    def gather(self, data: bytes) -> bytes | None:
        """What can be looked at now that `data` has come; None = not enough, or not our turn."""
        if self._resting:  # a transport may have had this read under way when we paused it
            self._pieces.append(data)
            return None
        if self._pieces:
            self._pieces.append(data)
            self._have += len(data)
            if self._have < self._need:
                return None
            data = b"".join(self._pieces)
            self._pieces.clear()
        return data

    def read(self, data: bytes, at: int) -> None:
        """Hand on the frames of data[at:], as far as they are whole and the turn lasts.

        Raises:
            ConnectionFault: the peer broke the protocol.
        """
        end = len(data)
        if not self._preface_seen:
            at = self._read_preface(data)
            if not at:
                return
        connection = self._connection
        need = frames.HEAD_BYTES
        now = self._shared.loop.time
        until = now() + max(_TURN_SECONDS / (1 + self._shared.resting), _LEAST_SECONDS)
        walked = 0
        while end - at >= frames.HEAD_BYTES:
            # Byte by byte: compiled code makes no object of them.
            size = data[at] << 16 | data[at + 1] << 8 | data[at + 2]
            if size > frames.MIN_MAX_FRAME:
                raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, f"frame of {size} bytes")
            start = at + frames.HEAD_BYTES
            stop = start + size
            if stop > end:
                need = stop - at
                break
            at = stop
            head = start - 4
            stream_id = (data[head] & 0x7F) << 24 | data[head + 1] << 16
            stream_id |= data[head + 2] << 8 | data[head + 3]
            connection.table[data[head - 2]](
                connection, data[head - 1], stream_id, data, start, stop
            )
            walked += 1
            if connection.again:
                again, connection.again = connection.again, b""
                self._rest(again + data[at:], 0)
                return
            if (size >= _LONG_FRAME or not walked & 15) and at < end and now() >= until:
                self._rest(data, at)
                return
        if at < end:
            self._keep(data[at:], need)

    def _read_preface(self, data: bytes) -> int:
        """Where frames begin; 0 if the preface is not complete."""
        size = len(frames.PREFACE)
        if data[:size] != frames.PREFACE[: len(data)]:
            raise PrefaceFault
        if len(data) < size:
            self._keep(data, size)
            return 0
        self._preface_seen = True
        return size

    def _keep(self, rest: bytes, need: int) -> None:
        """Hold what is no whole frame yet; nothing is looked at before `need` bytes are here."""
        self._pieces.append(rest)
        self._have = len(rest)
        self._need = need

    def _rest(self, data: bytes, at: int) -> None:
        """Let all others have their turn before the rest of what was read, data[at:]."""
        self._later = (data, at)
        self._resting = True
        self._shared.resting += 1
        self._transport.pause_reading()
        self._shared.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._shared.resting -= 1
        connection = self._connection
        if connection.closing:
            return
        (data, at), self._later = self._later, _NOTHING
        if self._pieces:
            data, at = b"".join((data[at:], *self._pieces)), 0
            self._pieces.clear()
        self._resting = False
        try:
            connection.work(data, at)
        except BaseException:
            # A transport closes a connection whose `data_received` fails; here nobody else would,
            # and nothing more would ever be read.
            self._transport.abort()
            raise
        if not self._resting and not connection.closing:
            self._transport.resume_reading()
