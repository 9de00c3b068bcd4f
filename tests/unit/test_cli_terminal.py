"""How large a terminal is for what is drawn on it."""

import contextlib
import fcntl
import os
import pty
import struct
import sys
import termios
from collections.abc import Callable, Iterator

import pytest

from fleet.cli.output import make_console


@contextlib.contextmanager
def terminal(columns: str, lines: str) -> Iterator[Callable[[int, int], None]]:
    """Standard output is one, with these in the environment; yields what gives it a size."""
    ours, theirs = pty.openpty()

    def resize(columns: int, rows: int) -> None:
        fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    with os.fdopen(theirs, "w") as output, pytest.MonkeyPatch.context() as patch:
        for name, value in (("TERM", "xterm"), ("COLUMNS", columns), ("LINES", lines)):
            patch.setenv(name, value)
        patch.setattr(sys, "stdout", output)
        yield resize
    os.close(ours)


def test_no_larger_than_it_is() -> None:
    """COLUMNS and LINES are a shell's that had another window; it may be resized meanwhile."""
    with terminal("200", "100") as resize:
        resize(60, 20)
        console = make_console()
        assert console.size == (60, 20)
        resize(50, 30)
        assert (console.width, console.height) == (50, 30)


def test_smaller_where_that_is_wanted() -> None:
    """It is what they are for; of a terminal without a size they are believed."""
    with terminal("40", "10") as resize:
        resize(60, 20)
        assert make_console().size == (40, 10)
        resize(0, 0)
        assert make_console().size == (40, 10)
