"""A worker that has nothing of a pool, whose streams lead to it, while the pool's owner is killed.

Real processes, a real leader: each stream that had no answer yet gets one from the stand-by, or
here, if this worker becomes the next stand-by meanwhile.
"""

import asyncio
import re
import time
import urllib.request
from pathlib import Path
from typing import Any

from tests.fleet_processes import Child, Fleet, running_fleet, until
from tests.unit import extproc_messages
from tests.worker_inprocess import Gateway, endpoint_in, picked_on

AUTHORITY = "pool-0-epp.ns1.svc:9002"
SECONDS = 20.0


def start(fleet: Fleet) -> tuple[Child, Child, Child]:
    """The only pool's owner, its stand-by, and the third worker."""
    fleet.prepare(1)
    coordinator = fleet.coordinator("c0")
    workers = {name: fleet.worker(name) for name in ("worker-0", "worker-1", "worker-2")}

    def pool() -> dict[str, Any]:
        shown = fleet.map(coordinator)
        return shown["pools"][0] if shown is not None and shown["pools"] else {}

    def members() -> int:
        return len(coordinator.get("/api/v1/workers")["workers"])

    until("all three are members", lambda: fleet.map(coordinator) is not None and members() == 3)
    until("the pool is owned and backed", lambda: bool(pool().get("standby")))
    until("it is owned", lambda: pool()["phase"] == "owned")
    owner, standby = pool()["owners"][0], pool()["standby"]
    (third,) = workers.keys() - {owner, standby}
    return workers[owner], workers[standby], workers[third]


def metrics(worker: Child) -> str:
    """Its metrics page."""
    url = f"http://127.0.0.1:{worker.ports['http']}/metrics"
    with urllib.request.urlopen(url, timeout=5) as response:
        text: str = response.read().decode()
        return text


async def answer(call: Any) -> str:
    """The endpoint that was picked in the end."""
    async with asyncio.timeout(SECONDS):
        data = await call.read()
    assert isinstance(data, bytes), f"{await call.code()} {await call.details()}"
    return endpoint_in(data)


async def test_streams_without_an_answer_survive_the_death_of_the_owner(tmp_path: Path) -> None:
    """Half a body is at the owner when it dies; whoever answers gets it from the beginning."""
    with running_fleet(tmp_path) as fleet:
        owner, _, third = start(fleet)
        gateway = Gateway(f"127.0.0.1:{third.ports['ext-proc']}", AUTHORITY)
        assert await picked_on(gateway.stream()) == "127.0.0.100:8000"
        calls = [gateway.stream() for _ in range(10)]
        for call in calls:
            await call.write(extproc_messages.request_headers())
            await call.write(extproc_messages.request_body(b'{"model": "m", "prompt": "'))
        until("all are at the owner", lambda: "epp_fleet_streams_open 11.0" in metrics(owner))
        killed = time.monotonic()
        owner.kill()
        for call in calls:
            await call.write(extproc_messages.request_body(b'x"}', end_of_stream=True))
        assert [await answer(call) for call in calls] == ["127.0.0.100:8000"] * 10
        assert time.monotonic() - killed < SECONDS
        counts = dict(re.findall(r'strays_total{outcome="(\w+)"} (\d+)', metrics(third)))
        # The third may be the new stand-by, and then answers what it had to hold by itself.
        assert int(counts["forwarded"]) + int(counts["held"]) == 11, counts
        assert (counts["served"], counts["failed"]) == ("0", "0")
        await gateway.close()
