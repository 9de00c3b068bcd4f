"""An installation of `deploy/` on a real API server, and all that its programs ask of it.

Coordinators and a worker run as the accounts of the installation, its policies included; the audit
log tells what they asked.
"""

import asyncio
import json
import random
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coordinator.app import Coordinator
from coordinator.assembly import open_parts
from coordinator.routes.slice_format import slice_name
from coordinator.worker_pods import DELETION_COST
from fleet.clock import SystemClock
from fleet.errors import KubeError
from fleet.kube.client import KubeClient
from fleet.kube.contract import KubeApi, Raw
from fleet.kube.names import FLEET_LABEL, SLICE_MANAGED_BY_LABEL
from fleet.model import GroupKey, Member
from fleet.settings.model import (
    CoordinatorSettings,
    KubernetesSettings,
    OwnershipSettings,
    RedisSettings,
    RouteSettings,
    Settings,
)
from fleet.store.redis import RedisStore
from tests.control_plane.cluster import Cluster
from tests.control_plane.objects import delete_pod, eventually, make_namespace, make_pod
from tests.control_plane.plane import ControlPlane
from tests.deployed import COORDINATOR, WORKER, Change, Installed, Right, installed
from tests.fake_worker import FakeWorker
from tests.kustomize import NoKustomize
from tests.valkey import Valkey
from tests.worker_process import TOKEN, WorkerProcess

LABELS = {"app.kubernetes.io/name": "epp-fleet", "app.kubernetes.io/component": "worker"}
OLD_POOLS = "inference.networking.x-k8s.io"
"""No such kind is in the cluster: it is listed, in vain, and never watched."""
NEVER = Right("watch", OLD_POOLS, "inferencepools")


class PlacedWorker(FakeWorker):
    """A fake worker that gateways would find at an address that slices take.

    Attributes:
        ip: of its pod.
    """

    ip = ""

    @property
    def member(self) -> Member:
        """See `FakeWorker.member`."""
        known = super().member
        return replace(known, addresses=replace(known.addresses, ext_proc=f"{self.ip}:9002"))


class Place:
    """One installation, the namespace of a tenant, and what runs.

    Attributes:
        own: the fleet's namespace.
        tenant: where the pools are; the same for a fleet of one namespace.
    """

    def __init__(
        self, installed: Installed, kube: KubeApi, tenant: str, valkey: Valkey, folder: Path
    ) -> None:
        self.installed = installed
        self.kube = kube
        self.own = installed.namespace
        self.tenant = tenant
        self.folder = folder
        self.valkey = valkey
        self.settings = Settings(
            fleet=installed.fleet,
            redis=RedisSettings(url=valkey.url),
            coordinator=CoordinatorSettings(host="127.0.0.1", http_port=0, internal_port=0),
            ownership=OwnershipSettings(claim="namespaces", namespaces=tenant),
        )
        self.store = RedisStore(self.settings.redis, installed.fleet)
        self.pools = f"/apis/inference.networking.k8s.io/v1/namespaces/{tenant}/inferencepools"
        self.services = f"/api/v1/namespaces/{tenant}/services"
        self.slices = f"/apis/discovery.k8s.io/v1/namespaces/{tenant}/endpointslices"

    async def settings_of(self, account: str) -> Settings:
        """With the account's own credentials."""
        kubeconfig = await self.installed.kubeconfig(self.kube, self.folder, account)
        single = self.own if self.own == self.tenant else ""
        kubernetes = KubernetesSettings(kubeconfig=str(kubeconfig), watch_namespaces=single)
        return replace(self.settings, kubernetes=kubernetes)

    @asynccontextmanager
    async def coordinator(
        self, name: str, *, eds: Path | None = None
    ) -> AsyncIterator[Coordinator]:
        """One that runs, as the program assembles it; stopped as by SIGTERM."""
        settings = await self.settings_of(COORDINATOR)
        if eds is not None:
            settings = replace(settings, routes=RouteSettings(eds_directory=str(eds)))
        stop = asyncio.Event()
        async with open_parts(settings, clock=SystemClock(), rng=random.Random(name)) as parts:
            found = Coordinator(name, settings, TOKEN, parts)
            running = asyncio.create_task(found.run(stop))
            try:
                yield found
            finally:
                stop.set()
                await running

    @asynccontextmanager
    async def fake_worker(self, name: str, ip: str) -> AsyncIterator[PlacedWorker]:
        """A worker and its pod."""
        await make_pod(self.kube, self.own, name, labels=LABELS, ip=ip)
        worker = PlacedWorker(name, self.store, TOKEN, fleet=self.installed.fleet)
        worker.ip = ip
        await worker.start()
        try:
            yield worker
        finally:
            await worker.kill()

    async def worker_process(self, name: str) -> WorkerProcess:
        """A worker as it is, not started."""
        kubernetes = (await self.settings_of(WORKER)).kubernetes
        worker = WorkerProcess(
            self.folder,
            redis_url=self.valkey.url,
            worker_id=name,
            settings={
                "source": {"manifests": "", "kind": "kubernetes"},
                "kubernetes": {
                    "kubeconfig": kubernetes.kubeconfig,
                    "watch_namespaces": kubernetes.watch_namespaces,
                },
            },
        )
        config = self.folder / f"{name}.json"
        config.write_text(
            json.dumps({**json.loads(config.read_text()), "fleet": self.installed.fleet})
        )
        return worker

    async def pool(self, name: str, service: str, port: int = 9002) -> None:
        """Apply a pool."""
        spec = {
            "selector": {"matchLabels": {"app": name}},
            "targetPorts": [{"number": 8000}],
            "endpointPickerRef": {"name": service, "port": {"number": port}},
        }
        await self.kube.create(
            self.pools,
            {
                "apiVersion": "inference.networking.k8s.io/v1",
                "kind": "InferencePool",
                "metadata": {"name": name},
                "spec": spec,
            },
        )

    async def address(self, service: str, port: int = 9002) -> str:
        """Where the slice of a group leads; "" if there is none."""
        group = GroupKey(self.tenant, service, port)
        name = slice_name(group, "IPv4", self.installed.fleet)
        try:
            found = await self.kube.get(f"{self.slices}/{name}")
        except KubeError:
            return ""
        endpoints = found.get("endpoints") or [{"addresses": [""]}]
        return str(endpoints[0]["addresses"][0])

    async def served(self, service: str, port: int = 9002, *, but: str = "") -> str:
        """Wait until the group is routed, and not to `but`; returns the address."""

        async def routed() -> bool:
            return await self.address(service, port) not in ("", but)

        await eventually(routed, f"{service}:{port} is routed")
        return await self.address(service, port)


@asynccontextmanager
async def placed(
    cluster: Cluster,
    kube: KubeClient,
    valkey: Valkey,
    folder: Path,
    *,
    overlay_name: str = "cluster-wide",
    change: Change = lambda raw: raw,
) -> AsyncIterator[Place]:
    fleet = f"rbac-{secrets.token_hex(3)}"
    own = await make_namespace(kube)
    tenant = own if overlay_name == "single-namespace" else await make_namespace(kube)
    try:
        async with installed(
            cluster, kube, own, name=overlay_name, fleet=fleet, change=change
        ) as i:
            place = Place(i, kube, tenant, valkey, folder)
            try:
                yield place
            finally:
                await place.store.close()
    except NoKustomize as missing:
        pytest.skip(str(missing))
    finally:
        for name in {own, tenant}:
            await kube.delete(f"/api/v1/namespaces/{name}")


def asked(plane: ControlPlane, place: Place, account: str) -> dict[Right, set[int]]:
    """What the account asked for, with the answers' status codes."""
    found: dict[Right, set[int]] = {}
    user = f"system:serviceaccount:{place.own}:{account}"
    for event in plane.audit_events(user=user):
        what: dict[str, Any] = event.get("objectRef", {})
        if "resource" not in what:
            continue  # discovery, which every account may
        resource = "/".join(filter(None, (what["resource"], what.get("subresource"))))
        right = Right(event["verb"], what.get("apiGroup", ""), resource)
        found.setdefault(right, set()).add(event.get("responseStatus", {}).get("code", 0))
    return found


async def live_through(place: Place) -> None:
    """All that makes a fleet ask the API server for something."""
    kube = place.kube
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(place.coordinator("coordinator-a"))
        heir = await stack.enter_async_context(place.coordinator("coordinator-b"))
        fakes = {
            f"192.0.2.{n}": await stack.enter_async_context(
                place.fake_worker(f"worker-{n}", f"192.0.2.{n}")
            )
            for n in (11, 12)
        }
        # A Service is made for a pool, and extended for another one's port.
        await place.pool("a", "picker")
        await place.served("picker")
        await place.pool("b", "picker", 9003)
        await place.served("picker", 9003)

        async def extended() -> bool:
            service = await kube.get(f"{place.services}/picker")
            return len(service["spec"]["ports"]) == 2

        await eventually(extended, "the Service has both ports")
        # A slice of somebody else's in the way is looked at, and left alone.
        name = slice_name(GroupKey(place.tenant, "taken", 9002), "IPv4", place.installed.fleet)
        await kube.create(place.slices, _foreign_slice(name))
        await place.pool("d", "taken")
        # A refused pool is told of it.
        await kube.create(place.services, _service_with_selector("theirs"))
        await place.pool("c", "theirs")
        await eventually(lambda: _told(place, "c"), "there is an event about pool c")
        # A worker that has nothing to do is the cheapest to delete; one that owns goes.
        await eventually(lambda: _costs(place), "deletion costs are written")
        owner = await place.address("picker")
        await fakes[owner].kill()
        await delete_pod(kube, place.own, fakes[owner].name)
        await place.served("picker", but=owner)
        # A pool that goes takes its slice along.
        await kube.delete(f"{place.pools}/b")

        async def withdrawn() -> bool:
            return not await place.address("picker", 9003)

        await eventually(withdrawn, "the slice of pool b is gone")
        assert heir.ready() is None


async def serve(place: Place, plane: ControlPlane) -> None:
    """A worker gets the pools that are left, and looks at their pods; routes are files here: its
    address is loopback, which no slice takes.

    What it was told to hold does not wait for pods, so both programs run on until they have asked
    for all that they may.
    """
    async with place.coordinator("coordinator-c", eds=place.folder / "eds"):
        with await place.worker_process("worker-21") as worker:
            await asyncio.to_thread(worker.wait_up)

            async def holds() -> bool:
                return _holds((await asyncio.to_thread(worker.get, "/metrics"))[1])

            await eventually(holds, "the worker was told what to hold")
            for account in (COORDINATOR, WORKER):
                await _asks_for_all(plane, place, account)


async def _asks_for_all(plane: ControlPlane, place: Place, account: str) -> None:
    """Wait until no right of the account is idle.

    Raises:
        AssertionError: some stay so; names them.
    """
    idle = place.installed.rights(account) - {NEVER}

    async def none_idle() -> bool:
        idle.difference_update(await asyncio.to_thread(asked, plane, place, account))
        return not idle

    try:
        await eventually(none_idle, "every right is used")
    except AssertionError:
        raise AssertionError(f"{account} never asked for {sorted(idle)}") from None


def _holds(page: str) -> bool:
    lines = [line for line in page.splitlines() if line.startswith("epp_fleet_hold{")]
    return any(float(line.rpartition(" ")[2]) for line in lines)


def _foreign_slice(name: str) -> Raw:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": name,
            "labels": {SLICE_MANAGED_BY_LABEL: "me.example", FLEET_LABEL: "mine"},
        },
        "addressType": "IPv4",
        "endpoints": [],
    }


def _service_with_selector(name: str) -> Raw:
    spec = {"selector": {"app": "theirs"}, "ports": [{"port": 9002}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


async def _told(place: Place, pool: str) -> bool:
    events = await place.kube.get(f"/api/v1/namespaces/{place.tenant}/events")
    return pool in [each["involvedObject"]["name"] for each in events["items"]]


async def _costs(place: Place) -> bool:
    pods = await place.kube.get(f"/api/v1/namespaces/{place.own}/pods")
    return any(DELETION_COST in (pod["metadata"].get("annotations") or {}) for pod in pods["items"])
