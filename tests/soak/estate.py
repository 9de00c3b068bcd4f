"""The fleet that is measured: installed as `deploy/` does it, as processes, on a control plane.

Two coordinators and three workers with mutual TLS, each with the rights of its account; Redis; the
tenants' pools and pods. Workers have pods with the addresses that they listen on.
"""

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

from fleet.certificates.folder import write_folder
from fleet.clock import SystemClock
from fleet.kube.contract import KubeApi
from fleet.model import GroupKey
from tests import manifest_texts
from tests.control_plane.cluster import Cluster, running_cluster
from tests.control_plane.objects import make_namespace, make_pod, set_pod_status
from tests.control_plane.plane import ControlPlane
from tests.coordinator_process import CoordinatorProcess
from tests.deployed import COORDINATOR, WORKER, Installed, installed
from tests.soak.apart import WORKERS
from tests.soak.model_servers import running_model_servers
from tests.soak.picks import Gateway
from tests.soak.slices import Slices, followed
from tests.valkey import Valkey, running_valkey
from tests.worker_process import WorkerProcess

FLEET = "default"
WORKER_COUNT = 3
COORDINATOR_COUNT = 2
_PORTS = {"ext_proc": 9002, "health": 9003, "internal": 9004, "http": 9090}
_LABELS = {"app.kubernetes.io/name": "epp-fleet", "app.kubernetes.io/component": "worker"}
_POOLS = "/apis/inference.networking.k8s.io/v1/namespaces/{}/inferencepools"


def say(text: str) -> None:
    """A line of progress."""
    sys.stderr.write(f"  {text}\n")
    sys.stderr.flush()


def pod_ip(number: int) -> str:
    """The address of the n-th pod of a model server."""
    return f"198.18.{number // 250}.{number % 250 + 1}"


class Estate:
    """All that a scenario may touch.

    Attributes:
        tenant: the namespace of the pools.
        gateway: picks through the addresses of slices.
    """

    def __init__(
        self,
        folder: Path,
        api: KubeApi,
        plane: ControlPlane,
        home: Installed,
        tenant: str,
        valkey: Valkey,
        slices: Slices,
        gateway: Gateway,
    ) -> None:
        self.api = api
        self.plane = plane
        self.home = home
        self.tenant = tenant
        self.valkey = valkey
        self.slices = slices
        self.gateway = gateway
        self.workers: dict[str, WorkerProcess] = {}
        self.coordinators: dict[str, CoordinatorProcess] = {}
        self._folder = folder

    def group(self, pool: str) -> GroupKey:
        """Where a pool's gateways ask."""
        return GroupKey(self.tenant, f"{pool}-epp", 9002)

    def authority(self, pool: str) -> str:
        """What they call it."""
        return f"{pool}-epp.{self.tenant}.svc:9002"

    async def apply(self, pool: str) -> None:
        """What a tenant does."""
        await self.api.create(_POOLS.format(self.tenant), manifest_texts.pool(pool, self.tenant))

    async def make_pod(self, pool: str, number: int, ip: str, *, ready: bool = True) -> str:
        """A pod of the pool, with an address; its name."""
        name = f"{pool}-{number}"
        await make_pod(self.api, self.tenant, name, labels={"app": pool}, ip=ip, ready=ready)
        return name

    async def set_ready(self, pod: str, ip: str) -> None:
        """What its kubelet reports."""
        await set_pod_status(self.api, self.tenant, pod, ip=ip)

    async def pick(self, pool: str) -> str:
        """One request, through the address that its slice names.

        Raises:
            AssertionError: it names none.
            NoPick: there was no endpoint.
        """
        address = await self.slices.address(self.group(pool), 0.0)
        return await self.gateway.pick(address, self.authority(pool))

    @staticmethod
    def address_of(worker: str) -> str:
        """Where a worker serves."""
        return f"{WORKERS}.{int(worker.rpartition('-')[2]) + 11}:{_PORTS['ext_proc']}"

    async def prepare(self) -> None:
        """Make the worker pods and the files of all processes; starts none."""
        certificates = self._folder / "certificates"
        write_folder(certificates, FLEET, SystemClock().wall())
        of_worker = str(await self.home.kubeconfig(self.api, self._folder, WORKER))
        of_coordinator = str(await self.home.kubeconfig(self.api, self._folder, COORDINATOR))
        for number in range(WORKER_COUNT):
            name = f"worker-{number}"
            host = self.address_of(name).rpartition(":")[0]
            await make_pod(self.api, self.home.namespace, name, labels=_LABELS, ip=host)
            worker = WorkerProcess(
                self._folder,
                redis_url=self.valkey.url,
                worker_id=name,
                settings={
                    "source": {"manifests": ""},
                    "kubernetes": {"kubeconfig": of_worker, "namespace": self.home.namespace},
                    "worker": {"host": host},
                    "security": {
                        "ca_file": str(certificates / "worker" / "ca.crt"),
                        "certificate_file": str(certificates / "worker" / "tls.crt"),
                        "key_file": str(certificates / "worker" / "tls.key"),
                    },
                },
            )
            worker.ports.update(_PORTS)
            self.workers[name] = worker
        place = self._folder / "coordinators"
        place.mkdir()
        own = certificates / "coordinator"
        for number in range(COORDINATOR_COUNT):
            name = f"coordinator-{number}"
            self.coordinators[name] = CoordinatorProcess(
                place,
                name,
                self.valkey.url,
                manifests=Path(),
                eds=Path(),
                environment={
                    "EPP_FLEET_SOURCE__MANIFESTS": "",
                    "EPP_FLEET_ROUTES__EDS_DIRECTORY": "",
                    "EPP_FLEET_KUBERNETES__KUBECONFIG": of_coordinator,
                    "EPP_FLEET_KUBERNETES__NAMESPACE": self.home.namespace,
                    "EPP_FLEET_SECURITY__TOKEN_FILE": str(self._folder / "token"),
                    "EPP_FLEET_SECURITY__CA_FILE": str(own / "ca.crt"),
                    "EPP_FLEET_SECURITY__CERTIFICATE_FILE": str(own / "tls.crt"),
                    "EPP_FLEET_SECURITY__KEY_FILE": str(own / "tls.key"),
                },
            )

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
        await self.until_joined(WORKER_COUNT)

    async def until_joined(self, workers: int, seconds: float = 30.0) -> None:
        """Until a coordinator shows this many workers in use.

        Raises:
            AssertionError: not in time.
        """
        shown = None
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for coordinator in self.coordinators.values():
                shown = await asyncio.to_thread(coordinator.get, "/api/v1/workers")
                if shown and [w["state"] for w in shown["workers"]].count("alive") == workers:
                    return
            await asyncio.sleep(0.1)
        raise AssertionError(f"not {workers} workers alive within {seconds:g} s: {shown}")

    def logs(self) -> str:
        """The end of what each process said."""
        said: dict[str, str] = {}
        with contextlib.suppress(FileNotFoundError):  # not started
            said |= {name: each.log for name, each in self.coordinators.items()}
            said |= {name: each.log() for name, each in self.workers.items()}
        return "\n".join(f"--- {name}\n{text[-2000:]}" for name, text in said.items())

    def stop(self) -> None:
        """Kill all processes."""
        for coordinator in self.coordinators.values():
            coordinator.kill()
        for worker in self.workers.values():
            worker.kill()


@contextlib.asynccontextmanager
async def estate(folder: Path, *, audit: bool = True) -> AsyncIterator[Estate]:
    """A control plane of its own, a fleet that is installed and not started, an empty tenant."""
    async with AsyncExitStack() as stack:
        say("starting the control plane")
        cluster: Cluster = stack.enter_context(running_cluster(audit=audit))
        assert cluster.plane is not None
        api = await stack.enter_async_context(cluster.connected(request_timeout_seconds=30.0))
        own, tenant = await make_namespace(api), await make_namespace(api, prefix="tenant")
        home = await stack.enter_async_context(installed(cluster, api, own, fleet=FLEET))
        valkey = stack.enter_context(running_valkey())
        await stack.enter_async_context(running_model_servers())
        slices = await stack.enter_async_context(followed(api, FLEET))
        gateway = await stack.enter_async_context(Gateway())
        made = Estate(folder, api, cluster.plane, home, tenant, valkey, slices, gateway)
        stack.callback(made.stop)
        await made.prepare()
        try:
            yield made
        except BaseException:
            sys.stderr.write(made.logs() + "\n")
            raise
