"""How much of requests may be held: per stream, and by the whole worker.

A worker that is full does not turn the newcomer away, but whoever has waited longest for the next
part of its body: a few clients that send half a body and then nothing would otherwise keep every
pool of the worker from being served.
"""

from enum import Enum, auto
from typing import Protocol


class Taken(Enum):
    """What came of asking for room."""

    OK = auto()
    STREAM_FULL = auto()
    WORKER_FULL = auto()


class Holder(Protocol):
    """Who holds bytes and waits for more."""

    def starve(self) -> None:
        """End, and give back all that is held: others need the room."""
        ...


class BodyBudget:
    """Bytes of requests that may be buffered until their bodies are complete.

    Attributes:
        per_stream: bytes of one body.
        total: bytes of all bodies of the worker.
        held: bytes taken and not yet given back.
    """

    __slots__ = ("_holders", "held", "per_stream", "total")

    def __init__(self, *, per_stream: int, total: int) -> None:
        self.per_stream = per_stream
        self.total = total
        self.held = 0
        self._holders: dict[Holder, None] = {}
        """Those who hold something, the one who has not taken for the longest time first."""

    def take(self, size: int, holder: Holder, *, already: int) -> Taken:
        """Take room for `size` more bytes of a body of which `already` are held; nothing if there
        is none."""
        if already + size > self.per_stream:
            return Taken.STREAM_FULL
        return self.take_head(size, holder)

    def take_head(self, size: int, holder: Holder) -> Taken:
        """The same for what belongs to a request but is not its body."""
        self._holders.pop(holder, None)
        if size > self.total:
            return Taken.WORKER_FULL
        while self.held + size > self.total and self._holders:
            idlest = next(iter(self._holders))
            del self._holders[idlest]
            idlest.starve()
        if self.held + size > self.total:
            return Taken.WORKER_FULL
        self._holders[holder] = None
        self.held += size
        return Taken.OK

    def give_back(self, size: int, holder: Holder) -> None:
        """Return all that the holder has, which is `size` bytes."""
        self.held -= size
        self._holders.pop(holder, None)
