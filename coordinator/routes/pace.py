"""How many requests may be under way at an API server: as many as it bears.

It says so itself: 429 halves the number and stops everything for as long as it asks for; each
answer that is none lets it grow back, by one for every whole number answered.
"""

from fleet.clock import Clock

MOST_PAUSE_SECONDS = 30.0
"""Whatever a server asks for, after this it is asked again."""


class Pace:
    """The pace of one client's writes.

    Attributes:
        throttled: how often we were told to slow down.
    """

    def __init__(self, most: int, clock: Clock) -> None:
        self._most = most
        self._clock = clock
        self._window = float(most)
        self._until = 0.0
        self.throttled = 0

    @property
    def in_flight(self) -> int:
        """How many may be under way now."""
        return max(1, int(self._window))

    def pause(self) -> float:
        """Seconds until the next request may be sent."""
        return max(0.0, self._until - self._clock.monotonic())

    def answered(self) -> None:
        """A request was answered, with whatever but 429."""
        self._window = min(float(self._most), self._window + 1.0 / self._window)

    def slow_down(self, seconds: float) -> None:
        """429: nothing is sent for `seconds`, and then less at once.

        Requests that were sent before the pause began are answered alike; they count as one.
        """
        self.throttled += 1
        seconds = min(seconds, MOST_PAUSE_SECONDS)
        if self.pause() == 0.0:
            self._window = max(1.0, self._window / 2)
        self._until = max(self._until, self._clock.monotonic() + seconds)
