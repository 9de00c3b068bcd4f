"""A bound on frames that cost us work and bring the peer nothing."""

from collections.abc import Callable

from epp_worker.http2.bounds import Bound
from epp_worker.http2.errors import ConnectionFault, ErrorCode


class FloodGuard:
    """Counts events in windows of fixed length. The clock is read on those events only."""

    __slots__ = ("_bound", "_clock", "_count", "_limit", "_seconds", "_since")

    def __init__(
        self, bound: Bound, limit: int, seconds: float, clock: Callable[[], float]
    ) -> None:
        self._bound = bound
        self._limit = limit
        self._seconds = seconds
        self._clock = clock
        self._since = float("-inf")
        self._count = 0

    def hit(self, weight: int = 1) -> None:
        """One more, or one that costs as much as `weight` others.

        Raises:
            ConnectionFault: more than the limit within one window.
        """
        now = self._clock()
        if now - self._since >= self._seconds:
            self._since = now
            self._count = 0
        self._count += weight
        if self._count > self._limit:
            reason = f"too many {self._bound.replace('_', ' ')}"
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, reason, self._bound)
