"""How fast a list+watch asks, and what it does after each failure: pure but for the random source.

A failure is never answered at once twice in a row, waits are spread so that many processes do not
come back together, and what the API server asks for (Retry-After) is the least that is waited.
"""

import random
from dataclasses import dataclass
from typing import NamedTuple

from fleet.errors import KubeGone, KubeThrottled
from fleet.settings.model import KubernetesSettings

_DOUBLINGS = 16
"""More doublings than any cap needs; keeps the power small."""

_RESUMES = 2
"""So often in a row a throttled watch is resumed; then its objects are listed."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Sizes and intervals of list+watch.

    Attributes:
        page: objects a page.
        watch_seconds: how long the server keeps a watch.
        grace_seconds: how much later we cut it ourselves.
        relist_seconds: a full list at least this often, -10 %..0.
        page_seconds: one page, from request to last byte.
        first_wait_seconds: after a failure; doubled for each further one in a row ...
        longest_wait_seconds: ... up to this. Seconds, since pods change all the time.
        first_missing_seconds: a kind that does not exist is looked for again after this ...
        longest_missing_seconds: ... up to this: a CRD may be installed at any time.
        short_seconds: a watch that lived for less proves nothing; its end counts as a failure.
        complaint_seconds: a lasting failure is logged this often.
    """

    page: int = 500
    watch_seconds: float = 300.0
    grace_seconds: float = 10.0
    relist_seconds: float = 1800.0
    page_seconds: float = 30.0
    first_wait_seconds: float = 0.2
    longest_wait_seconds: float = 15.0
    first_missing_seconds: float = 1.0
    longest_missing_seconds: float = 30.0
    short_seconds: float = 1.0
    complaint_seconds: float = 60.0

    @classmethod
    def of(cls, settings: KubernetesSettings) -> "Pace":
        """As the settings say."""
        return cls(
            page=settings.list_page,
            watch_seconds=settings.watch_seconds,
            relist_seconds=settings.relist_seconds,
        )


class Step(NamedTuple):
    """What to do next: wait, then list anew or resume the watch."""

    wait_seconds: float
    list_anew: bool


class Failures:
    """Failures in a row of one list+watch, and of looks for a kind that does not exist."""

    def __init__(self, pace: Pace, rng: random.Random) -> None:
        self._pace = pace
        self._rng = rng
        self._in_a_row = 0
        self._missing = 0

    @property
    def in_a_row(self) -> int:
        """How many since something good came."""
        return self._in_a_row

    @property
    def missing_looks(self) -> int:
        """How often in a row the kind did not exist."""
        return self._missing

    def good(self) -> None:
        """The watch brought something, or lived long enough."""
        self._in_a_row = 0

    def found(self) -> None:
        """The kind exists."""
        self._missing = 0

    def failed(self, error: Exception) -> Step:
        """What follows a failed list or a watch that broke off.

        A broken watch may have lost events with a peer that is none, so all is listed again; only
        an overloaded server is first asked for less.
        """
        self._in_a_row += 1
        wait = self._spread(
            self._pace.first_wait_seconds, self._in_a_row, self._pace.longest_wait_seconds
        )
        if isinstance(error, KubeThrottled):
            least = error.retry_after_seconds * self._rng.uniform(1.0, 1.25)
            return Step(max(wait, least), self._in_a_row > _RESUMES)
        if isinstance(error, KubeGone) and self._in_a_row == 1:
            return Step(0.0, True)
        return Step(wait, True)

    def ended_early(self) -> Step:
        """A watch ended in good order but at once: it lost nothing, and must not become a spin."""
        self._in_a_row += 1
        wait = self._spread(
            self._pace.first_wait_seconds, self._in_a_row, self._pace.longest_wait_seconds
        )
        return Step(wait, False)

    def missing(self) -> Step:
        """The kind does not exist: look again, more and more rarely."""
        self._missing += 1
        pace = self._pace
        return Step(
            self._spread(pace.first_missing_seconds, self._missing, pace.longest_missing_seconds),
            True,
        )

    def relist_seconds(self) -> float:
        """Until the next full list, spread."""
        return self._pace.relist_seconds * self._rng.uniform(0.9, 1.0)

    def _spread(self, first: float, count: int, longest: float) -> float:
        doubled = first * 2.0 ** min(count - 1, _DOUBLINGS)
        return min(doubled, longest) * self._rng.uniform(0.5, 1.0)
