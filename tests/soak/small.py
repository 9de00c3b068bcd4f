"""Scenarios of a fleet with some dozens of pools."""

import asyncio
import contextlib
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from tests.bench.rows import Row
from tests.control_plane.objects import delete_pod
from tests.own_network import pod_ip
from tests.soak.estate import WORKER_COUNT, Estate, estate, say
from tests.soak.model_servers import PORT
from tests.soak.picks import NoPick
from tests.soak.table import percentile

POOLS = 50
ROUNDS = 20
WATCHED_SECONDS = 1.0
"""How long a pod that is gone must stay away."""

SERVED_SECONDS = 20.0
SETTLE_SECONDS = 10.0
REST_SECONDS = 60.0
DEATHS = 3
PAUSE_SECONDS = 0.002


def spread(
    name: str, seconds: Sequence[float], scale: float, unit: str, target: float
) -> list[Row]:
    """p50, and p99 with the target, of times."""
    return [
        Row(f"{name}, p50", percentile(seconds, 50) * scale, unit),
        Row(f"{name}, p99", percentile(seconds, 99) * scale, unit, target),
    ]


@contextlib.asynccontextmanager
async def started() -> AsyncIterator[Estate]:
    """A small estate whose fleet runs and serves a first pool."""
    with tempfile.TemporaryDirectory(prefix="epp-fleet-soak-") as folder:
        async with estate(Path(folder)) as made:
            made.start()
            await made.wait_ready()
            await made.make_pod("first", 0, pod_ip(0))
            await applied_and_picked(made, "first")
            yield made


async def applied_and_picked(fleet: Estate, pool: str) -> float:
    """Apply a pool; seconds from then until a pick through its slice's address."""
    began = time.monotonic()
    await fleet.apply(pool)
    group = fleet.group(pool)
    address = await fleet.slices.address(group, SERVED_SECONDS)
    await fleet.gateway.pick(address, fleet.authority(pool))
    return time.monotonic() - began


async def apply() -> list[Row]:
    """Pools that are applied to a fleet that runs: one after another, and then all at once."""
    async with started() as fleet:
        single = [f"single-{number}" for number in range(POOLS)]
        many = [f"many-{number}" for number in range(POOLS)]
        for number, pool in enumerate((*single, *many)):
            await fleet.make_pod(pool, 0, pod_ip(number + 1))
        await asyncio.sleep(1.0)
        say(f"applying {POOLS} pools, one after another")
        alone = [await applied_and_picked(fleet, pool) for pool in single]
        say(f"applying {POOLS} pools at once")
        crowd = await asyncio.gather(*(applied_and_picked(fleet, pool) for pool in many))
        return [
            *spread("pool applied -> first pick, one by one", alone, 1.0, "s", 1.0),
            *spread("pool applied -> first pick, 50 at once", crowd, 1.0, "s", 1.0),
        ]


class _Asking:
    """Requests to a pool, one after another, until it is closed.

    Attributes:
        picked: by endpoint: when the last request was sent that it was picked for.
        first: by endpoint: when the first answer came that named it.
    """

    def __init__(self, fleet: Estate, pool: str) -> None:
        self.first: dict[str, float] = {}
        self.picked: dict[str, float] = {}
        self._task = asyncio.create_task(self._ask(fleet, pool))

    async def until_picked(self, endpoint: str) -> float:
        """When it was picked first."""
        async with asyncio.timeout(SERVED_SECONDS):
            while endpoint not in self.first:
                assert not self._task.done(), self._task
                await asyncio.sleep(PAUSE_SECONDS)
        return self.first[endpoint]

    async def close(self) -> None:
        """Ask no more."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _ask(self, fleet: Estate, pool: str) -> None:
        while True:
            asked = time.monotonic()
            endpoint = await fleet.pick(pool)
            self.first.setdefault(endpoint, time.monotonic())
            self.picked[endpoint] = asked
            await asyncio.sleep(PAUSE_SECONDS)


async def pods() -> list[Row]:
    """A second pod of a pool that comes and goes, while a gateway asks all the time; from the
    moment at which the change is sent to the API server."""
    async with started() as fleet:
        came, went = await come_and_go(fleet, ROUNDS)
    return [
        *spread("pod Ready -> picked", came, 1e3, "ms", 200.0),
        *spread("pod gone -> never picked again", went, 1e3, "ms", 200.0),
    ]


async def come_and_go(fleet: Estate, rounds: int) -> tuple[list[float], list[float]]:
    """So many pods of the first pool, one after another: seconds until each is picked, and until
    none is picked any more that is gone."""
    came, went = [], []
    say(f"{rounds} pods come and go")
    asking = _Asking(fleet, "first")
    for number in range(1, rounds + 1):
        ip = pod_ip(number)
        endpoint = f"{ip}:{PORT}"
        name = await fleet.make_pod("first", number, ip, ready=False)
        await asyncio.sleep(0.2)
        assert endpoint not in asking.first, "picked before it was Ready"
        began = time.monotonic()
        await fleet.set_ready(name, ip)
        came.append(await asking.until_picked(endpoint) - began)
        await asyncio.sleep(0.2)
        began = time.monotonic()
        await delete_pod(fleet.api, fleet.tenant, name)
        await asyncio.sleep(WATCHED_SECONDS)
        went.append(max(0.0, asking.picked[endpoint] - began))
    await asking.close()
    return came, went


async def rest() -> list[Row]:
    """What the fleet asks the API server for while nothing happens."""
    async with started() as fleet:
        await _with_pools(fleet)
        await asyncio.sleep(SETTLE_SECONDS)
        say(f"counting for {REST_SECONDS:g} s")
        before = len(_asked(fleet))
        began = time.monotonic()
        await asyncio.sleep(REST_SECONDS)
        seconds = time.monotonic() - began
        counted = Counter(map(_kind, _asked(fleet)[before:]))
        say(f"asked: {dict(counted)}")
        watches = sum(n for (verb, _), n in counted.items() if verb == "watch")
        leases = sum(n for (_, resource), n in counted.items() if resource == "leases")
        leases -= counted[("watch", "leases")]
        others = counted.total() - watches - leases
        return [
            Row("at rest: requests besides watches and the Lease", others / seconds, "1/s", 1.0),
            Row("at rest: requests for the Lease", leases / seconds, "1/s"),
            Row("at rest: watches that began", watches / seconds, "1/s"),
        ]


async def _with_pools(fleet: Estate) -> None:
    """As many as a scenario has, of one pod each."""
    for number in range(1, POOLS):
        pool = f"pool-{number}"
        await fleet.make_pod(pool, 0, pod_ip(number))
        await applied_and_picked(fleet, pool)


def _asked(fleet: Estate) -> list[dict[str, Any]]:
    """Requests of the fleet's accounts; a watch is in the log when it begins and when it ends."""
    accounts = f"system:serviceaccount:{fleet.home.namespace}:epp-fleet-"
    return [
        event
        for event in fleet.plane.audit_events(user=accounts)
        if event["verb"] != "watch" or event["stage"] == "ResponseStarted"
    ]


def _kind(event: dict[str, Any]) -> tuple[str, str]:
    return event["verb"], event.get("objectRef", {}).get("resource", event["requestURI"])


async def store() -> list[Row]:
    """Redis is stopped, then a worker is killed: only the Lease and the streams are left."""
    async with started() as fleet:
        await _with_pools(fleet)
        took = [
            await _death_without_store(fleet, f"worker-{death % WORKER_COUNT}")
            for death in range(DEATHS)
        ]
    return [Row("Redis stopped, worker killed -> all slices rewritten, max", max(took), "s", 5.0)]


async def _death_without_store(fleet: Estate, victim: str) -> float:
    """Seconds from the worker's death until no slice names it; then all is as before."""
    address = fleet.address_of(victim)
    await fleet.slices.until(lambda: address in fleet.slices.named(), f"{victim} owns", 30.0)
    fleet.valkey.kill()
    await asyncio.sleep(1.0)
    say(f"Redis is stopped; killing {victim} with {fleet.slices.named()[address]} pools")
    began = time.monotonic()
    fleet.workers[victim].kill()
    await fleet.slices.until(
        lambda: address not in fleet.slices.named(), "slices are rewritten", 30.0
    )
    took = time.monotonic() - began
    await _all_picked(fleet)
    fleet.valkey.start()
    fleet.workers[victim].start()
    await asyncio.sleep(SETTLE_SECONDS)
    await fleet.until_joined(WORKER_COUNT)
    return took


async def _all_picked(fleet: Estate) -> None:
    """Every pool is served by whoever its slice names now.

    Raises:
        AssertionError: one is not.
    """
    for group in fleet.slices.seen:
        pool = group.service.removesuffix("-epp")
        try:
            await fleet.pick(pool)
        except NoPick as error:
            raise AssertionError(f"{pool} is not served: {error}") from None
