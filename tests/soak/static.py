"""Redis and every coordinator are gone for a minute: what is placed is served as ever."""

import asyncio
import time
from pathlib import Path

from tests.bench.rows import Row
from tests.control_plane.objects import eventually
from tests.own_network import pod_ip
from tests.soak.estate import Estate, say
from tests.soak.model_servers import PORT
from tests.soak.picks import NoPick
from tests.soak.small import applied_and_picked, come_and_go, spread, started

POOLS = 30
ROUNDS = 40
"""Of a pod that comes and goes; each takes about 1.5 s, together a minute."""

FIRST_IP = 200
"""Pods of the pools that are only asked have addresses from here on."""

PAUSE_SECONDS = 0.01
SETTLE_SECONDS = 10.0


class _Asked:
    """Requests to pools of one pod each, in turn, until it is closed.

    Attributes:
        wrong: what was answered otherwise than by the pool's own pod.
    """

    def __init__(self, fleet: Estate, pools: dict[str, str]) -> None:
        self.count = 0
        self.wrong: list[str] = []
        self._fleet = fleet
        self._pools = pools
        self._task = asyncio.create_task(self._ask())

    async def close(self) -> None:
        """Ask no more."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _ask(self) -> None:
        while True:
            for pool, endpoint in self._pools.items():
                self.count += 1
                try:
                    picked = await self._fleet.pick(pool)
                except (NoPick, AssertionError) as error:
                    picked = str(error)
                if picked != endpoint:
                    self.wrong.append(f"{pool}: {picked}")
                await asyncio.sleep(PAUSE_SECONDS)


async def alone() -> list[Row]:
    """Pools are asked and pods come and go while neither Redis nor a coordinator is there."""
    async with started() as fleet:
        pools = {}
        for number in range(POOLS):
            ip = pod_ip(FIRST_IP + number)
            await fleet.make_pod(f"pool-{number}", 0, ip)
            await applied_and_picked(fleet, f"pool-{number}")
            pools[f"pool-{number}"] = f"{ip}:{PORT}"
        await asyncio.sleep(SETTLE_SECONDS)
        before = _routes(fleet)
        say("stopping Redis and both coordinators")
        fleet.valkey.kill()
        for coordinator in fleet.coordinators.values():
            coordinator.kill()
        memory = _memory(fleet)
        began = time.monotonic()
        asked = _Asked(fleet, pools)
        came, went = await come_and_go(fleet, ROUNDS)
        await asked.close()
        seconds = time.monotonic() - began
        grown = max(after - memory[name] for name, after in _memory(fleet).items())
        for wrong in asked.wrong[:5]:
            say(wrong)
        say(f"{asked.count} requests in {seconds:.0f} s; starting them again")
        fleet.valkey.start()
        for coordinator in fleet.coordinators.values():
            coordinator.start()
        await _led_again(fleet)
        await asyncio.sleep(SETTLE_SECONDS)
        moved = await _moved(fleet, before)
    return [
        Row("alone: seconds without Redis and coordinators", seconds, "s"),
        Row("alone: requests", asked.count, "requests"),
        Row("alone: requests that were not answered right", len(asked.wrong), "", 0.0),
        *spread("alone: pod Ready -> picked", came, 1e3, "ms", 200.0),
        *spread("alone: pod gone -> never picked again", went, 1e3, "ms", 200.0),
        Row("alone: memory that a worker grew by, max", grown, "MiB", 8.0),
        Row("alone: pools that moved afterwards, but for balance", moved, "", 0.0),
    ]


def _routes(fleet: Estate) -> dict[str, tuple[str, ...]]:
    return {str(group): tuple(seen.addresses) for group, seen in fleet.slices.seen.items()}


async def _moved(fleet: Estate, before: dict[str, tuple[str, ...]]) -> int:
    """Pools whose route is another now, but those that were moved for balance: their load is known
    only once somebody leads."""
    after = _routes(fleet)
    reasons: dict[str, str] = {}
    for coordinator in fleet.coordinators.values():
        shown = await asyncio.to_thread(coordinator.get, "/api/v1/map")
        reasons |= {pool["group"]: pool["reason"] for pool in (shown or {"pools": []})["pools"]}
    others = {group for group in before if before[group] != after.get(group)}
    for group in others:
        say(f"{group}: {before[group]} -> {after.get(group)}: {reasons.get(group)}")
    return sum(reasons.get(group) != "balance" for group in others)


def _memory(fleet: Estate) -> dict[str, float]:
    """Resident memory of each worker in MiB."""
    found = {}
    for name, worker in fleet.workers.items():
        status = Path(f"/proc/{worker.process.pid}/status").read_text()
        (line,) = [line for line in status.splitlines() if line.startswith("VmRSS:")]
        found[name] = int(line.split()[1]) / 1024
    return found


async def _led_again(fleet: Estate) -> None:
    async def joined() -> bool:
        return list((await fleet.states()).values()).count("alive") == len(fleet.workers)

    await eventually(joined, "all workers are in use again")
