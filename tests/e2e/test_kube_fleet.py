"""A whole fleet of processes in a cluster, without any store: pools, pods, Lease and routes are
objects of an API server (a fake one, over real HTTP, in this process).
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.coordinator_process import CoordinatorProcess
from tests.fake_api_server import LEASES, SLICES, FakeApiServer
from tests.ports import free_port
from tests.worker_inprocess import Gateway
from tests.worker_process import WorkerProcess

HOSTS = {"worker-0": "127.0.0.1", "worker-1": "127.0.0.2"}
"""Pods have addresses of their own, and the same ports."""

NO_STORE = "redis://127.0.0.1:1/0"
BUDGET_SECONDS = 15.0
"""5 s, and what a busy machine needs: the simulation is as strict as the promise."""

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


def pod(namespace: str, name: str, ip: str, labels: dict[str, str]) -> dict[str, Any]:
    ready = {"type": "Ready", "status": "True"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "status": {"phase": "Running", "podIP": ip, "conditions": [ready]},
    }


def worker_pod(name: str) -> dict[str, Any]:
    labels = {
        "app.kubernetes.io/name": "epp-fleet",
        "app.kubernetes.io/component": "worker",
    }
    return pod("epp", name, HOSTS[name], labels)


class InCluster:
    """Two coordinators, two workers, and the API server that they stand on."""

    def __init__(self, folder: Path, kube: FakeApiServer, stack: ExitStack) -> None:
        self.kube = kube
        kubeconfig = str(kube.kubeconfig(folder))
        internal = free_port(*HOSTS.values())
        self.workers: dict[str, WorkerProcess] = {}
        for name, host in HOSTS.items():
            worker = self.workers[name] = WorkerProcess(
                folder,
                redis_url=NO_STORE,
                worker_id=name,
                settings={
                    "source": {"manifests": ""},
                    "kubernetes": {"kubeconfig": kubeconfig},
                    "worker": {"host": host},
                },
            )
            worker.ports["internal"] = internal
            kube.put(worker_pod(name))
            stack.enter_context(worker)
        self.coordinators: dict[str, CoordinatorProcess] = {}
        of_coordinators = folder / "coordinators"
        of_coordinators.mkdir()
        for name in ("coordinator-0", "coordinator-1"):
            process = self.coordinators[name] = CoordinatorProcess(
                of_coordinators,
                name,
                NO_STORE,
                manifests=Path(),
                eds=Path(),
                environment={
                    "EPP_FLEET_SOURCE__MANIFESTS": "",
                    "EPP_FLEET_ROUTES__EDS_DIRECTORY": "",
                    "EPP_FLEET_KUBERNETES__KUBECONFIG": kubeconfig,
                    "EPP_FLEET_SECURITY__TOKEN_FILE": str(folder / "token"),
                    "EPP_FLEET_WORKER__INTERNAL_PORT": str(internal),
                },
            )
            stack.enter_context(process)

    def owner(self) -> str | None:
        """The worker that the pool's slice names."""
        for each in self.kube.store.all(SLICES, lambda _: True):
            for endpoint in each["endpoints"]:
                (address,) = endpoint["addresses"]
                return next(name for name, host in HOSTS.items() if host == address)
        return None

    def leader(self) -> CoordinatorProcess:
        lease = self.kube.store.find(LEASES, "epp", "epp-fleet-default")
        return self.coordinators[lease["spec"]["holderIdentity"]]

    async def pick(self, worker: str) -> str:
        """What this worker answers to a request for the pool."""
        address = f"{HOSTS[worker]}:{self.workers[worker].ports['ext_proc']}"
        gateway = Gateway(address, "llama-epp.team-a.svc:9002")
        try:
            return await gateway.pick()
        finally:
            await gateway.close()


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[InCluster]:
    async with AsyncExitStack() as stack:
        kube = await stack.enter_async_context(FakeApiServer.running())
        processes = stack.enter_context(ExitStack())
        yield InCluster(tmp_path, kube, processes)


async def until(condition: Callable[[], bool], what: str, *, seconds: float = 20.0) -> float:
    """Seconds until `condition`; this loop goes on serving meanwhile."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, f"{what}: not within {seconds} s"
        await asyncio.sleep(0.01)
    return time.monotonic() - began


async def test_a_pool_is_served_and_survives_deaths_without_any_store(fleet: InCluster) -> None:
    """A tenant applies a pool, and that is all. Then its worker and the leader die together: the
    other coordinator gives the pool to the other worker within the budget.
    """
    fleet.kube.put(POOL)
    fleet.kube.put(pod("team-a", "llama-0", "10.0.0.1", {"app": "llama"}))
    await until(lambda: fleet.owner() is not None, "served")
    for process in fleet.coordinators.values():
        await asyncio.to_thread(process.wait_ready)
    owner = fleet.owner()
    assert owner is not None
    assert await fleet.pick(owner) == "10.0.0.1:8000"
    (heir,) = HOSTS.keys() - {owner}
    fleet.leader().kill()
    fleet.workers[owner].kill()
    fleet.kube.store.remove(worker_pod(owner))
    await until(lambda: fleet.owner() == heir, "served by the other", seconds=BUDGET_SECONDS)
    assert await fleet.pick(heir) == "10.0.0.1:8000"


@pytest.mark.parametrize("program", ["coordinator", "worker"])
def test_without_an_api_server_a_program_says_what_it_needs(tmp_path: Path, program: str) -> None:
    """Exit code 2 and the setting's name, as for any setting that is wrong."""
    missing = str(tmp_path / "no-such-kubeconfig")
    if program == "coordinator":
        environment = {
            "EPP_FLEET_SOURCE__MANIFESTS": "",
            "EPP_FLEET_ROUTES__EDS_DIRECTORY": "",
            "EPP_FLEET_KUBERNETES__KUBECONFIG": missing,
        }
        with CoordinatorProcess(
            tmp_path, "c-0", NO_STORE, manifests=Path(), eds=Path(), environment=environment
        ) as process:
            code, said = process.wait(), process.log
    else:
        settings = {"source": {"manifests": ""}, "kubernetes": {"kubeconfig": missing}}
        with WorkerProcess(tmp_path, redis_url=NO_STORE, settings=settings) as worker:
            code, said = worker.wait(), worker.log()
    assert code == 2
    assert said.splitlines()[-1].startswith("kubernetes.kubeconfig: ")
