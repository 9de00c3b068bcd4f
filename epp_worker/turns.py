"""Whose messages are read next: no group takes more than its share of a turn of the loop.

Reading frames is cheap, reading what is in them is not: a body of 64 KiB takes 0.3 ms. Gateways put
the streams of all their pools on one connection, so that a pool which floods it would delay all
others by everything it has under way. Hence what a group has too much in one turn waits here, in a
line of its own, and the lines take turns.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from epp_worker.http2.contract import GrpcStream, StreamHandler

log = logging.getLogger(__name__)

INTERNAL: Final = 13

SHARE_BYTES: Final = 32 * 1024
"""What a group may have read at once in one turn; the message that passes it is the last one."""

MESSAGE_BYTES: Final = 1024
"""What a message costs beside its own bytes, as time goes."""

TURN_SECONDS: Final = 0.0001
"""All lines together work this long in one turn, and never less than one message. A turn beside a
flood of 64 KiB bodies takes 0.46 ms with this (p99); 0.59, and 5 % more bodies, with twice it."""

AT_ONCE_SECONDS: Final = 0.00025
"""So far into a turn messages are read at once; later ones wait in their lines. The last message of
a body of 10 MiB takes 10 ms, and there may be one of each connection."""

LONG_SECONDS: Final = 0.002
"""After a turn that took so much longer the lines leave out one, so that timers and sockets come
between two messages of that kind."""

MAX_HELD_BYTES: Final = 64 * 1024 * 1024
"""All that may wait, half of it in one line. What comes beyond is read at once: late is better than
lost, and whoever sent so much has used up all its own windows."""

_HELD_BACK_BYTES: Final = 256 * 1024
"""A stream that has more waiting is let send only what its window has left."""


class Line:
    """A group's messages that wait, and what it has had in this turn. For `Turns` to change."""

    __slots__ = ("had", "held", "turn", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[PacedStream] = deque()
        self.held = 0
        self.turn = 0
        self.had = 0


class Turns:
    """All lines of a worker.

    Args:
        call_soon: the loop's.
        now: seconds, monotonic.

    Attributes:
        held: bytes that wait.
        deferred: messages that had to wait, ever.
    """

    __slots__ = (
        "_call_soon",
        "_due",
        "_left_out",
        "_lines",
        "_now",
        "_turn",
        "_until",
        "deferred",
        "held",
    )

    def __init__(
        self, call_soon: Callable[[Callable[[], None]], object], now: Callable[[], float]
    ) -> None:
        self._call_soon = call_soon
        self._now = now
        self._lines: deque[Line] = deque()
        self._turn = 0
        self._until = 0.0
        self._due = False
        self._left_out = False
        self.held = 0
        self.deferred = 0

    def pace(self, stream: GrpcStream, line: Line, inner: StreamHandler) -> "PacedStream":
        """A handler that passes a stream's messages on to `inner` as its line comes to them."""
        return PacedStream(self, stream, line, inner)

    def admits(self, line: Line, size: int) -> bool:
        """Whether a message may be read at once."""
        now = self._now()
        if not self._due:
            self._begin(now)
        if line.turn != self._turn:
            line.turn = self._turn
            line.had = 0
        had = line.had
        line.had = had + size + MESSAGE_BYTES
        return had < SHARE_BYTES and now < self._until and not line.waiting

    def has_room(self, line: Line, size: int) -> bool:
        """Whether a message may wait."""
        return self.held + size <= MAX_HELD_BYTES and line.held + size <= MAX_HELD_BYTES // 2

    def wait(self, line: Line, waiting: "PacedStream", size: int) -> None:
        """One more message of a stream waits."""
        if not line.waiting:
            self._lines.append(line)
        line.waiting.append(waiting)
        self.hold(line, size)
        self.deferred += 1

    def hold(self, line: Line, size: int) -> None:
        """`size` more bytes wait, or fewer."""
        line.held += size
        self.held += size

    def _begin(self, now: float) -> None:
        self._due = True
        self._turn += 1
        self._until = now + AT_ONCE_SECONDS
        self._call_soon(self._run)

    def _run(self) -> None:
        self._due = False
        lines = self._lines
        if not lines:
            return
        now = self._now()
        # Never two in a row: on a machine that is always slow the lines must go on too.
        self._left_out = not self._left_out and now >= self._until + LONG_SECONDS
        self._begin(now)
        if self._left_out:
            return
        until = now + TURN_SECONDS
        while lines:
            line = lines.popleft()
            waiting = line.waiting.popleft()
            if line.waiting:  # first of all: whatever happens now, the line keeps its place
                lines.append(line)
            waiting.go_on()
            if self._now() >= until:
                break


class PacedStream:
    """A stream whose messages may wait. Their order never changes."""

    __slots__ = ("_held", "_held_back", "_inner", "_line", "_messages", "_stream", "_turns")

    def __init__(self, turns: Turns, stream: GrpcStream, line: Line, inner: StreamHandler) -> None:
        self._turns = turns
        self._stream = stream
        self._line = line
        self._inner = inner
        self._messages: deque[bytes | None] | None = None
        """What waits; None at its end is the client's own end."""
        self._held = 0
        self._held_back = False

    def received(self, message: bytes) -> None:
        """See `StreamHandler.received`."""
        size = len(message)
        if self._turns.admits(self._line, size) and not self._messages:
            self._inner.received(message)
        elif self._turns.has_room(self._line, size):
            self._wait(message, size)
        else:
            self._catch_up()
            self._inner.received(message)

    def half_closed(self) -> None:
        """See `StreamHandler.half_closed`."""
        if self._messages:
            self._wait(None, 0)
        else:
            self._inner.half_closed()

    def aborted(self) -> None:
        """See `StreamHandler.aborted`."""
        self._drop()
        self._inner.aborted()

    def go_on(self) -> None:
        """Pass on what has waited longest. The caller is the loop: nothing may be raised."""
        if not self._messages:
            return  # aborted, or caught up with
        try:
            self._next()
        except Exception as error:  # noqa: BLE001 - it must not reach the others
            # Not the error's text: it may quote a prompt.
            log.error("ext_proc session failed", extra={"error": type(error).__name__})
            self._drop()
            self._stream.end(INTERNAL, "internal error")
            self._inner.aborted()

    def _wait(self, message: bytes | None, size: int) -> None:
        if self._messages is None:
            self._messages = deque()
        self._messages.append(message)
        self._held += size
        self._turns.wait(self._line, self, size)
        if self._held > _HELD_BACK_BYTES and not self._held_back:
            self._held_back = True
            self._stream.hold_back(on=True)

    def _next(self) -> None:
        messages = self._messages
        if not messages:
            return
        message = messages.popleft()
        if message is None:
            self._inner.half_closed()
            return
        self._let_go(len(message))
        if self._held_back and self._held <= _HELD_BACK_BYTES:
            self._held_back = False
            self._stream.hold_back(on=False)
        self._inner.received(message)

    def _catch_up(self) -> None:
        while self._messages:
            self._next()

    def _drop(self) -> None:
        if self._messages:
            self._messages.clear()
        self._let_go(self._held)

    def _let_go(self, size: int) -> None:
        self._held -= size
        self._turns.hold(self._line, -size)
