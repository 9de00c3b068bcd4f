"""How much of request bodies may be held: per stream, and by the whole worker."""

from enum import Enum, auto


class Taken(Enum):
    """What came of asking for room."""

    OK = auto()
    STREAM_FULL = auto()
    WORKER_FULL = auto()


class BodyBudget:
    """Bytes of request bodies that may be buffered.

    Attributes:
        per_stream: bytes of one body.
        total: bytes of all bodies of the worker.
        held: bytes taken and not yet given back.
    """

    __slots__ = ("held", "per_stream", "total")

    def __init__(self, *, per_stream: int, total: int) -> None:
        self.per_stream = per_stream
        self.total = total
        self.held = 0

    def take(self, size: int, *, already: int) -> Taken:
        """Take room for `size` more bytes of a stream that holds `already`; nothing if full."""
        if already + size > self.per_stream:
            return Taken.STREAM_FULL
        if self.held + size > self.total:
            return Taken.WORKER_FULL
        self.held += size
        return Taken.OK

    def give_back(self, size: int) -> None:
        """Return what `take` gave."""
        self.held -= size
