"""Whose turn it is: sources go round, and within a source the first to come is the first to go.

A source is a peer's address. One that opens thousands of connections has one line like everybody
else: whoever comes from elsewhere waits for one of each other source at most. Pure.
"""

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Lines(Generic[Item]):
    """A line for each source."""

    __slots__ = ("_lines", "_round")

    def __init__(self) -> None:
        self._lines: dict[str, deque[Item]] = {}
        self._round: deque[str] = deque()
        """The sources that have a line, the next one first."""

    def __bool__(self) -> bool:
        return bool(self._round)

    def add(self, source: str, item: Item) -> None:
        """Behind all others of its source."""
        line = self._lines.get(source)
        if line is None:
            self._lines[source] = deque((item,))
            self._round.append(source)
        else:
            line.append(item)

    def seek(self, fits: Callable[[str], bool]) -> bool:
        """Make it the turn of the next source that fits; whether there is one."""
        for at, source in enumerate(self._round):
            if fits(source):
                self._round.rotate(-at)
                return True
        return False

    def next(self) -> str:
        """The source whose turn it is.

        Raises:
            IndexError: there is none.
        """
        return self._round[0]

    def take(self) -> Item:
        """The next one; its source goes behind all others.

        Raises:
            IndexError: there is none.
        """
        source = self._round.popleft()
        line = self._lines[source]
        item = line.popleft()
        if line:
            self._round.append(source)
        else:
            del self._lines[source]
        return item


class Crowd(Generic[Item]):
    """Who is here, of all sources and of each, the oldest first.

    Attributes:
        most: how many are here of the source that has most of them.
    """

    __slots__ = ("_all", "_by_size", "_by_source", "most")

    def __init__(self) -> None:
        self._all: dict[Item, str] = {}
        self._by_source: dict[str, dict[Item, None]] = {}
        self._by_size: dict[int, dict[str, None]] = {}
        self.most = 0

    def __len__(self) -> int:
        return len(self._all)

    def add(self, source: str, item: Item) -> None:
        """It is here."""
        self._all[item] = source
        mine = self._by_source.setdefault(source, {})
        mine[item] = None
        self._resized(source, len(mine) - 1, len(mine))
        self.most = max(self.most, len(mine))

    def remove(self, item: Item) -> None:
        """It is gone; nothing if it was not here."""
        source = self._all.pop(item, None)
        if source is None:
            return
        mine = self._by_source[source]
        del mine[item]
        self._resized(source, len(mine) + 1, len(mine))
        if not mine:
            del self._by_source[source]
        if self.most not in self._by_size:
            self.most -= 1

    def of(self, source: str) -> int:
        """How many of this source are here."""
        return len(self._by_source.get(source, ()))

    def oldest(self) -> Item | None:
        """Of all."""
        return next(iter(self._all), None)

    def in_the_way(self, source: str) -> Item | None:
        """Who has to give way to a newcomer of `source`: the oldest of a source that has most, if
        that is left with no less than the newcomer's; None if nobody has to."""
        if self.most <= self.of(source) + 1:
            return None
        fullest = next(iter(self._by_size[self.most]))
        return next(iter(self._by_source[fullest]))

    def _resized(self, source: str, before: int, now: int) -> None:
        if before:
            same = self._by_size[before]
            del same[source]
            if not same:
                del self._by_size[before]
        if now:
            self._by_size.setdefault(now, {})[source] = None
