"""What the API server has said about readers, for as long as it may be repeated. Pure: time is
handed in.

A yes counts for a minute, so that a scraper costs two calls a minute; a no for 5 s, so that a right
that was just given is soon seen. While the API server is away an old yes counts for 5 minutes.
"""

from typing import Final, Generic, TypeVar

POSITIVE_SECONDS: Final = 60.0
NEGATIVE_SECONDS: Final = 5.0
AWAY_SECONDS: Final = 300.0
"""An old yes counts this long from when it was given, if nobody can be asked."""

MOST: Final = 1024
"""Answers that are kept, of each sign. The oldest goes; no number of bad tokens drives out a good
one, for they are kept apart."""

REVIEWS_PER_SECOND: Final = 20.0
REVIEWS_AT_ONCE: Final = 40.0
"""What readers whom the API server has not accepted before can make us ask of it."""

V = TypeVar("V")


class Answers(Generic[V]):
    """Answers by key, each a yes or a no."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._positive: dict[bytes, tuple[float, V]] = {}
        self._negative: dict[bytes, tuple[float, V]] = {}

    def __len__(self) -> int:
        return len(self._positive) + len(self._negative)

    def put(self, key: bytes, value: V, now: float, *, positive: bool) -> None:
        """Keep the latest answer."""
        self._positive.pop(key, None)
        self._negative.pop(key, None)
        kept = self._positive if positive else self._negative
        if len(kept) >= self._most:
            del kept[next(iter(kept))]
        kept[key] = (now, value)

    def fresh(self, key: bytes, now: float) -> V | None:
        """The answer, if nobody needs to be asked again."""
        found = self._within(self._positive, key, now, POSITIVE_SECONDS)
        return found or self._within(self._negative, key, now, NEGATIVE_SECONDS)

    def old(self, key: bytes, now: float) -> V | None:
        """The yes that counts while nobody can be asked."""
        return self._within(self._positive, key, now, AWAY_SECONDS)

    def _within(
        self, kept: dict[bytes, tuple[float, V]], key: bytes, now: float, seconds: float
    ) -> V | None:
        given = kept.get(key)
        return given[1] if given is not None and now - given[0] < seconds else None


class Pace:
    """A bucket of reviews that fills with time."""

    def __init__(
        self, per_second: float = REVIEWS_PER_SECOND, at_once: float = REVIEWS_AT_ONCE
    ) -> None:
        self._per_second = per_second
        self._most = at_once
        self._left = at_once
        self._since: float | None = None

    def take(self, now: float) -> bool:
        """Whether one more may be asked."""
        if self._since is not None:
            self._left = min(self._most, self._left + (now - self._since) * self._per_second)
        self._since = now
        if self._left < 1:
            return False
        self._left -= 1
        return True
