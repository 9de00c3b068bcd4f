"""A hundred workers and ten thousand groups: how fast a map is with all of them, what rest costs.

The leader, its follower and Redis are real processes; the workers are fake ones in a few processes
that speak the real protocol over real connections. Routes are files in memory, as those of
`epp-fleet local` are where there is an $XDG_RUNTIME_DIR: else a busy disk is what is measured.
"""

import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

from fleet.settings.model import RedisSettings
from fleet.store.contract import Move
from fleet.store.redis import RedisStore
from tests.bench.rows import Row
from tests.fleet_processes import TOKEN, Fleet, running_fleet
from tests.soak.crowd import Receipt
from tests.soak.estate import say
from tests.soak.field import Field, machine
from tests.soak.table import percentile

WORKERS = 100
CROWDS = 4
GROUPS = 10_000
START_SECONDS = 180.0
REST_SECONDS = 60.0
SETTLE_SECONDS = 20.0
CHANGES = 40
PAUSE_SECONDS = 3.0
_MEMORY = os.environ.get("XDG_RUNTIME_DIR", "/dev/shm")
_TICKS = 100.0
"""Of a second, in /proc/PID/stat."""


async def hundred() -> list[Row]:
    """Rest first, then drains and their ends."""
    return await asyncio.to_thread(_measured)


def _measured() -> list[Row]:
    with ExitStack() as stack:
        routes = stack.enter_context(tempfile.TemporaryDirectory(dir=_MEMORY, prefix="epp-fleet-"))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="epp-fleet-soak-")))
        fleet = stack.enter_context(running_fleet(folder))
        fleet.prepare(GROUPS, routes={"eds_directory": routes})
        began = time.monotonic()
        crowds = [stack.enter_context(_crowd(fleet, number)) for number in range(CROWDS)]
        field = Field(fleet, GROUPS)
        field.add_coordinator()
        field.add_coordinator()
        _until_owned(field)
        say(f"{GROUPS} groups are with {WORKERS} workers after {time.monotonic() - began:.0f} s")
        time.sleep(SETTLE_SECONDS)
        rows = _rest(field)
        commands = [_drained(field, f"worker-{number}") for number in range(CHANGES)]
        receipts = [receipt for crowd in crowds for receipt in crowd.end()]
        moves = asyncio.run(_moves(fleet))
    return [*rows, *_spread(receipts, moves, commands[0]), *_commands(receipts, commands)]


class Crowd:
    """A process of fake workers."""

    def __init__(self, process: "subprocess.Popen[bytes]", out: Path) -> None:
        self._process = process
        self._out = out

    def end(self) -> list[Receipt]:
        """Stop it; what it noted."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)
        return msgspec.json.decode(self._out.read_bytes(), type=list[Receipt])


@contextlib.contextmanager
def _crowd(fleet: Fleet, number: int) -> Iterator[Crowd]:
    count = WORKERS // CROWDS
    out = fleet.folder / f"crowd-{number}.json"
    words = [fleet.valkey.url, TOKEN, str(number * count), str(count), str(out)]
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.soak.crowd", *words], stdin=subprocess.PIPE
    )
    try:
        yield Crowd(process, out)
    finally:
        process.kill()
        process.wait(10)


def _until_owned(field: Field) -> None:
    """All groups, by all workers; asked rarely, since the answer is work for the leader."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        time.sleep(1.0)
        with contextlib.suppress(OSError):
            some = next(iter(field.coordinators.values()))
            owned = [worker["owned"] for worker in some.get("/api/v1/workers")["workers"]]
            if sum(owned) == GROUPS and len(owned) == WORKERS:
                return
        assert time.monotonic() < deadline, "the groups are not all owned"


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _rest(field: Field) -> list[Row]:
    leader = field.coordinators[field.leader()]
    follower = next(c for c in field.coordinators.values() if c is not leader)
    watched = {
        "Redis": field.fleet.valkey.pid,
        "the leader": leader.process.pid,
        "the follower": follower.process.pid,
    }
    say(f"at rest for {REST_SECONDS:g} s; {machine()}")
    before = {name: _cpu_seconds(pid) for name, pid in watched.items()}
    began = time.monotonic()
    time.sleep(REST_SECONDS)
    seconds = time.monotonic() - began
    targets = {"Redis": 5.0, "the leader": 20.0}
    return [
        Row(
            f"100 workers, 10,000 groups at rest: {name}",
            100.0 * (_cpu_seconds(pid) - before[name]) / seconds,
            "% of a core",
            targets.get(name),
        )
        for name, pid in watched.items()
    ]


def _drained(field: Field, worker: str) -> float:
    """Drain and undrain one; the wall time of the command."""
    at = time.time()
    field.command(worker, "drain")
    time.sleep(PAUSE_SECONDS)
    field.command(worker, "undrain")
    time.sleep(PAUSE_SECONDS)
    return at


async def _moves(fleet: Fleet) -> Sequence[Move]:
    store = RedisStore(RedisSettings(fleet.valkey.url), "tests")
    try:
        return await store.moves(10_000)
    finally:
        await store.close()


def _spread(receipts: Sequence[Receipt], moves: Sequence[Move], since: float) -> list[Row]:
    """From the leader's decision, which stands in the audit stream, to the last worker.

    Args:
        since: before it the workers were still starting.
    """
    decided = {
        move.version: move.finished for move in moves if move.source and move.finished >= since
    }
    last: dict[tuple[int, int], float] = defaultdict(float)
    told: dict[tuple[int, int], int] = defaultdict(int)
    for receipt in receipts:
        key = (receipt.epoch, receipt.version)
        last[key] = max(last[key], receipt.at)
        told[key] += 1
    took = [last[version] - at for version, at in decided.items() if version in last]
    workers = [told[version] for version in decided if version in last]
    say("decided -> last worker: " + ", ".join(f"{each * 1e3:.0f}" for each in took) + " ms")
    say(f"workers that each concerned: {workers}; {machine()}")
    return [
        Row("100 workers: maps that moved groups", len(took), "maps"),
        Row(
            "100 workers: map decided -> last worker has it, p50", percentile(took, 50) * 1e3, "ms"
        ),
        Row(
            "100 workers: map decided -> last worker has it, p99",
            percentile(took, 99) * 1e3,
            "ms",
            100.0,
        ),
    ]


def _commands(receipts: Sequence[Receipt], commands: Sequence[float]) -> list[Row]:
    """From the command to drain to the last worker that got the next map because of it."""
    ordered = sorted(receipts, key=lambda receipt: receipt.at)
    took = []
    for at in commands:
        after = [receipt for receipt in ordered if receipt.at > at]
        first = (after[0].epoch, after[0].version)
        took.append(max(r.at for r in after if (r.epoch, r.version) == first) - at)
    name = "100 workers: drain commanded -> last gainer has the map"
    return [
        Row(f"{name}, p50", percentile(took, 50) * 1e3, "ms"),
        Row(f"{name}, max", max(took) * 1e3, "ms"),
    ]
