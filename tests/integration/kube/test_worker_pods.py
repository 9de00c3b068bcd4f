"""Worker pods on a real API server: told at once when they go; deletion costs are accepted."""

import asyncio
import random
from collections.abc import AsyncIterator

import pytest

from coordinator.deletion_cost import DeletionCosts
from coordinator.verdicts import PodAt
from coordinator.worker_pods import DELETION_COST, WorkerPods
from fleet.clock import SystemClock
from fleet.kube.client import KubeClient, open_client
from fleet.settings.model import KubernetesSettings, Settings
from tests.control_plane.cluster import Cluster
from tests.control_plane.objects import delete_pod, make_pod, set_pod_status

CLOCK = SystemClock()
LABELS = {"app.kubernetes.io/name": "epp-fleet", "app.kubernetes.io/component": "worker"}


class Fleet:
    """Two worker pods, and what the leader sees of them."""

    def __init__(self, kube: KubeClient, namespace: str) -> None:
        self.kube = kube
        self.namespace = namespace
        self.changed = asyncio.Event()
        self.pods = WorkerPods(kube, Settings(), CLOCK, rng=random.Random(1))
        self.pods.on_change(self.changed.set)

    async def until_living(self, *names: str) -> None:
        async with asyncio.timeout(10):
            while [pod.name for pod in self.pods.living() if pod.ip] != list(names):
                self.changed.clear()
                await self.changed.wait()

    async def until_gone(self, *gone: PodAt) -> float:
        """How many seconds it took."""
        began = CLOCK.monotonic()
        async with asyncio.timeout(10):
            while self.pods.gone() != gone:
                await self.told()
        return CLOCK.monotonic() - began

    async def told(self) -> None:
        """Return after the next change."""
        async with asyncio.timeout(10):
            await self.changed.wait()
        self.changed.clear()


@pytest.fixture
async def fleet(control_plane: Cluster, namespace: str) -> AsyncIterator[Fleet]:
    settings = KubernetesSettings(kubeconfig=str(control_plane.kubeconfig), namespace=namespace)
    client = await open_client(settings)
    fleet = Fleet(client, namespace)
    for number in range(2):
        await make_pod(client, namespace, f"w-{number}", labels=LABELS, ip=f"192.0.2.{number + 1}")
    await make_pod(client, namespace, "other", labels={"app": "x"}, ip="192.0.2.9")
    fleet.pods.start()
    try:
        await fleet.until_living("w-0", "w-1")
        fleet.changed.clear()
        yield fleet
    finally:
        await fleet.pods.close()
        await client.close()


async def test_a_deleted_pod_is_gone_at_once(fleet: Fleet) -> None:
    """Within 200 ms of the API server's answer."""
    await delete_pod(fleet.kube, fleet.namespace, "w-0")
    assert await fleet.until_gone(PodAt("w-0", "192.0.2.1")) < 0.2
    await fleet.until_living("w-1")


async def test_a_failed_pod_is_gone_though_it_is_listed(fleet: Fleet) -> None:
    """As after an eviction."""
    await set_pod_status(fleet.kube, fleet.namespace, "w-0", ip="192.0.2.1", phase="Failed")
    await fleet.until_gone(PodAt("w-0", "192.0.2.1"))


async def test_an_unready_pod_is_there(fleet: Fleet) -> None:
    """Readiness is the gateways' matter, not membership's."""
    await set_pod_status(fleet.kube, fleet.namespace, "w-0", ip="192.0.2.7", ready=False)
    await fleet.told()
    assert fleet.pods.gone() == ()
    assert [pod.ip for pod in fleet.pods.living()] == ["192.0.2.7", "192.0.2.2"]


async def test_deletion_costs_are_written(fleet: Fleet) -> None:
    """By a merge patch that names the pod's uid; the watch brings them back."""

    class Soon(SystemClock):
        async def sleep(self, seconds: float) -> None:
            await asyncio.sleep(seconds / 1000)

    costs = DeletionCosts(fleet.kube, fleet.pods, Soon())
    task = asyncio.create_task(costs.run(lambda: {"w-0": 9.0, "w-1": 1.0}, lambda: True))
    try:
        await fleet.told()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert [pod.cost for pod in fleet.pods.living()] == [1, None]
    raw = await fleet.kube.get(f"/api/v1/namespaces/{fleet.namespace}/pods/w-0")
    assert raw["metadata"]["annotations"] == {DELETION_COST: "1"}
