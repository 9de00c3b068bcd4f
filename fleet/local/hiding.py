"""Take a secret off this process's own command line, which everybody on a machine can read.

The kernel shows (`/proc/PID/cmdline`, `ps`) the bytes that a process was started with, from where
they still lie in its memory; whoever looked in the first moments has seen them all the same.
"""

import ctypes
import os
from pathlib import Path

_STAT = Path("/proc/self/stat")
_START, _END = 47, 48
"""Of the fields of proc(5) `stat`, counted from 0: `arg_start` and `arg_end`."""

_AFTER_NAME = 2
"""Fields up to the program's name, which may itself hold blanks and brackets."""


def hide_argument(secret: str) -> bool:
    """Write `*` over every occurrence; whether it is gone. Elsewhere than on Linux it stays."""
    wanted = os.fsencode(secret)
    if not wanted:
        return True
    try:
        fields = _STAT.read_text().rpartition(")")[2].split()
        start, end = (int(fields[place - _AFTER_NAME]) for place in (_START, _END))
        if not 0 < start < end:
            return False
        line = ctypes.string_at(start, end - start)
        place = line.find(wanted)
        while place >= 0:
            ctypes.memset(start + place, ord("*"), len(wanted))
            place = line.find(wanted, place + len(wanted))
    except (OSError, ValueError, IndexError):
        return False
    return True
