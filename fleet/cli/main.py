"""`epp-fleet`: run one command, turn errors into lines and exit codes.

Imports are few on purpose: a stop signal during the first tenths of a second must find its handler.
"""

import argparse
import contextlib
import io
import itertools
import os
import sys
from collections.abc import Sequence

from fleet.cli.parser import make_parser
from fleet.errors import FleetError, SettingsError
from fleet.local.faults import Unreachable
from fleet.local.signals import stop_quietly_until_running

EXIT_GOOD, EXIT_BROKEN, EXIT_USAGE, EXIT_UNREACHABLE = 0, 1, 2, 3

__all__ = ["main", "make_parser"]


def _fail(code: int, error: FleetError, arguments: argparse.Namespace) -> int:
    if getattr(arguments, "output", "") == "json":
        from fleet.cli.output import error_document, write_json

        write_json(error_document(error))
        return code
    from fleet.cli.output import printable

    problems = error.problems if isinstance(error, SettingsError) else str(error).split("\n")
    for problem in problems:
        sys.stderr.write(f"epp-fleet: {printable(problem)}\n")
    return code


def _wants_json(words: Sequence[str]) -> bool:
    """Whether `-o json` is there, in whichever form, also where the rest cannot be read."""
    pairs = itertools.pairwise(words)
    return any(pair in (("-o", "json"), ("--output", "json")) for pair in pairs) or any(
        word in ("-ojson", "-o=json", "--output=json") for word in words
    )


def _parse(words: Sequence[str]) -> argparse.Namespace:
    """The arguments.

    Raises:
        SystemExit: they are wrong (2), or help was asked for; it has been said.
    """
    parser = make_parser()
    if not _wants_json(words):
        return parser.parse_args(words)
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return parser.parse_args(words)
    except SystemExit as ended:
        if ended.code:
            from fleet.cli.output import error_document, write_json

            message = said.getvalue().strip().rpartition("error: ")[2]
            write_json(error_document(SettingsError([message])))
        raise


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    arguments = _parse(sys.argv[1:] if argv is None else argv)
    if getattr(arguments, "stoppable", False):
        stop_quietly_until_running()
    try:
        code: int = arguments.run(arguments)
        return code
    except SettingsError as error:
        return _fail(EXIT_USAGE, error, arguments)
    except Unreachable as error:
        return _fail(EXIT_UNREACHABLE, error, arguments)
    except FleetError as error:
        return _fail(EXIT_BROKEN, error, arguments)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read our output has gone (`| head`): no news, and nothing left to flush to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN


if __name__ == "__main__":
    sys.exit(main())
