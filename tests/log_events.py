"""Every log line that the code can write, read from the code; and the table of docs/logs.md.

`python -m tests.log_events` writes the table anew and keeps what it says of each event; whatever is
new gets a `?` there, which the test of the page does not take.
"""

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "logs.md"
ROOMS = ("coordinator", "epp_worker", "fleet")

LEVELS = {
    "debug": "debug",
    "info": "info",
    "warning": "warning",
    "error": "error",
    "exception": "error",
    "critical": "critical",
}
WRAPPERS = {"_log": "warning", "handler_failed": "error"}
"""Functions of ours that hand an event on, and the level that they log it at."""

HANDED_ON = ("fleet/telemetry.py", "epp_worker/datalayer/scraper.py", "epp_worker/http2/shared.py")
"""Where events are handed on, so that they are names and not texts."""

_LOGGERS = re.compile(r"\blog$|_logger$|_loud$|limited$|\bwarn$")


_LOGS = re.compile(r"(log|_logger|_loud|limited|warn)\.\w+\(|(_log|handler_failed)\(")
"""Whether a file logs at all, for speed."""


@dataclass(frozen=True, slots=True, order=True)
class Event:
    """One fixed text, wherever it is logged.

    Attributes:
        processes: `coordinator`, `worker` or `local`.
        keys: those that can be told from the code.
    """

    name: str
    levels: tuple[str, ...]
    processes: tuple[str, ...]
    keys: tuple[str, ...]


def _processes(path: str) -> set[str]:
    room, _, rest = path.partition("/")
    if room == "coordinator":
        return {"coordinator"}
    if room == "epp_worker":
        return {"worker"}
    return {"local"} if rest.startswith("local/") else {"coordinator", "worker"}


def _texts(node: ast.expr) -> list[str]:
    """The texts that an expression can be; none if it is something else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value]
    if isinstance(node, ast.IfExp):
        both = [_texts(node.body), _texts(node.orelse)]
        return [*both[0], *both[1]] if all(both) else []
    return []


def _levels(node: ast.expr) -> set[str]:
    if isinstance(node, ast.IfExp):
        return _levels(node.body) | _levels(node.orelse)
    return {ast.unparse(node).rpartition(".")[2].lower()}


def _keys(node: ast.expr, function: ast.AST) -> set[str]:
    """Of a dictionary, also one that is put together or has a name in the same function."""
    if isinstance(node, ast.Dict):
        return {
            key.value
            for key in node.keys
            if isinstance(key, ast.Constant) and isinstance(key.value, str)
        }
    if isinstance(node, ast.BinOp):
        return _keys(node.left, function) | _keys(node.right, function)
    if isinstance(node, ast.Name):
        found: set[str] = set()
        for each in ast.walk(function):
            if isinstance(each, ast.Assign | ast.AnnAssign) and each.value is not None:
                targets = each.targets if isinstance(each, ast.Assign) else [each.target]
                if any(isinstance(one, ast.Name) and one.id == node.id for one in targets):
                    found |= _keys(each.value, function)
        return found
    return set()


def _logged(call: ast.Call) -> tuple[list[str], set[str]] | None:
    """Events and levels of a call that logs; None for any other call."""
    if not isinstance(call.func, ast.Attribute) or not call.args:
        return None
    name, receiver = call.func.attr, ast.unparse(call.func.value)
    if name in WRAPPERS:
        return _texts(call.args[0]), {WRAPPERS[name]}
    if not _LOGGERS.search(receiver):
        return None
    if name == "log" and len(call.args) > 1:
        return _texts(call.args[1]), _levels(call.args[0])
    return (_texts(call.args[0]), {LEVELS[name]}) if name in LEVELS else None


def _of_file(path: Path) -> Iterator[tuple[str, str, set[str], set[str]]]:
    """Place, event, levels, keys."""
    text = path.read_text()
    if not _LOGS.search(text):
        return
    tree = ast.parse(text)
    seen: set[ast.Call] = set()
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    for function in reversed(functions):  # inner ones before those that they stand in
        for node in ast.walk(function):
            if not isinstance(node, ast.Call) or node in seen:
                continue
            seen.add(node)
            logged = _logged(node)
            if logged is None:
                continue
            keys: set[str] = set()
            for keyword in node.keywords:
                if keyword.arg == "extra":
                    keys |= _keys(keyword.value, function)
                elif keyword.arg in ("error", "exc_info"):
                    keys.add("error")
                elif keyword.arg not in ("key", None):
                    keys.add(str(keyword.arg))
            if isinstance(node.func, ast.Attribute) and node.func.attr == "exception":
                keys.add("error")
            place = f"{path.relative_to(ROOT)}:{node.lineno}"
            for text in logged[0] or ["?"]:
                yield place, text, logged[1], keys


@lru_cache
def events() -> tuple[list[Event], list[str]]:
    """All events by name; and the places where one is no fixed text."""
    levels: dict[str, set[str]] = {}
    processes: dict[str, set[str]] = {}
    keys: dict[str, set[str]] = {}
    loose = []
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            for place, text, at, with_keys in _of_file(path):
                if text == "?":
                    loose.append(place)
                    continue
                name = str(path.relative_to(ROOT))
                levels.setdefault(text, set()).update(at)
                processes.setdefault(text, set()).update(_processes(name))
                keys.setdefault(text, set()).update(with_keys)
    found = [
        Event(
            text,
            tuple(sorted(levels[text])),
            tuple(sorted(processes[text])),
            tuple(sorted(keys[text])),
        )
        for text in levels
    ]
    return sorted(found), loose


def documented() -> dict[str, tuple[str, str, str, str]]:
    """By event: levels, processes, keys, meaning; as the page has them."""
    rows = re.findall(
        r"^\| `([^|]+)` \| ([^|]+) \| ([^|]+) \| ([^|]*) \| ([^|]+) \|$",
        PAGE.read_text(),
        re.MULTILINE,
    )
    return {name: (level, who, keys, meaning.strip()) for name, level, who, keys, meaning in rows}


def row(event: Event, meaning: str, more: str = "") -> str:
    """A line of the table; `more`: keys that cannot be told from the code."""
    keys = " ".join(f"`{key}`" for key in event.keys)
    cells = (
        f"`{event.name}`",
        ", ".join(event.levels),
        ", ".join(event.processes),
        f"{keys} {more}".strip(),
        meaning,
    )
    return "| " + " | ".join(cells) + " |"


def beyond(event: Event, cell: str) -> str:
    """The keys of a cell that are not told by the code."""
    known = {f"`{key}`" for key in event.keys}
    return " ".join(word for word in cell.split() if word not in known)


def main() -> int:
    """Write the table; 1 if something is new."""
    text, old = PAGE.read_text(), documented()
    found, _ = events()
    lines = []
    for event in found:
        _, _, keys, meaning = old.get(event.name, ("", "", "", "?"))
        lines.append(row(event, meaning, beyond(event, keys)))
    table = "\n".join(lines)
    start = text.index("|---|---|---|---|---|\n") + len("|---|---|---|---|---|\n")
    end = text.find("\n\n", start)
    PAGE.write_text(text[:start] + table + (text[end:] if end > 0 else "\n"))
    new = [event.name for event in found if event.name not in old]
    sys.stdout.write("".join(f"new: {name}\n" for name in new))
    return 1 if new else 0


if __name__ == "__main__":
    sys.exit(main())
