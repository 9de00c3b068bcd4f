"""How many requests may be under way at an API server: as many as it bears.

It says so itself: 429 halves the number and stops everything for as long as it asks for; each
answer that is none lets it grow back, by one for every whole number answered.
"""

from dataclasses import dataclass

from fleet.clock import Clock
from fleet.model import GroupKey

MOST_PAUSE_SECONDS = 30.0
"""Whatever a server asks for, after this it is asked again."""

SILENCE_PAUSE_SECONDS = 0.5
"""After a request without an answer."""

FIRST_SETBACK_SECONDS = 0.5
MOST_SETBACK_SECONDS = 10.0
"""Between two attempts at a group that fails; doubled each time."""

MAX_SETBACKS = 16_384


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
        self._stop(min(seconds, MOST_PAUSE_SECONDS))

    def silent(self) -> None:
        """No answer came: the server may be drowning, so it gets less."""
        self._stop(SILENCE_PAUSE_SECONDS)

    def _stop(self, seconds: float) -> None:
        if self.pause() == 0.0:
            self._window = max(1.0, self._window / 2)
        self._until = max(self._until, self._clock.monotonic() + seconds)


class Setbacks:
    """Groups whose last write failed: left alone for a while, for longer each time.

    The leader looks at what is missing several times a second; what cannot be written (a webhook
    that fails, somebody else's slice of the same name) must not become a stream of requests.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._of: dict[GroupKey, _Setback] = {}

    def message(self, group: GroupKey, wanted: object) -> str | None:
        """What went wrong, if `wanted` is what failed and it is too early to try again."""
        known = self._of.get(group)
        if known is None or known.wanted != wanted:
            return None
        return known.message if self._clock.monotonic() < known.again else None

    def failed(self, group: GroupKey, wanted: object, message: str) -> None:
        """It failed."""
        known = self._of.pop(group, None)
        same = known is not None and known.wanted == wanted
        wait = min(2 * known.wait, MOST_SETBACK_SECONDS) if known is not None and same else None
        wait = FIRST_SETBACK_SECONDS if wait is None else wait
        self._of[group] = _Setback(wanted, message, wait, self._clock.monotonic() + wait)
        if len(self._of) > MAX_SETBACKS:
            del self._of[next(iter(self._of))]

    def __len__(self) -> int:
        """How many groups failed last."""
        return len(self._of)

    def good(self, group: GroupKey) -> None:
        """It succeeded."""
        self._of.pop(group, None)


@dataclass(frozen=True, slots=True)
class _Setback:
    wanted: object
    message: str
    wait: float
    again: float
