"""Pools and pods from a real API server: what only a real one does."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from fleet.kube.client import KubeClient
from fleet.model import Pod
from fleet.sources.contract import Change, Kind, ObjectKey
from tests import manifest_texts as texts
from tests.control_plane.cluster import Cluster, running_cluster
from tests.control_plane.objects import (
    CRDS,
    apply_crds,
    delete_pod,
    make_namespace,
    make_pod,
    set_pod_status,
)
from tests.control_plane.plane import ControlPlane
from tests.control_plane.programs import Missing
from tests.kube_sources import QUICK, RunningSource, running_source, until

V1 = "/apis/inference.networking.k8s.io/v1"
CUSTOM_KINDS = (Kind.POOL, Kind.OBJECTIVE, Kind.REWRITE)
CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def ignore(change: Change) -> None:
    """A listener that does not care."""


def pod_states(on: RunningSource, namespace: str) -> dict[str, tuple[str, bool]]:
    """Address and readiness by name."""
    found = on.source.objects(Kind.POD, namespace=namespace)
    return {key.name: (pod.ip, pod.ready) for key, pod in found.items() if isinstance(pod, Pod)}


async def test_a_pods_life(control_plane: Cluster, kube: KubeClient, namespace: str) -> None:
    """Created: no address. Ready: picked. Draining: not picked. Gone: gone. Each is told as soon as
    it is so."""
    async with running_source(control_plane.kubeconfig) as on:
        watch = on.source.watch(Kind.POD, ignore, namespace=namespace)
        await on.source.start()
        await watch.wait_synced()
        await make_pod(kube, namespace, "p", labels={"app": "a"})
        await until(lambda: pod_states(on, namespace) == {"p": ("", False)})
        await set_pod_status(kube, namespace, "p", ip="192.0.2.7")
        await until(lambda: pod_states(on, namespace) == {"p": ("192.0.2.7", True)})
        await set_pod_status(kube, namespace, "p", ip="192.0.2.7", ready=False)
        await until(lambda: pod_states(on, namespace) == {"p": ("192.0.2.7", False)})
        await set_pod_status(kube, namespace, "p", ip="192.0.2.7")
        await until(lambda: pod_states(on, namespace) == {"p": ("192.0.2.7", True)})
        await delete_pod(kube, namespace, "p")
        await until(lambda: pod_states(on, namespace) == {})
        assert on.condition("pods").counters.failures == 0


async def test_watches_that_the_server_ends(
    control_plane: Cluster, kube: KubeClient, namespace: str
) -> None:
    """They go on from where they were: every change is told, and nothing is listed again."""
    pace = replace(QUICK, watch_seconds=1.0)
    told: list[Change] = []
    async with running_source(control_plane.kubeconfig, pace=pace) as on:
        watch = on.source.watch(Kind.POD, told.append, namespace=namespace)
        await on.source.start()
        await watch.wait_synced()
        counters = on.condition("pods").counters
        for number in range(3):
            while counters.watches <= number:
                await asyncio.sleep(0.01)
            await make_pod(kube, namespace, f"p{number}", labels={"app": "a"})
        await until(lambda: len(told) == 3)
        assert [each.key.name for each in told] == ["p0", "p1", "p2"]
        assert (counters.lists, counters.failures) == (1, 0)


async def test_large_lists_come_in_pages(
    control_plane: Cluster, kube: KubeClient, namespace: str
) -> None:
    """All objects of one snapshot, whatever the size of a page."""
    path = f"{V1}/namespaces/{namespace}/inferencepools"
    await asyncio.gather(
        *(kube.create(path, texts.pool(f"p{number}", namespace)) for number in range(45))
    )
    async with running_source(
        control_plane.kubeconfig, pace=replace(QUICK, page=10), watch_namespaces=namespace
    ) as on:
        watch = on.source.watch(Kind.POOL, ignore)
        await on.source.start()
        await watch.wait_synced()
        assert len(on.source.objects(Kind.POOL)) == 45


POD_READER = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}
POOL_READER = {
    "apiGroups": ["inference.networking.k8s.io", "inference.networking.x-k8s.io"],
    "resources": ["inferencepools"],
    "verbs": ["list", "watch"],
}


async def test_namespaced_permissions_suffice(
    control_plane: Cluster, kube: KubeClient, namespace: str, tmp_path: Path
) -> None:
    """`list` and `watch` of pools and pods in the namespaces of the settings, and nothing else."""
    await make_pod(kube, namespace, "p", labels={"app": "a"}, ip="192.0.2.7")
    kubeconfig = await control_plane.limited_user(
        tmp_path, namespace, "worker", rules=[POD_READER, POOL_READER]
    )
    async with running_source(kubeconfig, watch_namespaces=namespace) as on:
        watches = [on.source.watch(kind, ignore) for kind in (Kind.POOL, Kind.POD)]
        await on.source.start()
        for watch in watches:
            await watch.wait_synced()
        assert set(on.source.objects(Kind.POD)) == {ObjectKey(namespace, "p")}
        await make_pod(kube, namespace, "q", labels={"app": "a"})
        await until(lambda: len(on.source.objects(Kind.POD)) == 2)
        assert on.source.problems() == ()


@pytest.mark.parametrize("missing", ["list", "watch"])
async def test_a_missing_permission_is_named(
    control_plane: Cluster,
    namespace: str,
    tmp_path: Path,
    missing: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """kserve/kserve#5750: verb and resource, as one would write them into the role."""
    verbs = [verb for verb in ("list", "watch") if verb != missing]
    kubeconfig = await control_plane.limited_user(
        tmp_path, namespace, f"without-{missing}", rules=[{**POD_READER, "verbs": verbs}]
    )
    async with running_source(kubeconfig) as on:
        on.source.watch(Kind.POD, ignore, namespace=namespace)
        await on.source.start()
        await until(lambda: any(each.levelno == logging.ERROR for each in caplog.records))
    (error,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    words = f'RBAC lacks verb "{missing}" on resource "pods" of API group "" in namespace'
    assert words in error.__dict__["error"]


@pytest.fixture(scope="module")
def bare(control_plane: Cluster) -> Iterator[ControlPlane]:
    """A control plane of this module's own, without CRDs: to install them, pause it and kill it."""
    try:
        with running_cluster(crds=False, controllers=False) as cluster:
            assert cluster.plane is not None
            yield cluster.plane
    except Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture
async def bare_kube(bare: ControlPlane) -> AsyncIterator[KubeClient]:
    async with Cluster(bare.kubeconfig(), controllers=False, plane=bare).connected() as client:
        yield client


async def test_crds_come_and_go_while_running(bare: ControlPlane, bare_kube: KubeClient) -> None:
    """kubernetes-sigs/gateway-api-inference-extension#1737, #407: nothing is needed but the CRD, at
    any time; with it go its pools, and so it is with objectives and rewrites in either group."""
    names = [yaml.safe_load(path.read_text())["metadata"]["name"] for path in CRDS.glob("*.yaml")]
    namespace = await make_namespace(bare_kube)
    async with running_source(bare.kubeconfig()) as on:
        watches = [on.source.watch(kind, ignore) for kind in CUSTOM_KINDS]
        await on.source.start()
        for watch in watches:
            await watch.wait_synced()
        assert on.source.problems() == ()
        await apply_crds(bare_kube)
        for raw in (
            texts.pool("a", namespace),
            texts.objective("a", namespace),
            texts.objective("b", namespace, api=texts.X_K8S),
            texts.rewrite("a", namespace),
            texts.rewrite("b", namespace, api=texts.X_K8S),
        ):
            path = f"/apis/{raw['apiVersion']}/namespaces/{namespace}/{raw['kind'].lower()}s"
            await bare_kube.create(path, raw)
        await until(lambda: [len(on.source.objects(kind)) for kind in CUSTOM_KINDS] == [1, 2, 2])
        for name in names:
            await bare_kube.delete(f"{CRD}/{name}")
        await until(lambda: not any(on.source.objects(kind) for kind in CUSTOM_KINDS))
        await until(lambda: all(each.missing for each in on.source.conditions()))
        assert on.source.problems() == ()


async def test_an_api_server_that_is_stopped_and_one_that_is_killed(
    bare: ControlPlane, bare_kube: KubeClient
) -> None:
    """opensandbox-group/OpenSandbox#1533: a socket that is open and dead is noticed; what was known
    stays; and what changed is found when a server is there again."""
    namespace = await make_namespace(bare_kube)
    path = f"/api/v1/namespaces/{namespace}/services"
    body = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "a"},
        "spec": {"ports": [{"port": 80}]},
    }
    await bare_kube.create(path, body)
    pace = replace(QUICK, watch_seconds=1.0, grace_seconds=0.2, page_seconds=1.0)
    async with running_source(
        bare.kubeconfig(), pace=pace, watch_namespaces=namespace, request_timeout_seconds=1.0
    ) as on:
        watch = on.source.watch(Kind.SERVICE, ignore)
        await on.source.start()
        await watch.wait_synced()
        bare.pause()
        try:
            await until(lambda: on.condition("services").failing is not None)
            assert len(on.source.objects(Kind.SERVICE)) == 1
            assert on.source.age() > 1.0
        finally:
            bare.resume()
        await bare_kube.delete(f"{path}/a")
        await until(lambda: len(on.source.objects(Kind.SERVICE)) == 0)
        bare.kill("apiserver")
        await until(lambda: on.condition("services").failing is not None)
        await asyncio.to_thread(bare.start_apiserver)
        async with Cluster(bare.kubeconfig(), controllers=False, plane=bare).connected() as api:
            await api.create(path, {**body, "metadata": {"name": "b"}})
        await until(lambda: len(on.source.objects(Kind.SERVICE)) == 1)
        await until(lambda: on.condition("services").failing is None)
