"""Whether a folder of files that are only ever replaced by renaming can have changed.

A rename, a new name and a removal change the folder's own time of modification; one look at that
costs a microsecond, looking at 10,000 files 30 ms. What is written into a file in place does not
show there: for that everything is looked at every few seconds all the same.
"""

from pathlib import Path

SETTLED_SECONDS = 0.1
"""Clocks of file systems go in steps of up to 10 ms: a change within the same step as the last look
leaves the same time. A folder that changed shortly before a look is not taken for unchanged."""

WHOLE_SECONDS = 5.0
"""Everything is looked at at least this often."""


class Glance:
    """Remembers one folder's time of modification. Times are seconds; `now` is monotonic, `wall` is
    the clock of this machine, which the file system's times are of."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._modified_ns = 0
        self._looked = float("-inf")
        self._settled = False

    def unchanged(self, now: float) -> bool:
        """Whether nothing can have been renamed, made or removed since the last `looking`.

        Raises:
            OSError: the folder cannot be looked at.
        """
        if not self._settled or now - self._looked >= WHOLE_SECONDS:
            return False
        return self._folder.stat().st_mtime_ns == self._modified_ns

    def looking(self, now: float, wall: float) -> None:
        """Everything is about to be looked at.

        Raises:
            OSError: the folder cannot be looked at.
        """
        self._settled = False
        self._modified_ns = self._folder.stat().st_mtime_ns
        self._looked = now
        self._settled = wall - self._modified_ns / 1e9 >= SETTLED_SECONDS
