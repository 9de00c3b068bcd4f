"""A thousand pools of four pods: served from cold, and when a worker dies."""

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TypeVar

from tests.bench.rows import Row
from tests.own_network import pod_ip
from tests.soak.estate import Estate, estate, say
from tests.soak.picks import NoPick
from tests.soak.table import percentile

POOLS = 1000
PODS = 4
MAKING = 24
COLD_SECONDS = 180.0
HOT = POOLS // 10
WARM_SECONDS = 25.0
WARM_PER_SECOND = 300
REWRITTEN_SECONDS = 60.0

T = TypeVar("T")


async def cold() -> list[Row]:
    """The whole fleet started over an API server that has everything; then a worker is killed."""
    with tempfile.TemporaryDirectory(prefix="epp-fleet-soak-") as folder:
        async with estate(Path(folder), audit=False) as fleet:
            pools = [f"pool-{number}" for number in range(POOLS)]
            await _made(fleet, pools)
            return [*await _served(fleet, pools), *await _death(fleet, pools)]


async def _made(fleet: Estate, pools: list[str]) -> None:
    began = time.monotonic()

    async def make(number: int) -> None:
        await fleet.apply(pools[number])
        for pod in range(PODS):
            await fleet.make_pod(pools[number], pod, pod_ip(number * PODS + pod))

    await _each(range(POOLS), make, MAKING)
    say(f"made {POOLS} pools of {PODS} pods in {time.monotonic() - began:.0f} s")


async def _served(fleet: Estate, pools: list[str]) -> list[Row]:
    await asyncio.sleep(5.0)  # what the controllers do about so many pods is done
    say("starting the fleet")
    began = time.monotonic()
    fleet.start()

    async with asyncio.timeout(COLD_SECONDS), asyncio.TaskGroup() as tasks:
        picking, refused = [], list[str]()
        for arrived in range(POOLS):
            group = await fleet.slices.arrivals.get()
            if arrived == 0:
                say(f"the first slice names an owner after {time.monotonic() - began:.1f} s")
            pool = group.service.removesuffix("-epp")
            picking.append(tasks.create_task(_until_picked(fleet, pool, refused)))
        named = time.monotonic() - began
        say(f"all slices name an owner after {named:.1f} s")
    times = [each.result() - began for each in picking]
    say(f"all pools are picked after {max(times):.1f} s; p50 {percentile(times, 50):.1f} s")
    if refused:
        say(f"refused before: {len(refused)}; the first: {refused[0]}")
    return [
        Row("1,000 pools from cold -> all slices name an owner", named, "s", 30.0),
        Row("1,000 pools from cold -> each picked once", max(times), "s", 30.0),
        Row("1,000 pools from cold: requests refused before", len(refused), "requests"),
    ]


async def _until_picked(fleet: Estate, pool: str, refused: list[str]) -> float:
    """When the pool was first served through its slice."""
    while True:
        try:
            await fleet.pick(pool)
        except NoPick as error:
            refused.append(str(error))
            await asyncio.sleep(0.1)
        else:
            return time.monotonic()


async def _death(fleet: Estate, pools: list[str]) -> list[Row]:
    await fleet.wait_ready()
    await asyncio.sleep(5.0)
    hot = pools[:HOT]
    say(f"asking for {HOT} pools for {WARM_SECONDS:g} s")
    await _warm(fleet, hot)
    named = fleet.slices.named()
    victim = max(fleet.workers, key=lambda name: named.get(fleet.address_of(name), 0))
    address = fleet.address_of(victim)
    lost = {group for group, seen in fleet.slices.seen.items() if address in seen.addresses}
    say(f"killing {victim}, which owns {len(lost)} of {named}")
    began = time.monotonic()
    fleet.workers[victim].kill()
    await fleet.slices.until(
        lambda: address not in fleet.slices.named(), "slices are rewritten", REWRITTEN_SECONDS
    )
    took = {group: fleet.slices.seen[group].at - began for group in lost}
    of_hot = [took[group] for pool in hot if (group := fleet.group(pool)) in took]
    times = list(took.values())
    return [
        Row("a worker of 3 dies: pools that it owned", len(lost), "pools"),
        Row("a worker of 3 dies -> slice rewritten, p50", percentile(times, 50), "s"),
        Row("a worker of 3 dies -> slice rewritten, p99", percentile(times, 99), "s"),
        Row("a worker of 3 dies -> slice rewritten, hot 10 %, p50", percentile(of_hot, 50), "s"),
        Row("a worker of 3 dies -> slice rewritten, hot 10 %, max", max(of_hot), "s", 1.0),
    ]


async def _warm(fleet: Estate, hot: list[str]) -> None:
    """Traffic for some pools, so that the leader knows them as hot."""
    began, sent = time.monotonic(), 0
    while time.monotonic() - began < WARM_SECONDS:
        await fleet.pick(hot[sent % len(hot)])
        sent += 1
        ahead = sent / WARM_PER_SECOND - (time.monotonic() - began)
        if ahead > 0:
            await asyncio.sleep(ahead)


async def _each(
    items: Iterable[T], work: Callable[[T], Awaitable[float | None]], at_once: int
) -> list[float]:
    """Do something to all items, some at a time; what came of it, where something did."""
    waiting = iter(items)
    found: list[float] = []

    async def one() -> None:
        for item in waiting:
            value = await work(item)
            if value is not None:
                found.append(value)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(at_once):
            tasks.create_task(one())
    return found
