"""Workers that ask for their share in whole, again and again on one stream. Pure.

They ask when a part does not fit what they have, which hardly ever happens: what is told on a
stream comes in order. Who asks more often reads parts otherwise than we write them, or means harm.
A whole is dear (20 kB for 200 groups), so its stream is told wholes alone from then on: then a
whole follows from what is new, and no longer from being asked for.
"""

from collections import deque

MOST = 5
"""So often within `SECONDS` is too often."""
SECONDS = 60.0


class AskedAgain:
    """One stream's worker."""

    def __init__(self) -> None:
        self._asked: deque[float] = deque(maxlen=MOST)

    def too_often(self, now: float) -> bool:
        """It asks at monotonic `now`; whether parts are no use to it."""
        self._asked.append(now)
        return len(self._asked) == MOST and now - self._asked[0] <= SECONDS
