"""Requests in flight that other workers count, by the incarnation that picked them. Pure.

Each count has a speaker: the worker that told it last. A speaker that begins anew replaces all that
it said; another one that takes the word for an incarnation replaces what was said of that one. An
incarnation that is dead is dropped with everything it counted.
"""

from collections.abc import Collection, Iterator, Mapping

MAX_ADDRESSES = 4096
"""Endpoints of one origin that are remembered: more than any pool has."""


class Origins:
    """Counts by origin and endpoint address; each change returns the addresses it touched."""

    __slots__ = ("_counts", "_speakers")

    def __init__(self) -> None:
        self._counts: dict[str, dict[str, int]] = {}
        self._speakers: dict[str, str] = {}

    def hear(self, speaker: str, origin: str, counts: Mapping[str, int]) -> Collection[str]:
        """Note present values."""
        known = self._counts.setdefault(origin, {})
        touched: dict[str, None] = {}
        if self._speakers.get(origin) != speaker:
            self._speakers[origin] = speaker
            touched = self._zero(origin)
        for address, count in counts.items():
            before = known.get(address)
            if before != count and (before is not None or len(known) < MAX_ADDRESSES):
                known[address] = max(0, count)
                touched[address] = None
        return touched

    def forget(self, speaker: str) -> Collection[str]:
        """What this speaker said is no longer known: nothing in flight."""
        touched: dict[str, None] = {}
        for origin, by in self._speakers.items():
            if by == speaker:
                touched |= self._zero(origin)
        return touched

    def keep(self, living: Collection[str]) -> Collection[str]:
        """Drop every origin that is not among the living."""
        touched: dict[str, None] = {}
        for origin in [each for each in self._counts if each not in living]:
            touched |= dict.fromkeys(self._counts.pop(origin))
            self._speakers.pop(origin, None)
        return touched

    def total(self, address: str) -> int:
        """What all origins have in flight on an endpoint."""
        return sum(counts.get(address, 0) for counts in self._counts.values())

    def of(self, address: str) -> Iterator[tuple[str, int]]:
        """What is known of one endpoint, by origin; zeros too."""
        for origin, counts in self._counts.items():
            if address in counts:
                yield origin, counts[address]

    def __len__(self) -> int:
        return len(self._counts)

    def _zero(self, origin: str) -> dict[str, None]:
        """Zeros stay, so that they can be told on; returns what was not zero."""
        counts = self._counts[origin]
        busy = dict.fromkeys(address for address, count in counts.items() if count)
        counts.update(dict.fromkeys(busy, 0))
        return busy
