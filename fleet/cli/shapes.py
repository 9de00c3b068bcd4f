"""What the parts of the command line have in common."""

import argparse
from collections.abc import Callable
from typing import Any


class Help(argparse.RawDescriptionHelpFormatter):
    """Texts that have lines keep them; one long line is folded."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n" in text:
            return super()._fill_text(text, width, indent)
        return argparse.HelpFormatter._fill_text(self, text, width, indent)


def examples(*lines: tuple[str, str]) -> str:
    """An epilog of commands, each with what it is for."""
    width = max(len(command) for command, _ in lines)
    shown = (f"  epp-fleet {command:<{width}}  {meaning}" for command, meaning in lines)
    return "examples:\n" + "\n".join(shown)


def add_output(parser: argparse.ArgumentParser) -> None:
    """`-o table|json`."""
    parser.add_argument(
        "-o", "--output", choices=("table", "json"), default="table", help="default: table"
    )


def add_where(parser: argparse.ArgumentParser) -> None:
    """Which fleet is meant."""
    parser.add_argument(
        "--coordinator",
        metavar="URL",
        action="append",
        help="address of any coordinator; several with commas, or again",
    )
    parser.add_argument("--state-file", metavar="F", help="state file of a local fleet")


class Once(argparse.Action):
    """An option whose second value would replace the first without a word: it is refused."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        if getattr(namespace, self.dest) is not None:
            raise argparse.ArgumentError(self, "can be given once only")
        setattr(namespace, self.dest, values)


def positive_seconds(text: str) -> float:
    """A time that can be waited."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds") from None
    if not 0.1 <= value <= 86_400:
        raise argparse.ArgumentTypeError(f"{text} is outside 0.1..86400 seconds")
    return value


def counted(most: int) -> Callable[[str], int]:
    """A type of numbers from 1 to `most`."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdecimal() and 1 <= int(text[:9]) <= most):
            raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 to {most}")
        return int(text)

    return read
