"""What goes wrong at a fake API server, and for which requests."""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Status:
    """An HTTP status with a `Status` body, and Retry-After where given."""

    code: int
    reason: str = ""
    message: str = "made up by the test"
    retry_after: str | None = None


@dataclass(frozen=True)
class StatusInside:
    """HTTP 200 whose whole body (not chunked) is a `Status` with this code, as a watch may get."""

    code: int = 410
    reason: str = "Expired"


@dataclass(frozen=True)
class ErrorEvent:
    """A watch whose only event is ERROR with this `Status`; a list gets the HTTP status."""

    code: int = 410
    reason: str = "Expired"


@dataclass(frozen=True)
class CutMidJson:
    """The answer (of a watch: its first event) stops half-way and the connection is closed."""


@dataclass(frozen=True)
class Garbage:
    """A line (of a list: the body) that is no JSON."""

    line: bytes = b'{"type": "MODIFIED", "object": {nonsense\n'


@dataclass(frozen=True)
class BadEvent:
    """A watch that begins with this line, which is valid JSON, and then goes on normally."""

    line: bytes


@dataclass(frozen=True)
class Reset:
    """The connection is reset without an answer."""


@dataclass(frozen=True)
class HalfOpen:
    """The request is taken and nothing ever comes back."""


@dataclass(frozen=True)
class Hold:
    """The request waits until `release()`, then is served normally."""

    released: asyncio.Event = field(default_factory=asyncio.Event)

    def release(self) -> None:
        self.released.set()


@dataclass(frozen=True)
class Delay:
    """The request waits for this long, then is served normally."""

    seconds: float


Fault = (
    Status
    | StatusInside
    | ErrorEvent
    | CutMidJson
    | Garbage
    | BadEvent
    | Reset
    | HalfOpen
    | Hold
    | Delay
)


class Rule:
    """One fault and the requests that meet it.

    Attributes:
        hits: how many requests met it so far.
    """

    def __init__(
        self,
        pattern: str,
        fault: Fault,
        *,
        times: int | None,
        method: str | None,
        watch: bool | None,
        later_pages: bool | None,
    ) -> None:
        self.fault = fault
        self.hits = 0
        self._pattern = re.compile(pattern)
        self._left = times
        self._method = method
        self._watch = watch
        self._later_pages = later_pages
        self._removed = False

    def remove(self) -> None:
        """No further request meets it; whoever is held by it goes on."""
        self._removed = True
        if isinstance(self.fault, Hold):
            self.fault.release()

    def takes(self, method: str, path: str, query: Mapping[str, str]) -> bool:
        """Whether this request meets the fault; counts it if so."""
        if self._removed or self._left == 0 or not self._pattern.search(path):
            return False
        if self._method is not None and method != self._method:
            return False
        if self._watch is not None and self._watch is not is_watch(query):
            return False
        if self._later_pages is not None and self._later_pages is not bool(query.get("continue")):
            return False
        if self._left is not None:
            self._left -= 1
        self.hits += 1
        return True


def is_watch(query: Mapping[str, str]) -> bool:
    """Whether a GET is a watch."""
    return query.get("watch", "").lower() in ("1", "true")
