"""Requests whose stream has ended and that go on: how many of them an endpoint still has.

Nobody tells when such a request is over. What the model server says of itself does: it cannot have
more of them than it has requests in all, less those whose streams are open. So each is counted from
its pick on, and the oldest are let go as the server's own figures allow for fewer.
"""

import math
from collections import deque

ARRIVAL_SECONDS = 0.5
"""A request picked less than this before a scrape may not have reached the server's figures yet."""

MAX_SECONDS = 60.0
"""A server whose figures do not tell how many run has each of them for so long, and no longer."""


FORGET_SECONDS = 600.0
"""Nobody is believed to compute one answer for longer."""


class Detached:
    """The detached requests of one endpoint, by when they were picked."""

    __slots__ = ("_since",)

    def __init__(self) -> None:
        self._since: deque[float] = deque()

    def __len__(self) -> int:
        return len(self._since)

    def add(self, at: float) -> int:
        """One more; `at` is when it was detached, monotonic seconds, never falling.

        Returns how many are let go for their age: no scrape may come that says so.
        """
        since = self._since
        gone = 0
        while since and since[0] <= at - FORGET_SECONDS:
            since.popleft()
            gone += 1
        since.append(at)
        return gone

    def settle(
        self, *, at: float, running: float | None, waiting: float | None, tracked: int
    ) -> int:
        """Take a scrape that was asked for at `at`; returns how many are let go.

        Args:
            tracked: requests whose streams were open then.
        """
        since = self._since
        known = running is not None or waiting is not None
        edge = at - (ARRIVAL_SECONDS if known else MAX_SECONDS)
        old = 0
        for picked in since:
            if picked > edge:
                break
            old += 1
        if known:
            busy = math.ceil((running or 0.0) + (waiting or 0.0)) - tracked
            old -= min(old, max(0, busy))
        for _ in range(old):
            since.popleft()
        return old
