"""docs/cli.md and the command line: every command and option is in both, and the help teaches."""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.cli.main import make_parser

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
COMMON = "Which fleet, and how it is shown"


def _commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Those that can be run, not those that only have actions."""
    inner = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    if not inner:
        yield parser
    for action in inner:
        for each in action.choices.values():
            yield from _commands(each)


COMMANDS = {parser.prog: parser for parser in _commands(make_parser())}


def _sections() -> dict[str, str]:
    """By heading, without the quotes."""
    parts = re.split(r"^## (.+)$", PAGE, flags=re.MULTILINE)
    return {name.strip("`"): text for name, text in zip(parts[1::2], parts[2::2], strict=True)}


def _options(text: str) -> set[str]:
    """The first cells of the tables of options."""
    found: set[str] = set()
    for table in re.findall(r"^\| option \|.*\n\|---\|---\|\n((?:\|.*\n)+)", text, re.MULTILINE):
        found |= set(re.findall(r"^\| `(.+?)` \| ", table, re.MULTILINE))
    return found


def _written(action: argparse.Action) -> str:
    """An option as the page has it: `-o table|json, --output table|json`."""
    metavar = action.metavar
    if action.choices and action.dest in ("output", "gateway"):
        metavar = "|".join(map(str, action.choices))
    elif action.choices:
        metavar = {"sort": "KEY"}.get(action.dest, action.dest.upper())
    if action.nargs == "?":
        metavar = f"[{metavar}]"
    tail = "" if action.nargs == 0 else f" {metavar}"
    return ", ".join(name + tail for name in action.option_strings)


def _of(parser: argparse.ArgumentParser) -> set[str]:
    return {
        _written(each) for each in parser._actions if each.option_strings and each.dest != "help"
    }


def test_every_command_has_a_section() -> None:
    """And no section is about a command that is not there."""
    headings = {name for name in _sections() if name.startswith("epp-fleet")}
    assert headings == COMMANDS.keys()


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_option_is_in_the_page_and_there(command: str) -> None:
    """With the name of its value. What all have that ask a fleet is said once."""
    sections, offered = _sections(), _of(COMMANDS[command])
    told = _options(sections[command])
    common = _options(sections[COMMON])
    asks = "--coordinator URL" in offered
    assert told == (offered - common if asks else offered)
    if asks:
        assert common <= offered


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_help_has_examples_that_parse(command: str) -> None:
    """Each example of a command is that command, and can be typed."""
    epilog = COMMANDS[command].epilog or ""
    lines = re.findall(r"^  (epp-fleet .+?)(?:  .*)?$", epilog, re.MULTILINE)
    assert lines
    for line in lines:
        typed = line.partition(" | ")[0].split()
        assert " ".join(typed).startswith(command)
        make_parser().parse_args(typed[1:])


def test_examples_of_the_whole_parse() -> None:
    """Those of `epp-fleet --help`, and all that the page shows."""
    shown = re.findall(r"^  epp-fleet (.+?)  ", make_parser().epilog or "", re.MULTILINE)
    page = re.findall(r"^\$ (?:\w+=\S+ )?epp-fleet (.+?)(?: \|.*)?$", PAGE, re.MULTILINE)
    assert len(shown) >= 10
    assert len(page) >= 8
    for line in (*shown, *page):
        if not line.startswith("COMMAND"):
            make_parser().parse_args(line.split())


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_help_is_readable_in_80_columns(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All but the examples, which are meant to be copied."""
    monkeypatch.setenv("COLUMNS", "80")
    text = COMMANDS[command].format_help().partition("examples:")[0]
    assert max(map(len, text.splitlines())) <= 80
