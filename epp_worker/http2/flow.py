"""The way out of a connection: batching, the send windows, and who goes next.

What one turn of the loop produces leaves in one write. DATA that no window admits waits at its
stream, and the streams that could send but for the connection's window (or for a full socket)
stand in one round-robin line, one frame at a time each.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from typing import Final

from epp_worker.http2 import frames
from epp_worker.http2.errors import ConnectionFault, ErrorCode
from epp_worker.http2.timers import Loop

_WRITE_BYTES: Final = 256 * 1024
"""Queued DATA is handed to the socket in pieces of about this size, so that a full socket is
noticed before all of it has been copied."""

_PUMPED_PER_TURN: Final = 2 * _WRITE_BYTES
"""Queued DATA of one connection in one turn of the loop: a socket on loopback takes 4 MiB at once,
which is 4 ms."""


class Unsent:
    """Bytes that wait in all connections of a server, whoever makes us hold them."""

    __slots__ = ("held", "limit", "relieving")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        self.relieving = False
        """Somebody is being cut off already."""


class Sender(ABC):
    """A stream with queued DATA, as the line sees it."""

    __slots__ = ("in_line", "queued", "stream_id", "window")

    stream_id: int
    window: int
    queued: int
    in_line: bool

    @abstractmethod
    def take(self, size: int) -> bytes:
        """Remove the next `size` queued bytes."""

    @abstractmethod
    def drained(self) -> None:
        """Nothing is queued any more: whatever ends the stream may follow."""


class Outbox:
    """All bytes of one connection, on their way to the transport.

    Attributes:
        window: the peer's connection window, bytes.
        crest: its highest value so far.
        max_frame: the peer's SETTINGS_MAX_FRAME_SIZE.
        queued: bytes that wait at streams; changed by `hold` alone.
        paused: the socket is full.
        due: a flush will happen in this turn of the loop.
    """

    __slots__ = (
        "_frames",
        "_limit",
        "_line",
        "_loop",
        "_noted",
        "_pumping",
        "_transport",
        "_unsent",
        "crest",
        "due",
        "max_frame",
        "paused",
        "queued",
        "window",
    )

    def __init__(
        self, transport: asyncio.Transport, loop: Loop, limit: int, unsent: Unsent
    ) -> None:
        self._transport = transport
        self._loop = loop
        self._limit = limit
        self._frames: list[bytes] = []
        self._line: deque[Sender] = deque()
        self._unsent = unsent
        self._noted = 0
        self._pumping = False
        self.paused = False
        self.due = False
        self.window = self.crest = frames.DEFAULT_WINDOW
        self.max_frame = frames.MIN_MAX_FRAME
        self.queued = 0

    @property
    def held(self) -> int:
        """Bytes that this peer makes us hold, as far as the whole server's bound knows."""
        return self.queued + self._noted

    def hold(self, size: int) -> None:
        """`size` more bytes wait at streams, or fewer."""
        self.queued += size
        self._unsent.held += size

    def note_buffer(self) -> None:
        """Count what a full socket's buffer holds; an emptying one is not worth counting."""
        size = self._transport.get_write_buffer_size() if self.paused else 0
        self._unsent.held += size - self._noted
        self._noted = size

    def put(self, data: bytes) -> None:
        """Send one or more whole frames with this turn's write."""
        self._frames.append(data)
        if not self.due:
            self.due = True
            self._loop.call_soon(self.flush)

    def admits(self, size: int) -> bool:
        """Whether `size` bytes of DATA may go now as far as the connection is concerned."""
        return size <= self.window and not self._line and not self.paused

    def flush(self) -> None:
        """Write all that was put."""
        self.due = False
        if self._frames:
            data = b"".join(self._frames)
            self._frames.clear()
            if not self._transport.is_closing():  # it may be broken already, which we hear of soon
                self._transport.write(data)

    def overfull(self) -> bool:
        """Whether the peer makes us hold more than the connection's bound."""
        return self.queued + self._transport.get_write_buffer_size() > self._limit

    def enqueue(self, sender: Sender) -> None:
        """Put a stream that has DATA queued and a window open into the line."""
        if sender.queued and sender.window > 0 and not sender.in_line:
            sender.in_line = True
            self._line.append(sender)

    def pump(self) -> None:
        """Send queued DATA, a frame of each stream in turn, as far as windows, socket and this turn
        of the loop go."""
        if self._pumping:
            return
        line = self._line
        unwritten = pumped = 0
        while line and self.window > 0 and not self.paused:
            sender = line.popleft()
            sender.in_line = False
            size = min(self.max_frame, self.window, sender.window, sender.queued)
            if size <= 0:
                continue
            self.window -= size
            self.hold(-size)
            sender.window -= size
            self.put(frames.frame_head(size, frames.DATA, 0, sender.stream_id))
            self.put(sender.take(size))
            if sender.queued:
                self.enqueue(sender)
            else:
                sender.drained()
            unwritten += size
            if unwritten >= _WRITE_BYTES:
                unwritten = 0
                due = self.due
                self.flush()
                self.due = due
                pumped += _WRITE_BYTES
                if pumped >= _PUMPED_PER_TURN and line:
                    self._pumping = True
                    self._loop.call_soon(self._pump_on)
                    return

    def _pump_on(self) -> None:
        self._pumping = False
        self.pump()

    def grant(self, increment: int) -> None:
        """The peer opens the connection's window.

        Raises:
            ConnectionFault: by nothing, or beyond 2^31-1.
        """
        if not increment:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE of 0")
        if self.window + increment > frames.MAX_WINDOW:
            raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "connection window over 2^31-1")
        self.window += increment
        self.pump()

    def pause(self) -> None:
        """The socket is full."""
        self.paused = True

    def resume(self) -> None:
        """The socket has room again."""
        self.paused = False
        self.note_buffer()
        self.pump()

    def close(self) -> None:
        """Forget everything that waits, and send nothing any more: of a connection that is gone,
        handlers may still answer until they are told."""
        self.due = self.paused = True
        self._frames.clear()
        self._line.clear()
        self.hold(-self.queued)
        self._unsent.held -= self._noted
        self._noted = 0


class ReceiveWindow:
    """What the peer may still send us; refilled when half of it is used.

    Half of the smallest window allowed (65,535) is more than the largest frame we take, and what
    arrives is consumed at once: so nobody can overrun one of ours, and there is no check but while
    a peer is held back.
    """

    __slots__ = ("_held_back", "_left", "_owed", "_size")

    def __init__(self, size: int) -> None:
        self._size = size
        self._left = size
        self._held_back = False
        self._owed = 0

    def hold_back(self, *, on: bool) -> int:
        """Grant nothing any more, or again; the increment to grant now, 0 for none."""
        self._held_back = on
        if on:
            return 0
        owed, self._owed = self._owed, 0
        return owed

    def untake(self, size: int) -> None:
        """`size` bytes will be taken once more."""
        self._left += size

    def take(self, size: int) -> int:
        """Account for `size` received bytes; the increment to grant now, 0 for none yet.

        -1: the peer has sent more than it may while it was held back.
        """
        left = self._left - size
        if left * 2 >= self._size:
            self._left = left
            return 0
        self._left = self._size
        if self._held_back:
            self._owed += self._size - left
            return -1 if self._owed > self._size else 0
        return self._size - left
