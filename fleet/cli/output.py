"""What commands print: tables fit the terminal, pipes are never cut, JSON is one document.

With `-o json` standard output holds exactly one document whatever happens: the answer, or
`{"format": 1, "error": {"code", "message"}}`. NO_COLOR and COLUMNS are respected.
"""

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console, ConsoleDimensions, RenderableType

from fleet.cli.facts import Facts
from fleet.cli.tables import Rows
from fleet.errors import FleetError, SettingsError
from fleet.local.faults import Refused, Unreachable

Json = Mapping[str, Any]
FORMAT = 1
PIPE_WIDTH, PIPE_ROWS = 100, 50
"""Of output that is meant to be read, where it goes to no terminal."""

UNCUT = 1000
"""Columns of a list in a pipe: wide enough that nothing is cut for grep and awk."""

MANY = 2000
"""Rows from which on a terminal gets them without colours, and at once."""

_TURNS = (0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
"""Characters that have a terminal show a line in another order than it is, and line separators."""

_CONTROLS = dict.fromkeys((*range(32), *range(127, 160), *_TURNS), "\N{REPLACEMENT CHARACTER}")
del _CONTROLS[ord("\n")]


class _Terminal(Console):
    """COLUMNS and LINES make it smaller, but no larger than it is: they are what it was when a
    shell exported them, and a screen that is drawn in place must fit."""

    @property  # type: ignore[misc]  # nobody sets it
    def size(self) -> ConsoleDimensions:
        """As it is now."""
        wanted = super().size
        try:
            there = os.get_terminal_size(self.file.fileno())
        except (OSError, ValueError):
            return wanted
        # A pseudo-terminal that nobody gave a size has 0 x 0.
        return ConsoleDimensions(
            min(wanted.width, there.columns or wanted.width),
            min(wanted.height, there.lines or wanted.height),
        )


def make_console(pipe_width: int = PIPE_WIDTH) -> Console:
    """A console on standard output; COLUMNS, then `pipe_width`, says how wide a pipe is."""
    plain: dict[str, Any] = {"markup": False, "highlight": False, "emoji": False}
    if sys.stdout.isatty():
        return _Terminal(**plain)
    given = os.environ.get("COLUMNS", "")
    width = int(given) if given.isascii() and given.isdecimal() and len(given) < 5 else 0
    return Console(width=width or pipe_width, height=PIPE_ROWS, **plain)


def show(console: Console, *renderables: RenderableType) -> None:
    """Print one below the other; what goes to no terminal has no blanks at the ends of lines."""
    for each in renderables:
        plain = each.lines(console.width) if isinstance(each, Rows) else None
        if plain is not None and (not console.is_terminal or len(plain) > MANY):
            sys.stdout.write("".join(f"{line}\n" for line in plain))
        elif console.is_terminal:
            console.print(each, crop=not isinstance(each, Facts))
        else:
            with console.capture() as captured:
                console.print(each, crop=not isinstance(each, Facts))
            lines = captured.get().splitlines()
            sys.stdout.write("".join(f"{line.rstrip()}\n" for line in lines))


def write_json(document: object) -> None:
    """The one document."""
    sys.stdout.write(json.dumps(document, indent=2) + "\n")


def error_document(error: FleetError) -> dict[str, Any]:
    """What `-o json` says of an error; `problems` has settings' lines one by one."""
    code = "failed"
    if isinstance(error, SettingsError):
        code = "settings"
    elif isinstance(error, Unreachable):
        code = "unreachable"
    elif isinstance(error, Refused):
        code = error.code or "refused"
    said: dict[str, Any] = {"code": code, "message": str(error)}
    if isinstance(error, SettingsError):
        said["problems"] = list(error.problems)
    return {"format": FORMAT, "error": said}


def printable(value: Any) -> Any:
    """A document with nothing in it that a terminal would obey: names and messages come from
    tenants' objects, by way of a coordinator."""
    if isinstance(value, str):
        return value.translate(_CONTROLS)
    if isinstance(value, list):
        return [printable(each) for each in value]
    if isinstance(value, dict):
        return {printable(key): printable(each) for key, each in value.items()}
    return value
