"""Sudden faults under steady traffic: how long until new requests are good again, what is lost.

A run is one fault to a fleet that has recovered from the last one. A worker that is lost is
replaced by a new one, as a Deployment does. "Good again" is the time from the fault to the first
request that was sent after the last bad one.
"""

import asyncio
import time
from collections.abc import Callable

from fleet.local.demo_events import traffic_recovery
from tests.bench.rows import Row
from tests.soak import hole
from tests.soak.estate import say
from tests.soak.field import Counts, Field, field, machine
from tests.soak.table import percentile

PER_SECOND = 300.0
APART_SECONDS = 16.0
"""Between two faults: pools whose arrival killed two workers within 10 s are in quarantine."""

WATCHED_SECONDS = 8.0
"""Requests that were sent this long after a fault count for its recovery; later ones are answered
or cut by the next."""

Fault = Callable[[Field], float]
"""Does it, and says when."""


def _kill(fleet: Field) -> float:
    """kill -9 of the worker that owns most."""
    victim = fleet.busiest()
    at = time.monotonic()
    fleet.discard(victim)
    return at


def _stop(fleet: Field) -> float:
    """SIGSTOP of the worker that owns most: its connections are open, nothing is answered."""
    victim = fleet.busiest()
    at = time.monotonic()
    fleet.freeze(victim)
    return at


def _cut_off(fleet: Field) -> float:
    """Nothing reaches the worker that owns most any more, nor it the store."""
    victim = fleet.busiest()
    at = time.monotonic()
    fleet.cut_off(victim)
    return at


def _kill_both(fleet: Field) -> float:
    """kill -9 of the leader and of the worker that owns most, at once."""
    leader, victim = fleet.leader(), fleet.busiest()
    at = time.monotonic()
    fleet.discard_coordinator(leader)
    fleet.discard(victim)
    return at


async def kill() -> list[Row]:
    """A worker is killed."""
    took, counts = await _runs("worker killed", _kill, 20)
    return [
        Row("worker killed: runs", len(took), "runs", 20, at_least=True),
        Row("worker killed -> new requests good again, p50", percentile(took, 50), "s", 0.3),
        Row("worker killed -> new requests good again, max", max(took), "s", 1.0),
        *counts.rows("worker killed", lossless=False),
    ]


async def partition() -> list[Row]:
    """A worker hangs."""
    took, counts = await _runs("worker stopped", _stop, 6)
    return [
        Row("worker stopped (SIGSTOP): runs", len(took), "runs"),
        Row("worker stopped -> new requests good again, p50", percentile(took, 50), "s"),
        Row("worker stopped -> new requests good again, max", max(took), "s", 2.5),
        *counts.rows("worker stopped", lossless=False),
    ]


async def cut() -> list[Row]:
    """The network swallows all that is sent to a worker."""
    hole.begin()
    took, counts = await _runs("worker cut off", _cut_off, 5, addressed=True)
    return [
        Row("worker cut off (black hole): runs", len(took), "runs"),
        Row("worker cut off -> new requests good again, p50", percentile(took, 50), "s"),
        Row("worker cut off -> new requests good again, max", max(took), "s", 2.5),
        *counts.rows("worker cut off", lossless=False),
    ]


async def both() -> list[Row]:
    """Leader and worker die together; the lease is in Redis."""
    took, counts = await _runs("leader and worker killed", _kill_both, 6)
    return [
        Row("leader and worker killed: runs", len(took), "runs"),
        Row("leader and worker killed -> good again, p50", percentile(took, 50), "s"),
        Row("leader and worker killed -> good again, max", max(took), "s", 4.5),
        *counts.rows("leader and worker killed", lossless=False),
    ]


async def _runs(
    name: str, fault: Fault, runs: int, *, addressed: bool = False
) -> tuple[list[float], Counts]:
    """Seconds until good again, by run, and all that clients saw."""
    times = []
    async with field(addressed=addressed) as (fleet, gateway):
        async with fleet.load(gateway.addresses["eds"], PER_SECOND) as counts:
            for _ in range(runs):
                await asyncio.sleep(APART_SECONDS - 5.0)
                times.append(await asyncio.to_thread(fault, fleet))
                await asyncio.sleep(5.0)
                fleet.replace_lost()
                await fleet.until_shared()
            await asyncio.sleep(2.0)
        counts.tell(name)
        say(f"{name}: {machine()}")
    return _recoveries(times, counts), counts


def _recoveries(times: list[float], counts: Counts) -> list[float]:
    took = []
    for at in times:
        end = at + WATCHED_SECONDS
        recovery = traffic_recovery(at, [r for r in counts.records if at <= r.began < end])
        took.append(WATCHED_SECONDS if recovery is None else recovery)
    say("good again after " + ", ".join(f"{each:.2f}" for each in took) + " s")
    return took
