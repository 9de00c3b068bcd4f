"""A fleet as `deploy/` installs it, as processes on a real control plane.

Coordinators and workers with mutual TLS, each with the rights of its account; Redis beside them;
the tenants' pools and pods. Workers have pods with the addresses that they listen on, so all of it
runs in a network of its own (`tests.own_network`). Processes come and go as a Deployment does it.
"""

import asyncio
import contextlib
import signal
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fleet.certificates.folder import write_folder
from fleet.clock import SystemClock
from fleet.errors import KubeNotFound
from fleet.kube.contract import KubeApi, Raw
from tests import manifest_texts
from tests.control_plane.objects import (
    delete_pod,
    eventually,
    make_node,
    make_pod,
    set_pod_status,
)
from tests.coordinator_process import CoordinatorProcess
from tests.deployed import COORDINATOR, WORKER, Installed
from tests.own_network import WORKERS
from tests.valkey import Valkey
from tests.worker_process import TOKEN, WorkerProcess

FLEET = "default"
GRACE_SECONDS = 640
"""Of a worker's pod, as in `deploy/`."""

LEAVE_SECONDS = 60.0
_PORTS = {"ext_proc": 9002, "health": 9003, "internal": 9004, "http": 9090}
_LABELS = {"app.kubernetes.io/name": "epp-fleet", "app.kubernetes.io/component": "worker"}
_POOLS = "/apis/inference.networking.k8s.io/v1/namespaces/{}/inferencepools"
NODE = "node-of-workers"
"""Where the workers' pods are."""


class KubeFleet:
    """Its processes, and what tenants and a kubelet do.

    Attributes:
        home: the installation.
        tenant: the namespace of the pools.
        workers, coordinators: those that were made and not removed, by name.
    """

    def __init__(
        self, folder: Path, api: KubeApi, home: Installed, tenant: str, valkey: Valkey
    ) -> None:
        self.api = api
        self.home = home
        self.tenant = tenant
        self.valkey = valkey
        self.workers: dict[str, WorkerProcess] = {}
        self.coordinators: dict[str, CoordinatorProcess] = {}
        self._folder = folder
        self._made = {"worker": 0, "coordinator": 0}
        self._kubeconfigs: dict[str, str] = {}
        self._settings: Mapping[str, Mapping[str, object]] = {}
        self._past: list[str] = []

    @staticmethod
    def address_of(worker: str) -> str:
        """Where a worker serves."""
        return f"{WORKERS}.{int(worker.rpartition('-')[2]) + 11}:{_PORTS['ext_proc']}"

    async def prepare(
        self,
        *,
        workers: int,
        coordinators: int,
        worker_settings: Mapping[str, Mapping[str, object]] | None = None,
    ) -> None:
        """Make the first worker pods and the files of the first processes; starts none."""
        self._settings = worker_settings or {}
        write_folder(self._folder / "certificates", FLEET, SystemClock().wall())
        (self._folder / "coordinators").mkdir()
        for account in (WORKER, COORDINATOR):
            path = await self.home.kubeconfig(self.api, self._folder, account)
            self._kubeconfigs[account] = str(path)
        await make_node(self.api, NODE)
        for _ in range(workers):
            await self._make_worker(ready=True)
        for _ in range(coordinators):
            self._make_coordinator()

    def _next(self, kind: str) -> str:
        number, self._made[kind] = self._made[kind], self._made[kind] + 1
        return f"{kind}-{number}"

    async def _make_worker(self, *, ready: bool) -> str:
        name = self._next("worker")
        host = self.address_of(name).rpartition(":")[0]
        own = self._folder / "certificates" / "worker"
        await make_pod(
            self.api, self.home.namespace, name, labels=_LABELS, ip=host, node=NODE, ready=ready
        )
        settings: dict[str, dict[str, object]] = {
            "source": {"manifests": ""},
            "kubernetes": {
                "kubeconfig": self._kubeconfigs[WORKER],
                "namespace": self.home.namespace,
            },
            "worker": {"host": host},
            "security": {
                "ca_file": str(own / "ca.crt"),
                "certificate_file": str(own / "tls.crt"),
                "key_file": str(own / "tls.key"),
            },
        }
        for section, fields in self._settings.items():
            settings.setdefault(section, {}).update(fields)
        worker = self.workers[name] = WorkerProcess(
            self._folder, redis_url=self.valkey.url, worker_id=name, settings=settings
        )
        worker.ports.update(_PORTS)
        return name

    def _make_coordinator(self) -> str:
        name = self._next("coordinator")
        own = self._folder / "certificates" / "coordinator"
        self.coordinators[name] = CoordinatorProcess(
            self._folder / "coordinators",
            name,
            self.valkey.url,
            manifests=Path(),
            eds=Path(),
            environment={
                "EPP_FLEET_SOURCE__MANIFESTS": "",
                "EPP_FLEET_ROUTES__EDS_DIRECTORY": "",
                "EPP_FLEET_KUBERNETES__KUBECONFIG": self._kubeconfigs[COORDINATOR],
                "EPP_FLEET_KUBERNETES__NAMESPACE": self.home.namespace,
                "EPP_FLEET_SECURITY__TOKEN_FILE": str(self._folder / "token"),
                "EPP_FLEET_SECURITY__CA_FILE": str(own / "ca.crt"),
                "EPP_FLEET_SECURITY__CERTIFICATE_FILE": str(own / "tls.crt"),
                "EPP_FLEET_SECURITY__KEY_FILE": str(own / "tls.key"),
            },
        )
        return name

    def start(self) -> None:
        """Start everything at once; waits for nothing."""
        for coordinator in self.coordinators.values():
            coordinator.start()
        for worker in self.workers.values():
            worker.start()

    async def wait_ready(self) -> None:
        """Until every process says so."""
        for coordinator in self.coordinators.values():
            await asyncio.to_thread(coordinator.wait_ready, seconds=60.0)
        for worker in self.workers.values():
            await asyncio.to_thread(worker.wait_up)
        await self.until_joined(len(self.workers))

    async def states(self) -> dict[str, str]:
        """Of each worker, as the first coordinator that answers shows it."""
        for coordinator in list(self.coordinators.values()):
            shown = await asyncio.to_thread(coordinator.get, "/api/v1/workers")
            if shown:
                return {each["id"]: each["state"] for each in shown["workers"]}
        return {}

    async def until_joined(self, workers: int, seconds: float = 30.0) -> None:
        """Until a coordinator shows this many workers in use.

        Raises:
            AssertionError: not in time.
        """
        shown: dict[str, str] = {}
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            shown = await self.states()
            if list(shown.values()).count("alive") == workers:
                return
            await asyncio.sleep(0.1)
        raise AssertionError(f"not {workers} workers alive within {seconds:g} s: {shown}")

    async def join_worker(self) -> str:
        """A new pod, its process, and what its kubelet reports; returns once it is in use."""
        name = await self._make_worker(ready=False)
        worker = self.workers[name]
        worker.start()
        await asyncio.to_thread(worker.wait_up)
        host = self.address_of(name).rpartition(":")[0]
        await set_pod_status(self.api, self.home.namespace, name, ip=host)

        async def in_use() -> bool:
            return (await self.states()).get(name) == "alive"

        await eventually(in_use, f"{name} is in use")
        return name

    async def end_worker(self, name: str) -> None:
        """Its pod is deleted, and its process told so: it begins to leave."""
        await delete_pod(self.api, self.home.namespace, name, grace_seconds=GRACE_SECONDS)
        self.workers[name].signal(signal.SIGTERM)

    async def worker_left(self, name: str) -> int:
        """Wait until a worker that leaves is gone, and its pod; its exit code."""
        code = await asyncio.to_thread(self.workers[name].wait, LEAVE_SECONDS)
        await self.forget_worker(name)
        return code

    async def forget_worker(self, name: str) -> None:
        """Take away the pod of a worker whose process has ended."""
        with contextlib.suppress(KubeNotFound):
            await delete_pod(self.api, self.home.namespace, name)
        self._past.append(self._said(name, self.workers.pop(name).log()))

    async def join_coordinator(self) -> str:
        """A new one; returns once it is ready."""
        name = self._make_coordinator()
        coordinator = self.coordinators[name].start()
        await asyncio.to_thread(coordinator.wait_ready, seconds=60.0)
        return name

    async def end_coordinator(self, name: str) -> int:
        """SIGTERM, until it has left; its exit code."""
        leaving = self.coordinators.pop(name)
        code = await asyncio.to_thread(leaving.terminate, seconds=LEAVE_SECONDS)
        self._past.append(self._said(name, leaving.log))
        return code

    async def leader(self) -> str:
        """Who holds the Lease; "" = nobody."""
        leases = f"/apis/coordination.k8s.io/v1/namespaces/{self.home.namespace}/leases"
        try:
            lease = await self.api.get(f"{leases}/epp-fleet-{FLEET}")
        except KubeNotFound:
            return ""
        return str(lease["spec"].get("holderIdentity") or "")

    async def figures(self, worker: str) -> dict[str, float]:
        """A worker's metrics by name and labels, as the page has them."""
        host = self.address_of(worker).rpartition(":")[0]
        page = await asyncio.to_thread(_page, f"http://{host}:{_PORTS['http']}/metrics")
        lines = [line.rpartition(" ") for line in page.splitlines() if not line.startswith("#")]
        return {name: float(value) for name, _, value in lines}

    async def until_led_by(self, allowed: set[str]) -> None:
        """Until one of these holds the Lease."""

        async def leads() -> bool:
            return await self.leader() in allowed

        await eventually(leads, f"one of {sorted(allowed)} leads")

    async def command(self, worker: str, action: str) -> None:
        """`drain` or `undrain` a worker, by whichever coordinator takes the command."""

        async def taken() -> bool:
            for coordinator in list(self.coordinators.values()):
                path = f"/api/v1/workers/{worker}/{action}"
                if await asyncio.to_thread(coordinator.post, path, token=TOKEN) == 202:
                    return True
            return False

        await eventually(taken, f"{action} {worker}")

    async def apply(self, pool: str, **spec: Any) -> Raw:
        """What a tenant does; further keywords are fields of the pool's spec."""
        body = manifest_texts.pool(pool, self.tenant, **spec)
        return await self.api.create(_POOLS.format(self.tenant), body)

    async def withdraw(self, pool: str) -> None:
        """The tenant deletes it."""
        await self.api.delete(f"{_POOLS.format(self.tenant)}/{pool}")

    async def pool(self, pool: str) -> Raw:
        """The pool as it is stored."""
        return await self.api.get(f"{_POOLS.format(self.tenant)}/{pool}")

    async def set_pool_status(self, pool: str, status: Raw) -> Raw:
        """What gateways' controllers write; the pool as it is then."""
        path = f"{_POOLS.format(self.tenant)}/{pool}/status"
        return await self.api.patch(path, {"status": status})

    async def make_pod(self, pool: str, number: int, ip: str, *, ready: bool = True) -> str:
        """A pod of the pool, with an address; its name."""
        name = f"{pool}-{number}"
        await make_pod(self.api, self.tenant, name, labels={"app": pool}, ip=ip, ready=ready)
        return name

    async def set_ready(self, pod: str, ip: str) -> None:
        """What its kubelet reports."""
        await set_pod_status(self.api, self.tenant, pod, ip=ip)

    @staticmethod
    def _said(name: str, text: str) -> str:
        return f"--- {name}\n{text[-2000:]}"

    def logs(self) -> str:
        """The end of what each process said, also of those that are gone."""
        said = []
        with contextlib.suppress(FileNotFoundError):  # not started
            said += [self._said(name, each.log) for name, each in self.coordinators.items()]
            said += [self._said(name, each.log()) for name, each in self.workers.items()]
        return "\n".join([*self._past, *said])

    def stop(self) -> None:
        """Kill all processes."""
        for coordinator in self.coordinators.values():
            coordinator.kill()
        for worker in self.workers.values():
            worker.kill()


def _page(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read().decode())
