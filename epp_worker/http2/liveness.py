"""Is a silent peer still there? A pure rule, asked now and then by the shared timer."""

from enum import Enum, auto
from typing import Final

from epp_worker.http2.limits import Http2Limits

_LOOK_SECONDS: Final = 30.0
"""How often a connection is looked at where keep-alive is off."""


class Pulse(Enum):
    """The verdict."""

    FINE = auto()
    ASK = auto()
    """Send a PING."""
    DEAD = auto()


class Liveness:
    """Silence of one connection; seconds of one monotonic clock.

    Attributes:
        heard: set by the connection at every read: no clock is read on the hot path, so a
            silence is noticed after one to two `keepalive_seconds`.
        greeted: set once the preface and the peer's SETTINGS were right.
        due: when `check` must be called next.
    """

    __slots__ = ("_asked", "_limits", "due", "greeted", "heard")

    def __init__(self, limits: Http2Limits, now: float) -> None:
        self._limits = limits
        self._asked = False
        self.heard = False
        self.greeted = False
        self.due = now + limits.preface_seconds

    def check(self, now: float) -> Pulse:
        """The verdict, at or after `due`."""
        if now < self.due:
            return Pulse.FINE
        if not self.greeted:
            return Pulse.DEAD
        interval = self._limits.keepalive_seconds or _LOOK_SECONDS
        if self.heard or not self._limits.keepalive_seconds:
            self.heard = False
            self._asked = False
            self.due = now + interval
            return Pulse.FINE
        if self._asked:
            return Pulse.DEAD
        self._asked = True
        self.due = now + self._limits.keepalive_timeout_seconds
        return Pulse.ASK
