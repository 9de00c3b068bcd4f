"""How a list+watch is doing: what metrics show and what the log says, at most so often."""

import logging
from dataclasses import dataclass

from fleet.clock import Clock
from fleet.errors import KubeForbidden

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Counters:
    """Totals since the start, for metrics."""

    lists: int = 0
    watches: int = 0
    events: int = 0
    bookmarks: int = 0
    failures: int = 0
    expired: int = 0
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class Condition:
    """How one list+watch is doing.

    Attributes:
        path: what is listed and watched.
        resource: the same without namespace, as kubectl has it.
        version: the resourceVersion up to which all is known; "" before the first list.
        synced: a first full list is here (or the kind does not exist).
        missing: the kind does not exist at the moment.
        failing: the last failure, until something good follows; None while all is well.
        age_seconds: since the server last showed that the copy is current (list, event, bookmark).
        list_age_seconds: since the last complete list.
        objects: how many are held.
        skipped: how many objects are not held as they are now.
    """

    path: str
    resource: str
    version: str
    synced: bool
    missing: bool
    failing: str | None
    age_seconds: float
    list_age_seconds: float
    objects: int
    skipped: int
    counters: Counters


class Complaints:
    """Logs a lasting failure again and again, but not each time."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._last: tuple[type[Exception] | None, float] = (None, 0.0)

    def failed(self, error: Exception, *, path: str, age: float, in_a_row: int) -> None:
        """At once if the failure is another than the last, else once in `seconds`.

        A missing permission is an error: it lasts until somebody mends the role its message names.
        """
        now = self._clock.monotonic()
        kind, since = self._last
        if kind is type(error) and now - since < self._seconds:
            return
        self._last = (type(error), now)
        log.log(
            logging.ERROR if isinstance(error, KubeForbidden) else logging.WARNING,
            "list+watch fails",
            extra={
                "path": path,
                "error": str(error),
                "age_seconds": round(age, 1),
                "failures": in_a_row,
            },
        )
