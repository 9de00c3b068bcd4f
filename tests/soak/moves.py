"""Planned moves under steady traffic: drains, a worker more and less, a roll-out. None is lost."""

import asyncio
import signal
import time

from tests.bench.rows import Row
from tests.soak.estate import say
from tests.soak.field import Field, field, machine
from tests.soak.gateway import WAYS, Gateway

REQUESTS = 100_000
PER_SECOND = 400.0
"""On each way."""

MOVES = 50
PAUSE_SECONDS = 2.0
RELEASE = {"EPP_FLEET_WORKER__RELEASE": "2"}


async def planned() -> list[Row]:
    """Both ways at once."""
    async with field() as (fleet, gateway):
        began = time.monotonic()
        async with (
            fleet.load(gateway.addresses["eds"], PER_SECOND) as eds,
            fleet.load(gateway.addresses["sticky"], PER_SECOND) as sticky,
        ):
            await _drains(fleet)
            await _one_more_and_less(fleet)
            await _roll_out(fleet)
            say(f"{gateway.moves} moves in {time.monotonic() - began:.0f} s; {machine()}")
            while not _enough(gateway, time.monotonic() - began):
                await _drains(fleet)
            seconds = time.monotonic() - began
        rows = [
            Row("moves: groups that moved", gateway.moves, "moves", MOVES, at_least=True),
            Row("moves: time", seconds, "s"),
        ]
        for way, counts in zip(WAYS, (eds, sticky), strict=True):
            counts.tell(f"moves, {way}")
            rows += counts.rows(f"moves, {way}", lossless=True, least=REQUESTS)
    return rows


def _enough(gateway: Gateway, seconds: float) -> bool:
    return seconds * PER_SECOND > REQUESTS * 1.02 and gateway.moves >= MOVES


async def _drains(fleet: Field) -> None:
    """Each worker in turn."""
    for name in list(fleet.workers):
        await asyncio.to_thread(fleet.command, name, "drain")
        await fleet.until_free(name)
        await asyncio.sleep(PAUSE_SECONDS)
        await asyncio.to_thread(fleet.command, name, "undrain")
        await fleet.until_shared()
        await asyncio.sleep(PAUSE_SECONDS)


async def _one_more_and_less(fleet: Field) -> None:
    name = fleet.add_worker()
    await fleet.until_shared()
    await asyncio.sleep(PAUSE_SECONDS)
    await _leave(fleet, name)


async def _leave(fleet: Field, name: str) -> None:
    """As a pod that is deleted: it goes once all is handed away and no stray comes any more."""
    fleet.workers.pop(name).signal(signal.SIGTERM)
    await fleet.until_free(name)
    await asyncio.sleep(PAUSE_SECONDS)


async def _roll_out(fleet: Field) -> None:
    """One new, one old, in turn."""
    fleet.fleet.environment["epp_worker"] = RELEASE
    for old in list(fleet.workers):
        new = fleet.add_worker()
        await fleet.until(f"{new} is there", lambda new=new: _joined(fleet, new))  # type: ignore[misc]
        await _leave(fleet, old)
    await fleet.until_shared()


def _joined(fleet: Field, worker: str) -> bool:
    leader = fleet.coordinators.get(fleet.leader())
    if leader is None:
        return False
    shown = leader.get("/api/v1/workers")["workers"]
    return any(each["id"] == worker and each["state"] == "alive" for each in shown)
