"""Performance table: `python -m tests.bench [--only NAME]`, also as build/bench.json.

Each module of this package that has a function `rows()` is a room of the table. What is measured is
what an image runs: the hot path compiled (`tests.compiled`), or with `--plain` the sources as they
are.
"""

import argparse
import importlib
import json
import pkgutil
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import tests.bench
from fleet.installed import is_compiled
from tests import compiled
from tests.bench.rows import Row, StreamsRow

_OUT = Path(__file__).parents[2] / "build" / "bench.json"


def _rooms() -> dict[str, Callable[[], Iterable[Row | StreamsRow]]]:
    rooms = {}
    for info in pkgutil.iter_modules(tests.bench.__path__):
        if info.name != "__main__":
            module = importlib.import_module(f"tests.bench.{info.name}")
            if hasattr(module, "rows"):
                rooms[info.name] = module.rows
    return rooms


def _json(rows: Sequence[Row | StreamsRow]) -> str:
    return json.dumps({"format": 1, "rows": [row.json() for row in rows]}, indent=2) + "\n"


def main(argv: Sequence[str]) -> int:
    """Run the rooms; 0 whether or not targets are met: the table is for people to judge."""
    rooms = _rooms()
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--only", choices=sorted(rooms), help="run one room")
    parser.add_argument("--plain", action="store_true", help="measure Python, not compiled code")
    arguments = parser.parse_args(argv)
    only = arguments.only
    if not arguments.plain:
        compiled.enter("tests.bench", argv)
    kind = "compiled" if is_compiled() else "plain Python"
    sys.stdout.write(f"the hot path is {kind}\n")
    sys.stdout.write(f"{'figure':<44} {'value':>12} {'unit':<10} {'target':>12}\n")
    done: list[Row | StreamsRow] = []
    for name, rows in rooms.items():
        if only in (None, name):
            began = time.monotonic()
            for row in rows():
                sys.stdout.write(f"{row.line().rstrip()}\n")
                sys.stdout.flush()
                done.append(row)
            sys.stdout.write(f"({name}: {time.monotonic() - began:.0f} s)\n")
    _OUT.parent.mkdir(exist_ok=True)
    _OUT.write_text(_json(done))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
