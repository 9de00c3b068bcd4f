"""Coordinators and Redis are gone for good; a worker that is killed comes back as if they were not.

Real processes. What it held it learns from its peers; where it cannot ask them, streams of its
groups wait, and fail.
"""

import json
import urllib.error
import urllib.request
from pathlib import Path

import grpc

from tests.fleet_processes import TOKEN, Child, Fleet, Json, running_fleet, until
from tests.neighbours import ended
from tests.unit import extproc_messages
from tests.worker_inprocess import Gateway, picked_on

WORKERS = {"worker-0", "worker-1", "worker-2"}
HOLD_SECONDS = 1.5


def debug(worker: Child) -> Json | None:
    """What it holds; None while it does not listen."""
    url = f"http://127.0.0.1:{worker.ports['http']}/debug/holds"
    request = urllib.request.Request(url, headers={"authorization": f"Bearer {TOKEN}"})
    try:
        with urllib.request.urlopen(request, timeout=5) as response:
            document: Json = json.load(response)
            return document
    except (urllib.error.URLError, OSError):
        return None


def ready(worker: Child) -> bool:
    """Whether it says so."""
    holds = debug(worker)
    return holds is not None and holds["unready"] is None


def start(fleet: Fleet, peers: Path) -> tuple[Child, dict[str, Child]]:
    """A coordinator and three workers, each of which owns a pool and knows the others' ports."""
    fleet.prepare(
        3,
        worker={
            "peers": f"file:{peers}",
            "stray_hold_seconds": HOLD_SECONDS,
            "share_poll_seconds": 0.2,
        },
    )
    coordinator = fleet.coordinator("c0")
    workers = {name: fleet.worker(name) for name in sorted(WORKERS)}
    peers.write_text(
        "".join(f"127.0.0.1:{worker.ports['internal']}\n" for worker in workers.values())
    )
    until("every worker owns a pool", lambda: fleet.owned(coordinator, WORKERS))
    until("every pool has a stand-by", lambda: all(standbys(fleet, coordinator)))
    until("all workers were told", lambda: all(map(ready, workers.values())))
    return coordinator, workers


def standbys(fleet: Fleet, coordinator: Child) -> list[str | None]:
    """Of each pool, by the coordinator's map."""
    shown = fleet.map(coordinator)
    return [None] if shown is None else [pool["standby"] for pool in shown["pools"]]


async def picked(worker: Child, pool: str) -> str:
    """Which endpoint a stream to this worker gets."""
    gateway = Gateway(f"127.0.0.1:{worker.ports['ext-proc']}", f"{pool}-epp.ns1.svc:9002")
    try:
        call = gateway.stream()
        answer = await picked_on(call)
        call.cancel()
        return answer
    finally:
        await gateway.close()


async def refused(worker: Child, pool: str) -> grpc.StatusCode:
    """How a stream to this worker ends that is not answered."""
    gateway = Gateway(f"127.0.0.1:{worker.ports['ext-proc']}", f"{pool}-epp.ns1.svc:9002")
    try:
        call = gateway.stream()
        await call.write(extproc_messages.request_headers())
        return (await ended(call))[0]
    finally:
        await gateway.close()


async def test_a_killed_worker_comes_back_without_coordinators_and_redis(tmp_path: Path) -> None:
    """With peers it serves its own pool and passes on the others'; without them it does neither."""
    peers = tmp_path / "peers"
    with running_fleet(tmp_path) as fleet:
        coordinator, workers = start(fleet, peers)
        shown = fleet.map(coordinator)
        assert shown is not None
        owners = {pool["name"]: pool["owners"][0] for pool in shown["pools"]}
        pool, victim = next(iter(owners.items()))
        other = next(name for name, owner in owners.items() if owner != victim)
        wanted = {name: await picked(workers[owner], name) for name, owner in owners.items()}
        coordinator.kill()
        fleet.valkey.kill()

        listed = peers.read_text()
        peers.write_text("")
        workers[victim].kill()
        alone = fleet.worker(victim, same_ports_as=workers[victim])
        until("it listens", lambda: "worker up" in alone.log.read_text())
        assert await refused(alone, pool) is grpc.StatusCode.UNAVAILABLE
        assert not ready(alone)

        alone.kill()
        peers.write_text(listed)
        back = fleet.worker(victim, same_ports_as=workers[victim])
        until("it is ready", lambda: ready(back))
        assert await picked(back, pool) == wanted[pool]
        assert await picked(back, other) == wanted[other]
        holds = debug(back)
        assert holds is not None
        assert (holds["leader"], holds["told_by_peers"]) == (None, True)
        assert {entry["group"] for entry in holds["holds"]} == {f"ns1/{pool}-epp:9002"}
        text = urllib.request.urlopen(
            f"http://127.0.0.1:{back.ports['http']}/metrics", timeout=5
        ).read()
        assert b'epp_fleet_strays_total{outcome="forwarded"} 1.0' in text
