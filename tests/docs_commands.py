"""Commands that README.md and docs/ tell people to type.

A command is a line of a code block, or inline code, that begins with one of `PROGRAMS` (after
variables that are set for it, and after `.venv/bin/`). Lines that end with a backslash go on.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT = Path(__file__).parent.parent
PROGRAMS: Final = (
    "curl",
    "docker",
    "epp-fleet",
    "git",
    "helm",
    "kubectl",
    "make",
    "promtool",
    "python",
)

_FENCE = re.compile(r"^ *```")
_INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_MARK = re.compile(r"<[a-z ]+>")
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*=")


@dataclass(frozen=True, slots=True)
class Command:
    """One command.

    Attributes:
        file: relative to the project's root.
        words: as a shell would split them, without variables; the first is the program. A
            placeholder `<of words>` is one word, `<of-words>`.
        variables: set for this command alone.
        text: as it is written.
    """

    file: str
    line: int
    words: tuple[str, ...]
    variables: tuple[tuple[str, str], ...]
    text: str

    @property
    def program(self) -> str:
        """One of `PROGRAMS`."""
        return self.words[0]


def documents() -> tuple[Path, ...]:
    """README.md and docs/, the history left out."""
    return (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))


def commands(*, inline: bool = True) -> tuple[Command, ...]:
    """All of them, in the order written.

    Args:
        inline: also those that stand in running text, which may be unfinished (`make soak`).
    """
    return tuple(
        command for path in documents() for command in commands_of(path, path.read_text(), inline)
    )


def commands_of(path: Path, text: str, inline: bool = True) -> Iterator[Command]:
    """The commands of one document."""
    name = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)
    fenced, pending, began = False, "", 0
    for number, line in enumerate(text.splitlines(), start=1):
        if _FENCE.match(line):
            fenced, pending = not fenced, ""
            continue
        if not fenced and not line.startswith("    "):
            pending = ""
            if inline:
                for match in _INLINE.finditer(line):
                    yield from _command(name, number, match[1])
            continue
        began = began if pending else number
        pending += line.strip()
        if pending.endswith("\\"):
            pending = pending[:-1]
            continue
        yield from _command(name, began, pending)
        pending = ""


def _command(file: str, line: int, text: str) -> Iterator[Command]:
    text = text.removeprefix("$ ").split("  #")[0].split(" # ")[0].split(" | ")[0].strip()
    text = _MARK.sub(lambda match: match[0].replace(" ", "-"), text)
    try:
        words = shlex.split(text)
    except ValueError:  # a quotation mark in something that is no command
        return
    variables: list[tuple[str, str]] = []
    while words and _VARIABLE.match(words[0]):
        key, _, value = words.pop(0).partition("=")
        variables.append((key, value))
    for cut in (">", "&&", "<"):
        if cut in words:
            words = words[: words.index(cut)]
    if len(words) < 2:
        return
    words[0] = words[0].removeprefix(".venv/bin/")
    if words[0] in PROGRAMS:
        yield Command(file, line, tuple(words), tuple(variables), text)
