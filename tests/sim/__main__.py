"""`python -m tests.sim`: many seeds in a few processes, and a table of what they were made of.

A failing seed is shrunk and printed, and the exit code is 1. `--seed N` runs one, with its trace.
"""

import argparse
import gc
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import get_context

from tests.sim.faults import make_plan
from tests.sim.found import FOUND
from tests.sim.mutations import MUTATIONS, mutated
from tests.sim.run import Outcome, run
from tests.sim.scripts import SCRIPTS, throws
from tests.sim.shrink import report, shrink

HASH_SEED = "0"
"""Strings must hash alike in every process, or a seed would not be the same run everywhere."""

SEEDS_A_PROCESS = 15

MAX_FAILURES = 3
"""After so many failing seeds nothing more is learned from others."""


@dataclass
class Totals:
    """Of all seeds together."""

    seeds: int = 0
    seconds: float = 0.0
    steps: int = 0
    sent: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[int] = field(default_factory=list)

    def add(self, seed: int, outcome: Outcome) -> None:
        self.seeds += 1
        self.seconds += outcome.seconds
        self.steps += outcome.steps
        self.sent += outcome.sent
        self.faults += outcome.faults
        counts = outcome.counts
        for name in counts.__dataclass_fields__:
            self.counts[name] += getattr(counts, name)
        if outcome.violation is not None:
            self.failures.append(seed)

    def table(self, took: float) -> str:
        """For people."""
        named = {
            "seeds": self.seeds,
            "failed seeds": len(self.failures),
            "virtual seconds": round(self.seconds),
            "callbacks": self.steps,
            "streams": self.sent,
            "answered": self.counts["answered"],
            "failed, by a worker's fault": self.counts["excused"],
            "elections": self.counts["elections"],
            "moves": self.counts["moves"],
            "of these fail-overs": self.counts["fail_overs"],
            "stale route writes": self.counts["stale_routes"],
            "faults": self.faults.total(),
        }
        rows = [f"  {name:28} {number:>12,}" for name, number in named.items()]
        rows += [f"    {kind:26} {number:>12,}" for kind, number in sorted(self.faults.items())]
        rate = self.seeds / took if took else 0.0
        rows.append(f"  {took:.0f} s, {rate:.1f} seeds/s")
        return "\n".join(rows)


def _some(seeds: Sequence[int]) -> list[tuple[int, Outcome]]:
    return [(seed, run(make_plan(seed), collect=False)) for seed in seeds]


def _outcomes(seeds: range, jobs: int) -> Iterator[tuple[int, Outcome]]:
    """Of all seeds, in order; each process makes a few runs, 5 MB of garbage each, and ends."""
    some = [seeds[at : at + SEEDS_A_PROCESS] for at in range(0, len(seeds), SEEDS_A_PROCESS)]
    with get_context("fork").Pool(jobs, maxtasksperchild=1) as pool:
        for outcomes in pool.imap(_some, some, chunksize=1):
            yield from outcomes


def _shrunk(outcome: Outcome) -> Outcome:
    """In a process of its own: this one must not be within a run when it forks others, or they go
    on with its judge."""
    with get_context("fork").Pool(1) as pool:
        return pool.apply(shrink, (outcome,))


def many(first: int, count: int, jobs: int, most_seconds: float) -> int:
    """Run seeds; returns the exit code. Not to have run them all in time is a failure, too."""
    totals, began, said = Totals(), time.monotonic(), 0.0
    for seed, outcome in _outcomes(range(first, first + count), jobs):
        totals.add(seed, outcome)
        if outcome.violation is not None:
            sys.stdout.write(f"FAILED {report(_shrunk(outcome))}\n\n")
            if len(totals.failures) == MAX_FAILURES:
                break
        took = time.monotonic() - began
        if took >= most_seconds:
            break
        if took - said >= 5.0:
            said = took
            sys.stderr.write(f"{totals.seeds} of {count} seeds, {took:.0f} s\n")
    sys.stdout.write(totals.table(time.monotonic() - began) + "\n")
    if totals.seeds < count and not totals.failures:
        sys.stdout.write(f"only {totals.seeds} of {count} seeds within {most_seconds:.0f} s\n")
    return 1 if totals.failures or totals.seeds < count else 0


def single(seed: int, lines: int) -> int:
    """Run one seed and show all of it; returns the exit code."""
    outcome = run(make_plan(seed), keep=lines)
    sys.stdout.write(f"{report(outcome, lines=lines)}\nhash {outcome.hash}\n")
    return 0 if outcome.violation is None else 1


def hashes(seeds: Sequence[int]) -> int:
    """Print what each run came to, for comparison with another process'."""
    found = {}
    for seed in seeds:
        outcome = run(make_plan(seed))
        broken = None if outcome.violation is None else str(outcome.violation)
        found[seed] = (outcome.hash, broken)
    sys.stdout.write(json.dumps(found) + "\n")
    return 0


def _mutation(name: str) -> tuple[str, dict[str, object]]:
    """What finds a fault in the code, and what the very same run is without it."""
    found: dict[str, object] = {"seed": None, "invariant": None, "what": "", "without": None}
    began = time.process_time()
    for plan in throws(SCRIPTS[name]):
        with mutated(name):
            broken = run(plan, collect=False).violation
        if broken is not None:
            sound = run(plan, collect=False).violation
            found["seed"], found["without"] = plan.seed, None if sound is None else str(sound)
            found |= {"invariant": broken.invariant, "what": broken.what}
            break
    return name, found | {"seconds": round(time.process_time() - began, 2)}


def mutations(names: Sequence[str], jobs: int) -> int:
    """Look for faults put into the code, each in a process of its own; prints what was found."""
    with get_context("fork").Pool(jobs, maxtasksperchild=1) as pool:
        found = dict(pool.imap(_mutation, names, chunksize=1))
    sys.stdout.write(json.dumps(found) + "\n")
    return 0 if all(each["seed"] is not None for each in found.values()) else 1


def found_before() -> int:
    """Run the scripts that once found a fault; returns the exit code."""
    broken = 0
    for name, plan in FOUND.items():
        outcome = run(plan)
        broken += outcome.violation is not None
        sys.stdout.write(f"{name}: {report(outcome) if outcome.violation else 'good'}\n")
    return 1 if broken else 0


def main(argv: Sequence[str] | None = None) -> int:
    """The program; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=300, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--jobs", type=int, default=2, help="processes at once")
    parser.add_argument("--seconds", type=float, default=86_400.0, help="at most; fails if too few")
    parser.add_argument("--seed", type=int, help="run this one seed and show its trace")
    parser.add_argument("--lines", type=int, default=400, help="lines of that trace")
    parser.add_argument("--hashes", type=int, nargs="+", help="run these and print their hashes")
    parser.add_argument(
        "--mutations", nargs="*", metavar="NAME", help="find these faults in the code, or all"
    )
    parser.add_argument("--found", action="store_true", help="scripts that found faults before")
    args = parser.parse_args(argv)
    gc.collect()
    gc.freeze()  # what is here now need not be walked after each run: that took a third of it
    if args.hashes:
        return hashes(args.hashes)
    if args.found:
        return found_before()
    if args.mutations is not None:
        return mutations(args.mutations or list(MUTATIONS), args.jobs)
    if args.seed is not None:
        return single(args.seed, args.lines)
    return many(args.first, args.seeds, args.jobs, args.seconds)


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != HASH_SEED:
        os.environ["PYTHONHASHSEED"] = HASH_SEED
        os.execv(sys.executable, [sys.executable, "-m", "tests.sim", *sys.argv[1:]])
    sys.exit(main())
