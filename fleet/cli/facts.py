"""Named facts, one below the other."""

import re
from collections.abc import Iterator

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.text import Text

NAMES = 12
"""Columns of the names, the gap included."""
NARROWEST = 20
"""Columns of the facts, however narrow the terminal is."""


class Facts:
    """Facts are wrapped between words. A word that has no room, as a path, stays whole: whoever
    marks and copies it gets all of it, and no more. To be printed uncropped."""

    def __init__(self) -> None:
        self._rows: list[tuple[str, Text]] = []

    def add(self, name: str, fact: str | Text) -> None:
        """One more; without a name it goes on with the one above."""
        self._rows.append((name, Text(fact) if isinstance(fact, str) else fact))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        width = max(NARROWEST, options.max_width - NAMES)
        for name, fact in self._rows:
            heading = name
            for line in _wrapped(fact, width):
                shown = Text(no_wrap=True, overflow="ignore")
                yield shown.append(heading.ljust(NAMES), "dim").append_text(line)
                heading = ""


def _wrapped(text: Text, width: int) -> Iterator[Text]:
    for line in text.split(allow_blank=True):
        for part in line.divide(_breaks(line.plain, width)):
            part.rstrip()
            yield part


def _breaks(line: str, width: int) -> list[int]:
    """Where it goes on below."""
    breaks, begin = [], 0
    for word in re.finditer(r"\S+", line):
        if word.start() > begin and cell_len(line[begin : word.end()]) > width:
            begin = word.start()
            breaks.append(begin)
    return breaks
