"""The autoscaler of `deploy/` with the real controller: out by the workers' metrics, in slowly, and
never in for want of a metric (kubernetes/kubernetes#105187).

That idle workers have all of these metrics: tests/integration/test_deploy_metrics.py. That neither
an apply nor the chart sets how many workers there are (uberswe/createmod.com#1097):
test_docs_commands.py, test_helm_install.py.
"""

import asyncio
import contextlib
import copy
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from fleet.errors import KubeNotFound
from fleet.kube.client import KubeClient
from fleet.kube.contract import KubeApi, Raw
from tests.control_plane.cluster import Cluster
from tests.control_plane.objects import delete_pod, eventually
from tests.control_plane.plane import ControlPlane
from tests.custom_metrics import CustomMetrics, custom_metrics, take_away
from tests.kustomize import NoKustomize, only, overlay

BUSY, STREAMS = "epp_fleet_loop_busy_ratio", "epp_fleet_streams_open"
WORKER = "epp-fleet-worker"
AT_REST_LOOKS = 4
"""The controller looks that often before it is taken to be content."""

UNASKED_SECONDS, UNASKED_LOOK_SECONDS = 60.0, 0.5
TEN_MINUTES_LOOKS = 40
"""So often it looks in 10 minutes by default, once in 15 s; here in 10 s."""


class Scaled:
    """The workers' Deployment and its autoscaler in a namespace; no kubelet runs."""

    def __init__(
        self, api: KubeApi, namespace: str, metrics: CustomMetrics, plane: ControlPlane
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._plane = plane
        self.metrics = metrics
        self._deployments = f"/apis/apps/v1/namespaces/{namespace}/deployments"
        self._scalers = f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers"
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._load = {BUSY: 0.0, STREAMS: 0.0}
        self._missing: set[str] = set()

    async def install(
        self, objects: Sequence[Raw], *, hurry: bool = False, replicas: int | None = None
    ) -> None:
        """Deployment and autoscaler of the manifests.

        Args:
            hurry: scale in without waiting: what keeps it from that is not its patience.
            replicas: how many workers there are already.
        """
        deployment = copy.deepcopy(only(objects, "Deployment", WORKER))
        scaler = copy.deepcopy(only(objects, "HorizontalPodAutoscaler", WORKER))
        for raw in (deployment, scaler):
            raw["metadata"]["namespace"] = self._namespace
        # What no test needs is not made: accounts, volumes.
        pod = deployment["spec"]["template"]["spec"]
        pod.pop("serviceAccountName")
        pod.pop("volumes")
        pod["containers"][0].pop("volumeMounts")
        if replicas is not None:
            deployment["spec"]["replicas"] = replicas
        behavior = scaler["spec"]["behavior"]
        behavior["scaleUp"]["stabilizationWindowSeconds"] = 0
        if hurry:
            behavior["scaleDown"]["stabilizationWindowSeconds"] = 0
        await self._api.create(self._deployments, deployment)
        await self._api.create(self._scalers, scaler)

    def load(self, *, busy: float = 0.0, streams: float = 0.0) -> None:
        """The load of the whole fleet, spread over the pods there are."""
        self._load = {BUSY: busy, STREAMS: streams}

    def miss(self, *metrics: str) -> None:
        """Nobody has these from now on."""
        self._missing = set(metrics)
        for metric in metrics:
            del self.metrics.values[metric]

    def find(self) -> None:
        """Everything is there again."""
        self._missing = set()
        self.metrics.find()

    async def replicas(self) -> int:
        """How many pods are wanted; those there are run, and are as busy as the load makes them."""
        await self._run_pods()
        found = await self._api.get(f"{self._deployments}/{WORKER}")
        return int(found["spec"]["replicas"])

    async def _run_pods(self) -> None:
        names: list[str] = []
        for pod in (await self._api.get(self._pods))["items"]:
            with contextlib.suppress(KubeNotFound):  # deleted meanwhile
                names += await self._run_pod(pod)
        for metric in self._load.keys() - self._missing:
            whole = self._load[metric]
            self.metrics.set(metric, {name: whole / len(names) for name in names})

    async def _run_pod(self, pod: Raw) -> list[str]:
        """Its name, if it is to run."""
        name = pod["metadata"]["name"]
        if pod["metadata"].get("deletionTimestamp"):
            await delete_pod(self._api, self._namespace, name)  # as a kubelet after its drain
            return []
        if pod["status"].get("phase") != "Running":
            await self._api.patch(f"{self._pods}/{name}/status", {"status": _running(pod)})
        return [name]

    async def reaches(self, count: int, *, seconds: float = 30.0) -> None:
        """Wait until so many are wanted."""

        async def there() -> bool:
            return await self.replicas() == count

        try:
            await eventually(there, f"{count} workers", seconds=seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}: {await self.conditions()}") from None

    async def stays(self, count: int, *, looks: int = AT_REST_LOOKS) -> None:
        """So many are wanted while the controller looks that often."""
        before = self._looks()

        async def looked() -> bool:
            assert await self.replicas() == count
            # What the last of them came to is known once the next one has begun.
            return self._looks() > before + looks

        await eventually(looked, "the controller looks")

    def _looks(self) -> int:
        return max(self.metrics.asked.count(metric) for metric in (BUSY, STREAMS))

    async def stays_unasked(self, count: int, *, looks: int) -> None:
        """As `stays`, by what the controller asks of the API server: maybe no metrics can be asked
        for."""
        before = await self._scales_read()
        seconds = 0.0
        while await self._scales_read() <= before + looks:
            assert await self.replicas() == count, await self.conditions()
            assert seconds < UNASKED_SECONDS, "the controller does not look"
            await asyncio.sleep(UNASKED_LOOK_SECONDS)
            seconds += UNASKED_LOOK_SECONDS
        assert await self.replicas() == count

    async def _scales_read(self) -> int:
        """How often the controller has read the Deployment's scale, with which it begins."""
        events = await asyncio.to_thread(self._plane.audit_events, user="pod-autoscaler")
        return sum(
            each["verb"] == "get" and each["objectRef"].get("subresource") == "scale"
            for each in events
            if each.get("objectRef", {}).get("namespace") == self._namespace
        )

    async def conditions(self) -> dict[str, tuple[str, str]]:
        """Status and reason by type."""
        found = await self._api.get(f"{self._scalers}/{WORKER}")
        conditions: list[dict[str, Any]] = found.get("status", {}).get("conditions") or []
        return {each["type"]: (each["status"], each["reason"]) for each in conditions}

    async def inactive(self) -> None:
        """Wait until the controller says that it has no metric."""

        async def said() -> bool:
            return (await self.conditions()).get("ScalingActive", ("", ""))[0] == "False"

        await eventually(said, "the controller misses a metric")


def _running(pod: Raw) -> Raw:
    """The status of a pod that is ready since it was made."""
    since = pod["metadata"]["creationTimestamp"]
    kinds = ("Ready", "ContainersReady", "PodScheduled", "Initialized")
    return {
        "phase": "Running",
        "startTime": since,
        "podIP": "192.0.2.9",
        "podIPs": [{"ip": "192.0.2.9"}],
        "conditions": [
            {"type": kind, "status": "True", "lastTransitionTime": since} for kind in kinds
        ],
    }


@pytest.fixture
def objects() -> tuple[Raw, ...]:
    try:
        return overlay("cluster-wide")
    except NoKustomize as missing:
        pytest.skip(str(missing))


@pytest.fixture
async def scaled(
    control_plane: Cluster, own_plane: ControlPlane, kube: KubeClient, namespace: str
) -> AsyncIterator[Scaled]:
    if not control_plane.controllers:
        pytest.skip("no controller manager runs: nothing scales")
    async with custom_metrics(kube, own_plane.pki) as metrics:
        yield Scaled(kube, namespace, metrics, own_plane)


@pytest.mark.parametrize(("busy", "streams"), [(3.0, 0.0), (1.8, 20_000.0)])
async def test_out_by_what_workers_export(
    scaled: Scaled, objects: tuple[Raw, ...], busy: float, streams: float
) -> None:
    """The least without any load; then by busy loops (3.0 of 0.6 each) or streams (20,000 of 4,000
    each, while the loops are as busy as they should be), whichever asks for more."""
    await scaled.install(objects)
    await scaled.reaches(3)
    scaled.load(busy=1.8, streams=12_000)
    await scaled.stays(3)
    scaled.load(busy=busy, streams=streams)
    await scaled.reaches(5)
    assert {BUSY, STREAMS} <= set(scaled.metrics.asked)


async def test_in_is_slow(scaled: Scaled, objects: tuple[Raw, ...]) -> None:
    """An idle moment takes no worker away."""
    await scaled.install(objects)
    scaled.load(busy=3.0)
    await scaled.reaches(5)
    scaled.load()
    await scaled.stays(5)
    assert (await scaled.conditions())["ScalingActive"] == ("True", "ValidMetricFound")


@pytest.mark.parametrize("lost", ["the source", "one metric", "all metrics"])
async def test_a_lost_metric_takes_no_worker_away(
    scaled: Scaled, objects: tuple[Raw, ...], lost: str
) -> None:
    """Whatever the other one says, and however hasty scaling in is. When it is back, it goes on."""
    await scaled.install(objects, hurry=True)
    scaled.load(busy=3.0)
    await scaled.reaches(5)
    await scaled.stays(5, looks=1)
    if lost == "the source":
        scaled.metrics.lose()
    else:
        scaled.miss(*{"one metric": (BUSY,), "all metrics": (BUSY, STREAMS)}[lost])
    scaled.load()  # an idle fleet by whatever can still be asked
    if lost != "one metric":
        await scaled.inactive()
    await scaled.stays(5)
    scaled.find()
    # At once to the least: what was added in the last 300 s may be taken back in one step.
    await scaled.reaches(3)


async def test_ten_minutes_without_a_source_take_no_worker_away(
    scaled: Scaled, objects: tuple[Raw, ...]
) -> None:
    """8 workers are 8 for as many looks as the controller takes in that time, while Prometheus is
    away (kubernetes/kubernetes#105187). With metrics one goes at the first look."""
    scaled.load(busy=4.8)
    await scaled.install(objects, hurry=True, replicas=8)
    await scaled.stays(8, looks=1)
    scaled.metrics.lose()
    scaled.load()
    await scaled.inactive()
    await scaled.stays_unasked(8, looks=TEN_MINUTES_LOOKS)
    scaled.find()
    await scaled.reaches(7)


async def test_without_an_adapter_no_worker_is_taken_away(
    scaled: Scaled, kube: KubeClient, objects: tuple[Raw, ...]
) -> None:
    """Nor is one when there is no such API any more."""
    scaled.load(busy=4.8)
    await scaled.install(objects, hurry=True, replicas=8)
    await scaled.stays(8, looks=1)
    await take_away(kube)
    scaled.load()
    await scaled.inactive()
    await scaled.stays_unasked(8, looks=AT_REST_LOOKS)


async def test_one_metric_is_enough_to_scale_out(scaled: Scaled, objects: tuple[Raw, ...]) -> None:
    """While the other one is missing (kubernetes/kubernetes#61007)."""
    await scaled.install(objects)
    await scaled.reaches(3)
    await scaled.stays(3, looks=1)
    scaled.miss(STREAMS)
    scaled.load(busy=3.0)
    await scaled.reaches(5)
