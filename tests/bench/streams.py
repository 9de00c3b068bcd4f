"""ext_proc streams per second, and what each costs: a worker beside a `grpc.aio` server that picks
with the same code.

Both take the same load in turns, five times each; a row tells medians. Servers are bound to one
core and the load, a process of its own, to another. Every stream is ended by RST_STREAM, as an
Envoy does it. Latency is that of the request's answers, from the instant at which it was due.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from statistics import median

from tests.bench.load import Outcome, Plan
from tests.bench.rows import Row, StreamsRow
from tests.bench.served import LOAD_CORE, Options, Served

RUNS = 5
HELD = 5_000
OPEN_RATE = 500.0
_BUSY = 0.9
_TIMEOUT_SECONDS = 120


@dataclass(frozen=True, slots=True)
class _Load:
    """A row to be.

    Attributes:
        baseline: what takes the same load in the same runs, for the ratio: "grpcio", with the same
            options, or this worker's own "plaintext".
        half: the rate is half of what the main row reached, on each server of its own.
    """

    name: str
    plan: Plan
    options: Options = field(default_factory=Options)
    baseline: str = "grpcio"
    half: bool = False


_MAIN = Plan(0, "whole", core=LOAD_CORE)
_LOADS = (
    _Load("2 KiB, response", _MAIN),
    _Load("8 KiB, response", replace(_MAIN, script="whole8")),
    _Load("64 KiB, response", replace(_MAIN, script="whole64")),
    _Load("2 KiB, 64 events at once", replace(_MAIN, script="events", seconds=2.0)),
    _Load("2 KiB, 64 events one by one", replace(_MAIN, script="events-apart", seconds=2.0)),
    _Load("2 KiB, request alone", replace(_MAIN, script="pick")),
    _Load("2 KiB, detached", replace(_MAIN, script="detached"), Options(detach=True)),
    _Load("2 KiB, response, anybody", _MAIN, Options(anybody=True)),
    _Load("2 KiB, response, TLS", replace(_MAIN, tls=True), Options(tls=True), "plaintext"),
    _Load("2 KiB, response, 1 in flight", replace(_MAIN, in_flight=1)),
    _Load("2 KiB, response, 16 in flight", replace(_MAIN, in_flight=16)),
    _Load("2 KiB, response, 256 in flight", replace(_MAIN, in_flight=256)),
    _Load("2 KiB, response, 500/s", replace(_MAIN, rate=OPEN_RATE, seconds=2.0)),
    _Load("2 KiB, response, half load", replace(_MAIN, seconds=2.0), half=True),
)


def load(plan: Plan) -> Outcome:
    """Carry out a plan, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.load"],
        input=json.dumps(asdict(plan)),
        stdout=subprocess.PIPE,
        text=True,
        timeout=_TIMEOUT_SECONDS,
        check=True,
    )
    return Outcome(**json.loads(done.stdout))


class Runs:
    """Some outcomes of the same plan, as medians."""

    def __init__(self, outcomes: Sequence[Outcome]) -> None:
        self.rate = median(each.streams / each.seconds for each in outcomes)
        self.failed = sum(each.failed for each in outcomes)
        self.cpu_us = [
            median(each.cpu[n] / max(1, each.streams) * 1e6 for each in outcomes)
            for n in range(len(outcomes[0].cpu))
        ]
        self.p50, self.p99 = (median(each.picks[n] for each in outcomes) for n in (0, 1))
        self.whole_p50, self.whole_p99 = (
            median(each.wholes[n] for each in outcomes) for n in (0, 1)
        )
        self.busy = median(each.cpu[0] / each.seconds for each in outcomes)
        self.own_busy = median(each.own_cpu / each.seconds for each in outcomes)

    def limit(self, *, given: bool = False) -> str:
        """What kept it from more."""
        if given:
            return "the given rate"
        if self.busy >= _BUSY:
            return "the server's core"
        if self.own_busy >= _BUSY:
            return "the load"
        return f"neither: server {self.busy:.0%} busy, load {self.own_busy:.0%} (others' work?)"


def _measure(each: _Load, halves: tuple[float, float]) -> tuple[Runs, Runs]:
    with ExitStack() as stack:
        servers = [stack.enter_context(Served("worker", each.options))]
        plans = [each.plan, replace(each.plan, tls=False)]
        kind = "grpcio" if each.baseline == "grpcio" else "worker"
        options = replace(each.options, tls=False)
        servers.append(stack.enter_context(Served(kind, options)))
        outcomes: list[list[Outcome]] = [[] for _ in servers]
        for _ in range(RUNS):
            for server, asked, half, found in zip(servers, plans, halves, outcomes, strict=True):
                plan = replace(asked, port=server.port, pids=(server.pid,))
                found.append(load(replace(plan, rate=half) if each.half else plan))
    ours, theirs = (Runs(found) for found in outcomes)
    return ours, theirs


def rows() -> Iterator[Row | StreamsRow]:
    """The room."""
    halves = (0.0, 0.0)
    for each in _LOADS:
        ours, theirs = _measure(each, halves)
        given = bool(each.plan.rate) or each.half
        ratio = None
        also: dict[str, float] = {"whole p99 ms": ours.whole_p99}
        if theirs.rate:
            ratio = theirs.cpu_us[0] / ours.cpu_us[0] if given else ours.rate / theirs.rate
            also[f"{each.baseline}/s"] = theirs.rate
            also[f"{each.baseline} us"] = theirs.cpu_us[0]
            also[f"{each.baseline} p99 ms"] = theirs.p99
            also["ratio of CPU"] = theirs.cpu_us[0] / ours.cpu_us[0]
            if not halves[0]:
                halves = (ours.rate / 2, theirs.rate / 2)
        if ours.failed:
            also["failed"] = ours.failed
        yield StreamsRow(
            each.name,
            ours.rate,
            ours.cpu_us[0],
            ours.p50,
            ours.p99,
            ratio,
            ours.limit(given=given),
            also,
        )
        if each.plan.tls:
            share = 100 * theirs.cpu_us[0] / ours.cpu_us[0]  # of the rate, where the core is full
            yield Row("TLS keeps of the plaintext rate", share, "%", 60.0, at_least=True)
    yield from _held()


def _held() -> Iterator[Row | StreamsRow]:
    with Served("worker", Options()) as server:
        plan = replace(_MAIN, port=server.port, pids=(server.pid,), hold=HELD)
        outcomes = [load(plan)]
    runs = Runs(outcomes)
    yield StreamsRow(
        f"2 KiB, response, {HELD:,} more are held",
        runs.rate,
        runs.cpu_us[0],
        runs.p50,
        runs.p99,
        None,
        runs.limit(),
    )
    yield Row("a held stream", outcomes[0].held_bytes / 1000, "kB", 4.0)
