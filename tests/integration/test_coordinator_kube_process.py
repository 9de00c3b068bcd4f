"""Coordinator processes that elect by a Kubernetes Lease, killed and stopped as operators and
machines do it; the API server is a fake one over real HTTP, in this process.
"""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from coordinator.routes.eds import EdsRoutes
from fleet.clock import SystemClock
from fleet.errors import FleetError
from fleet.model import Hold
from fleet.model.identity import NONE
from fleet.settings.model import RedisSettings, Settings
from fleet.store.redis import RedisStore
from tests.coordinator_process import TOKEN, CoordinatorProcess
from tests.coordinators import manifest
from tests.fake_api_server import LEASES, POOLS, SERVICES, SLICES, FakeApiServer
from tests.fake_worker import FakeWorker
from tests.valkey import Valkey, running_valkey

POOLS_COUNT = 6
BUDGET_SECONDS = 15.0
"""5 s, which the simulation checks to the millisecond, and what a busy machine needs."""


@pytest.fixture
def valkey() -> Iterator[Valkey]:
    with running_valkey() as server:
        yield server


class Processes:
    """Coordinator processes, fake workers and the API server of one test."""

    def __init__(self, folder: Path, valkey: Valkey, kube: FakeApiServer) -> None:
        self.folder = folder
        self.valkey = valkey
        self.kube = kube
        self.eds = folder / "eds"
        self.manifests = folder / "manifests"
        self.store = RedisStore(RedisSettings(valkey.url), "default")
        self.coordinators: dict[str, CoordinatorProcess] = {}
        self.workers: dict[str, FakeWorker] = {}
        settings = Settings().routes
        self.routes = EdsRoutes(self.eds, settings=settings, clock=SystemClock())

    def start(self, name: str, environment: Mapping[str, str]) -> CoordinatorProcess:
        process = CoordinatorProcess(
            self.folder,
            name,
            self.valkey.url,
            manifests=self.manifests,
            eds=self.eds,
            environment={
                "EPP_FLEET_KUBERNETES__KUBECONFIG": str(self.kube.kubeconfig(self.folder)),
                **environment,
            },
        )
        self.coordinators[name] = process
        return process.start()

    async def worker(self, name: str) -> FakeWorker:
        worker = self.workers[name] = FakeWorker(name, self.store, TOKEN)
        return await worker.start()

    def lease(self) -> dict[str, Any]:
        return self.kube.store.find(LEASES, "epp", "epp-fleet-default")

    def epoch(self) -> int:
        return int(self.lease()["metadata"]["annotations"]["epp-fleet.dev/epoch"])

    def leader(self) -> CoordinatorProcess:
        return self.coordinators[self.lease()["spec"]["holderIdentity"]]

    def owned(self, *but: str) -> bool:
        living = [worker for name, worker in self.workers.items() if name not in but]
        return sum(len(worker.holds(Hold.OWNER)) for worker in living) == POOLS_COUNT

    async def close(self) -> None:
        for process in self.coordinators.values():
            process.kill()
        for worker in self.workers.values():
            await worker.kill()
        await self.store.close()


async def until(
    condition: Callable[[], Awaitable[bool] | bool], what: str, *, seconds: float = 20.0
) -> float:
    """Seconds until `condition`; this loop goes on serving meanwhile."""
    began = time.monotonic()
    while True:
        value = condition()
        if await value if isinstance(value, Awaitable) else value:
            return time.monotonic() - began
        assert time.monotonic() - began < seconds, f"{what}: not within {seconds} s"
        await asyncio.sleep(0.01)


@pytest.fixture
async def processes(tmp_path: Path, valkey: Valkey) -> AsyncIterator[Processes]:
    async with AsyncExitStack() as stack:
        kube = await stack.enter_async_context(FakeApiServer.running())
        processes = Processes(tmp_path, valkey, kube)
        stack.push_async_callback(processes.close)
        yield processes


@pytest.fixture
async def by_lease(processes: Processes) -> Processes:
    """Three coordinators and three workers; pools from a folder, routes as EDS files."""
    processes.manifests.mkdir()
    for n in range(POOLS_COUNT):
        (processes.manifests / f"pool-{n}.yaml").write_text(manifest(f"pool-{n}"))
    for n in range(3):
        await processes.worker(f"worker-{n}")
        processes.start(f"coordinator-{n}", {"EPP_FLEET_ELECTION__KIND": "kubernetes"})
    await until(processes.owned, "owned")
    return processes


async def test_leader_and_worker_killed_while_the_store_is_away(by_lease: Processes) -> None:
    """kill -9 of both at once, Redis stopped: routes without the dead one within 5 s; when the
    store is back, empty, it is given a higher epoch and the whole map.
    """
    fleet = by_lease

    async def followers_know() -> bool:
        maps = [
            await asyncio.to_thread(process.get, "/api/v1/workers")
            for process in fleet.coordinators.values()
        ]
        return all(found and len(found["workers"]) == 3 for found in maps)

    await until(followers_know, "followers know the workers")
    epoch, victim = fleet.epoch(), fleet.workers["worker-1"]
    address = victim.member.addresses.ext_proc
    fleet.valkey.kill()
    fleet.leader().kill()
    await victim.kill()

    async def gone() -> bool:
        routes = (await fleet.routes.read()).values()
        return all(route.addresses and address not in route.addresses for route in routes)

    took = await until(gone, "routes rewritten", seconds=BUDGET_SECONDS)
    assert took > 1.0, "a lease that nobody gave up was taken too soon"
    await until(lambda: fleet.owned("worker-1"), "the heirs were told")
    assert fleet.epoch() > epoch
    fleet.valkey.start()

    async def stored() -> bool:
        try:
            found = await fleet.store.shard_map(NONE)
        except FleetError:
            return False
        return found is not None and found.version.epoch == fleet.epoch()

    await until(stored, "the store has the map")
    for name in ("worker-0", "worker-2"):
        versions = [share.version for share in fleet.workers[name].history]
        assert versions == sorted(set(versions))
        share = await fleet.store.share(name)
        assert share is not None
        owned = {entry.group for entry in share.entries if entry.hold is Hold.OWNER}
        assert owned == fleet.workers[name].holds(Hold.OWNER)


async def test_a_leader_that_was_stopped_and_wakes_changes_nothing(by_lease: Processes) -> None:
    """SIGSTOP for longer than the lease, SIGCONT: it finds its term over. One epoch, one leader."""
    fleet = by_lease
    first, epoch = fleet.leader(), fleet.epoch()
    first.signal(signal.SIGSTOP)
    await until(lambda: fleet.epoch() > epoch, "another leads")
    heir = fleet.leader()
    assert heir is not first

    async def published() -> bool:
        found = await fleet.store.shard_map(NONE)
        return found is not None and found.version.epoch == fleet.epoch()

    await until(published, "the heir published")
    first.signal(signal.SIGCONT)

    async def knows() -> bool:
        found = await asyncio.to_thread(first.get, "/api/v1/map")
        return bool(found and found["leader"] and found["leader"]["id"] == heir.name)

    await until(knows, "the first one follows")
    assert fleet.leader() is heir
    assert fleet.epoch() == epoch + 1
    assert {r.version.epoch for r in (await fleet.routes.read()).values()} == {epoch + 1}
    assert "not leading" in first.log


async def test_a_stopped_coordinator_gives_the_lease_up(by_lease: Processes) -> None:
    """SIGTERM: exit 0, and the next one leads."""
    fleet = by_lease
    first, epoch = fleet.leader(), fleet.epoch()
    assert await asyncio.to_thread(first.terminate) == 0
    await until(lambda: fleet.epoch() > epoch, "another leads")
    assert "release failed" not in first.log


IN_CLUSTER = {"EPP_FLEET_SOURCE__MANIFESTS": "", "EPP_FLEET_ROUTES__EDS_DIRECTORY": ""}
"""All kinds `auto`, no folder named."""

POOL: dict[str, Any] = {
    "apiVersion": "inference.networking.k8s.io/v1",
    "kind": "InferencePool",
    "metadata": {"name": "llama", "namespace": "team-a"},
    "spec": {
        "selector": {"matchLabels": {"app": "llama"}},
        "targetPorts": [{"number": 8000}],
        "endpointPickerRef": {"name": "llama-epp", "port": {"number": 9002}},
    },
}


def served_by(kube: FakeApiServer, address: str) -> bool:
    """Whether some EndpointSlice has this address."""
    host, _, port = address.rpartition(":")
    return any(
        endpoint["addresses"] == [host] and each["ports"][0]["port"] == int(port)
        for each in kube.store.all(SLICES, lambda _: True)
        for endpoint in each["endpoints"]
    )


async def test_a_fleet_in_a_cluster_serves_a_pool_that_is_applied(processes: Processes) -> None:
    """Pools, Service, EndpointSlice and Lease are objects of the API server."""
    worker = await processes.worker("worker-0")
    process = processes.start("coordinator-0", IN_CLUSTER)
    await asyncio.to_thread(process.wait_ready)
    processes.kube.put(POOL)
    address = worker.member.addresses.ext_proc
    await until(lambda: served_by(processes.kube, address), "a slice with the worker's address")
    (service,) = processes.kube.store.all(SERVICES, lambda _: True)
    await asyncio.sleep(1.0)  # what follows from the first look is done
    asked, began = len(processes.kube.requests), time.monotonic()
    await asyncio.sleep(2.0)
    at_rest = [seen for seen in processes.kube.requests[asked:] if not seen.watch]
    most = (time.monotonic() - began) / 0.7 + 1
    assert {(seen.method, seen.path.rpartition("/")[2]) for seen in at_rest} == {
        ("PUT", "epp-fleet-default")
    }
    assert 1 <= len(at_rest) <= most, "a renewal every 0.7 s"
    assert service["metadata"]["name"] == "llama-epp"
    assert len(processes.kube.store.all(POOLS, lambda _: True)) == 1
    assert processes.lease()["spec"]["holderIdentity"] == "coordinator-0"
    assert await asyncio.to_thread(process.terminate) == 0
    assert "holderIdentity" not in processes.lease()["spec"]


async def test_a_worker_that_nobody_told_of_is_found_by_its_pod(processes: Processes) -> None:
    """The store was never there, the coordinator is new: the pod says where its worker listens.
    When that pod is gone, its worker is dead, with the store still away.
    """
    processes.valkey.kill()
    worker = await processes.worker("worker-0")
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "worker-0",
            "namespace": "epp",
            "labels": {
                "app.kubernetes.io/name": "epp-fleet",
                "app.kubernetes.io/component": "worker",
            },
        },
        "status": {"phase": "Running", "podIP": "127.0.0.1"},
    }
    processes.kube.put(pod)
    processes.kube.put(POOL)
    internal = worker.member.addresses.internal.rpartition(":")[2]
    process = processes.start(
        "coordinator-0", {**IN_CLUSTER, "EPP_FLEET_WORKER__INTERNAL_PORT": internal}
    )
    address = worker.member.addresses.ext_proc
    await until(lambda: served_by(processes.kube, address), "a slice with the worker's address")
    await worker.kill()
    processes.kube.store.remove(pod)
    await until(
        lambda: not served_by(processes.kube, address), "no slice with it", seconds=BUDGET_SECONDS
    )
    found = await asyncio.to_thread(process.get, "/api/v1/workers")
    (status,) = found["workers"]
    assert status["state"] == "dead"
