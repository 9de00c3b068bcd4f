"""How much of requests may be held: per stream, per route group, and by the whole worker.

A group, or a worker, that is full does not turn the newcomer away, but whoever has waited longest
for the next part of its body: a few clients that send half a body and then nothing would otherwise
keep every pool of the worker from being served.
"""

from enum import Enum, auto
from typing import Final, Protocol


class Taken(Enum):
    """What came of asking for room."""

    OK = auto()
    STREAM_FULL = auto()
    GROUP_FULL = auto()
    WORKER_FULL = auto()


OK: Final = Taken.OK
"""A name of its own for what every stream asks: looking up a member of an Enum takes 0.3 us."""


class Holder(Protocol):
    """Who holds bytes and waits for more."""

    def starve(self) -> None:
        """End, and give back all that is held: others need the room."""
        ...


class BodyShare:
    """What one group's requests hold. For `BodyBudget` to change.

    Attributes:
        held: bytes.
        holders: those who hold something, the one who has not taken for the longest time first.
    """

    __slots__ = ("held", "holders")

    def __init__(self) -> None:
        self.held = 0
        self.holders: dict[Holder, None] = {}


class BodyBudget:
    """Bytes of requests that may be buffered until their bodies are complete.

    Attributes:
        per_stream: bytes of one body.
        per_group: bytes of all bodies of a group; None = as many as of the worker.
        total: bytes of all bodies of the worker.
        held: bytes taken and not yet given back.
        peak: the highest value of `held` since `take_peak`.
        stream_full: how often a body was too large.
        group_full: how often a group's bound made somebody give way.
        worker_full: the same of the worker's.
    """

    __slots__ = (
        "_holders",
        "group_full",
        "held",
        "peak",
        "per_group",
        "per_stream",
        "stream_full",
        "total",
        "worker_full",
    )

    def __init__(self, *, per_stream: int, total: int, per_group: int | None = None) -> None:
        self.per_stream = per_stream
        self.per_group = total if per_group is None else min(per_group, total)
        self.total = total
        self.held = 0
        self.peak = 0
        self.stream_full = 0
        self.group_full = 0
        self.worker_full = 0
        self._holders: dict[Holder, BodyShare] = {}
        """Those who hold something, the one who has not taken for the longest time first."""

    def take(self, size: int, holder: Holder, share: BodyShare, *, already: int) -> Taken:
        """Take room for `size` more bytes of a body of which `already` are held; nothing if there
        is none."""
        if already + size > self.per_stream:
            self.stream_full += 1
            return Taken.STREAM_FULL
        return self.take_head(size, holder, share)

    def take_head(self, size: int, holder: Holder, share: BodyShare) -> Taken:
        """The same for what belongs to a request but is not its body."""
        if self._holders.pop(holder, None) is not None:
            del share.holders[holder]
        if size > self.per_group:
            return Taken.GROUP_FULL
        if share.held + size > self.per_group:
            self.group_full += 1
            while share.held + size > self.per_group and share.holders:
                self._starve(next(iter(share.holders)))
            if share.held + size > self.per_group:
                return Taken.GROUP_FULL
        if self.held + size > self.total:
            self.worker_full += 1
            while self.held + size > self.total and self._holders:
                self._starve(next(iter(self._holders)))
            if self.held + size > self.total:
                return Taken.WORKER_FULL
        self._holders[holder] = share
        share.holders[holder] = None
        share.held += size
        self.held += size
        if self.held > self.peak:
            self.peak = self.held
        return OK

    def take_peak(self) -> int:
        """The most that was held since this was last asked."""
        peak, self.peak = self.peak, self.held
        return peak

    def give_back(self, size: int, holder: Holder, share: BodyShare) -> None:
        """Return all that the holder has, which is `size` bytes."""
        self.held -= size
        share.held -= size
        if self._holders.pop(holder, None) is not None:
            del share.holders[holder]

    def _starve(self, idlest: Holder) -> None:
        del self._holders.pop(idlest).holders[idlest]
        idlest.starve()
