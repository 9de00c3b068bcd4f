"""Soak: `python -m tests.soak [--only NAME]`, also as build/soak.json.

Each scenario has a fleet, a control plane if it needs one, and a bound in time of its own; all run
in a network namespace that ends with them. Workers run the hot path compiled, as in an image; with
`--plain` the sources as they are. The exit code is 0 whether or not targets are met, and 1
if a scenario could not be measured.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from tests import compiled
from tests.bench.rows import Row
from tests.control_plane.programs import Missing
from tests.kustomize import NoKustomize
from tests.soak import apart, detach, faults, hundred, large, moves, small, static
from tests.soak.table import document, lines

_OUT = Path(__file__).parents[2] / "build" / "soak.json"

SCENARIOS: dict[str, tuple[Callable[[], Awaitable[list[Row]]], float]] = {
    "apply": (small.apply, 180.0),
    "pods": (small.pods, 180.0),
    "rest": (small.rest, 240.0),
    "store": (small.store, 240.0),
    "static": (static.alone, 240.0),
    "moves": (moves.planned, 480.0),
    "kill": (faults.kill, 480.0),
    "partition": (faults.partition, 240.0),
    "cut": (faults.cut, 240.0),
    "both": (faults.both, 240.0),
    "hundred": (hundred.hundred, 480.0),
    "detach": (detach.detach, 300.0),
    "large": (large.cold, 600.0),
}
"""Each scenario with the seconds that it may take."""


async def _measured(name: str) -> list[Row] | None:
    scenario, seconds = SCENARIOS[name]
    try:
        async with asyncio.timeout(seconds):
            return await scenario()
    except TimeoutError:
        why = f"not over in {seconds:g} s"
    except (Missing, NoKustomize) as missing:
        why = str(missing)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
    sys.stderr.write(f"{name}: not measured: {why}\n")
    return None


def main(argv: Sequence[str]) -> int:
    """Run the scenarios; print and write the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--only", choices=sorted(SCENARIOS), help="run one scenario")
    parser.add_argument("--plain", action="store_true", help="run Python, not compiled code")
    arguments = parser.parse_args(argv)
    only = arguments.only
    if not arguments.plain:
        compiled.enter("tests.soak", argv)
    apart.enter("tests.soak", argv)
    rows: list[Row] = []
    failed = False
    for name in SCENARIOS:
        if only in (None, name):
            sys.stderr.write(f"{name} ...\n")
            began = time.monotonic()
            measured = asyncio.run(_measured(name))
            sys.stderr.write(f"{name}: {time.monotonic() - began:.0f} s\n")
            failed |= measured is None
            rows += measured or ()
    for line in lines(rows):
        sys.stdout.write(f"{line}\n")
    _OUT.parent.mkdir(exist_ok=True)
    _OUT.write_text(document(rows))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
