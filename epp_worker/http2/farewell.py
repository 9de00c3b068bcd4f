"""When a connection that is to go away may go: a pure state machine.

Two GOAWAYs (RFC 9113, 6.8): the first names the highest possible stream, so that a client moves
elsewhere while nothing it has under way is lost; the second, one round trip later, names the
last stream that was really taken.
"""

import math
from enum import Enum, auto

from epp_worker.http2.limits import Http2Limits


class Step(Enum):
    """What the connection is to do now."""

    NOTHING = auto()
    ANNOUNCE = auto()
    """GOAWAY with stream 2^31-1, then PING."""
    FINISH = auto()
    """GOAWAY with the real last stream."""
    CLOSE = auto()
    """Nothing is left to wait for."""


class Farewell:
    """Phases of one connection. Times are seconds of one monotonic clock.

    Attributes:
        final: the last GOAWAY was sent: newer streams are not taken.
        due: when `check` must be called next; `math.inf` for never.
    """

    __slots__ = ("_announced", "_close_at", "_empty_at", "_limits", "due", "final")

    def __init__(self, limits: Http2Limits) -> None:
        self._limits = limits
        self._announced = False
        self._close_at = math.inf
        self._empty_at = math.inf
        self.final = False
        self.due = math.inf

    @property
    def begun(self) -> bool:
        """Whether this connection is going away."""
        return self._announced

    def begin(self, now: float) -> Step:
        """Go away; again is no step."""
        if self._announced:
            return Step.NOTHING
        self._announced = True
        self.due = now + self._limits.goaway_ping_seconds
        return Step.ANNOUNCE

    def round_trip(self, now: float, open_streams: int) -> Step:
        """The PING after the first GOAWAY was answered."""
        if not self._announced or self.final:
            return Step.NOTHING
        self._finish(now, open_streams)
        return Step.FINISH

    def emptied(self, now: float) -> None:
        """The last open stream is done."""
        if self.final:
            self._empty_at = now + self._limits.farewell_seconds
            self.due = min(self._close_at, self._empty_at)

    def check(self, now: float, open_streams: int) -> Step:
        """What is due."""
        if now < self.due:
            return Step.NOTHING
        if not self.final:
            return self.round_trip(now, open_streams)
        if now >= self._close_at or (now >= self._empty_at and not open_streams):
            self.due = math.inf
            return Step.CLOSE
        self.due = self._close_at
        return Step.NOTHING

    def _finish(self, now: float, open_streams: int) -> None:
        if not self.final:
            self.final = True
            self._close_at = now + self._limits.drain_seconds
            self.due = self._close_at
            if not open_streams:
                self.emptied(now)
