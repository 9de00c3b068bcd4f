"""The control plane that other tests stand on does what they take for granted."""

import pytest

from fleet.errors import KubeForbidden, KubeUnavailable
from fleet.kube.client import KubeClient
from tests.control_plane.cluster import Cluster, running_cluster
from tests.control_plane.objects import CRDS, delete_pod, eventually, exists, make_node, make_pod
from tests.control_plane.plane import ControlPlane

POD = {"containers": [{"name": "server", "image": "model-server"}]}


async def test_every_crd_is_served(kube: KubeClient) -> None:
    """Six kinds, established before the first test."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    found = {each["metadata"]["name"]: each for each in (await kube.get(path))["items"]}
    for file in CRDS.glob("*.yaml"):
        group, _, plural = file.stem.partition("_")
        crd = found[f"{plural}.{group}"]
        conditions = {each["type"]: each["status"] for each in crd["status"]["conditions"]}
        assert conditions["Established"] == "True"


async def test_pods_of_a_deployment(
    control_plane: Cluster, kube: KubeClient, namespace: str
) -> None:
    """The controllers run: a Deployment makes Pods, a Service with a selector gets its slice."""
    if not control_plane.controllers:
        pytest.skip("this cluster has no controller manager")
    labels = {"app": "m"}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "m"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": POD},
        },
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "m"},
        "spec": {"selector": labels, "ports": [{"port": 8000}]},
    }
    await kube.create(f"/apis/apps/v1/namespaces/{namespace}/deployments", deployment)
    await kube.create(f"/api/v1/namespaces/{namespace}/services", service)
    await make_node(kube, "node-1")
    await make_pod(kube, namespace, "m-x", labels=labels, ip="192.0.2.9", node="node-1")
    slices = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"

    async def pods() -> bool:
        found = await kube.get(f"/api/v1/namespaces/{namespace}/pods")
        return len(found["items"]) == 3

    async def routed() -> bool:
        addresses = [
            address
            for each in (await kube.get(slices))["items"]
            for endpoint in each["endpoints"] or []
            for address in endpoint["addresses"]
            if endpoint["conditions"]["ready"]
        ]
        return addresses == ["192.0.2.9"]

    await eventually(pods, "the Deployment's two Pods")
    await eventually(routed, "the Service's slice with the ready Pod")


async def test_a_pod_that_is_going(kube: KubeClient, namespace: str) -> None:
    """With a grace period it stays, marked, until it is deleted without."""
    await make_node(kube, "node-1")
    await make_pod(kube, namespace, "p", labels={}, ip="192.0.2.1", node="node-1")
    await delete_pod(kube, namespace, "p", grace_seconds=30)
    path = f"/api/v1/namespaces/{namespace}/pods/p"
    assert (await kube.get(path))["metadata"]["deletionTimestamp"]
    await delete_pod(kube, namespace, "p")
    assert not await exists(kube, path)


async def test_a_user_with_a_certificate(control_plane: Cluster, own_plane: ControlPlane) -> None:
    """It is who the certificate says, and may nothing that nobody granted."""
    path = own_plane.kubeconfig("nobody", groups=["a", "b"])
    async with control_plane.connected(path) as client:
        with pytest.raises(KubeForbidden, match='User "nobody" cannot list'):
            await client.get("/api/v1/pods")
    (event,) = own_plane.audit_events(user="nobody")
    assert set(event["user"]["groups"]) == {"a", "b", "system:authenticated"}


async def test_an_api_server_that_dies(control_plane: Cluster) -> None:
    """It comes back at the same address with what was in it, and clients reach it again."""
    if control_plane.plane is None:
        pytest.skip("KUBECONFIG is set: no control plane is started here")
    with running_cluster(crds=False, controllers=False) as cluster:
        plane = cluster.plane
        assert plane is not None
        async with cluster.connected() as client:
            made = await client.create(
                "/api/v1/namespaces", {"kind": "Namespace", "metadata": {"name": "kept"}}
            )
            plane.kill("apiserver")
            with pytest.raises(KubeUnavailable):
                await client.get("/api/v1/namespaces/kept")
            plane.start_apiserver()
            found = await client.get("/api/v1/namespaces/kept")
    assert found["metadata"]["uid"] == made["metadata"]["uid"]
    assert not plane.folder.exists()
