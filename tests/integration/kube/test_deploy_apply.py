"""What `deploy/` renders is taken by a real API server, by Pod Security `restricted` too."""

import asyncio
import contextlib
import json
from pathlib import Path

import pytest

from fleet.errors import KubeForbidden, KubeNotFound
from fleet.kube.client import KubeClient
from fleet.kube.contract import KubeApi, Raw
from tests.control_plane.cluster import Cluster
from tests.kustomize import OVERLAYS, NoKustomize, only, overlay

PLURALS = {
    "ConfigMap": "configmaps",
    "CronJob": "cronjobs",
    "Deployment": "deployments",
    "HorizontalPodAutoscaler": "horizontalpodautoscalers",
    "Job": "jobs",
    "Namespace": "namespaces",
    "NetworkPolicy": "networkpolicies",
    "PodDisruptionBudget": "poddisruptionbudgets",
    "Role": "roles",
    "RoleBinding": "rolebindings",
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "Service": "services",
    "ServiceAccount": "serviceaccounts",
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}
STRICT = "dryRun=All&fieldValidation=Strict"


def rendered(name: str, namespace: str) -> list[Raw]:
    """The overlay, for another namespace."""
    try:
        text = json.dumps(overlay(name))
    except NoKustomize as missing:
        pytest.skip(str(missing))
    objects: list[Raw] = json.loads(
        text.replace('"namespace": "epp-fleet"', f'"namespace": "{namespace}"')
    )
    return objects


def collection(raw: Raw) -> str:
    version, namespace = raw["apiVersion"], raw["metadata"].get("namespace")
    prefix = f"/apis/{version}" if "/" in version else f"/api/{version}"
    place = f"/namespaces/{namespace}" if namespace else ""
    return f"{prefix}{place}/{PLURALS[raw['kind']]}"


async def apply(api: KubeApi, raw: Raw, *, query: str) -> None:
    """As an apply: what is there is left."""
    with contextlib.suppress(KubeNotFound):
        await api.get(f"{collection(raw)}/{raw['metadata']['name']}")
        return
    await api.create(f"{collection(raw)}?{query}", raw)


@pytest.mark.parametrize("name", OVERLAYS)
async def test_the_api_server_takes_it(kube: KubeClient, namespace: str, name: str) -> None:
    """Every object, with every field known and every expression compiled."""
    for raw in rendered(name, namespace):
        await apply(kube, raw, query=STRICT)


async def confined(kube: KubeApi, path: str) -> None:
    """Wait until the namespace's level is enforced: admission learns of its labels by a watch."""
    spec = {"containers": [{"name": "any", "image": "any"}]}
    loose = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "loose"}, "spec": spec}
    async with asyncio.timeout(10):
        while True:
            try:
                await kube.create(f"{path}/pods?{STRICT}", loose)
            except KubeForbidden:
                return
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("name", OVERLAYS)
async def test_pods_pass_the_restricted_level(kube: KubeClient, namespace: str, name: str) -> None:
    """The level that the manifests give the namespace; a pod that is less confined is refused."""
    objects = rendered(name, namespace)
    level = only(rendered("cluster-wide", namespace), "Namespace", "epp-fleet")["metadata"][
        "labels"
    ]
    assert level["pod-security.kubernetes.io/enforce"] == "restricted"
    path = f"/api/v1/namespaces/{namespace}"
    await kube.patch(path, {"metadata": {"labels": level}})
    await confined(kube, path)
    for raw in objects:
        if raw["kind"] not in ("Deployment", "Job"):
            continue
        template = raw["spec"]["template"]
        # Dry runs leave no accounts behind.
        template["spec"].pop("serviceAccountName", None)
        head = {"name": raw["metadata"]["name"], "labels": template["metadata"]["labels"]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": head, "spec": template["spec"]}
        await kube.create(f"{path}/pods?{STRICT}", pod)
        pod["spec"]["containers"][0]["securityContext"].pop("capabilities")
        with pytest.raises(KubeForbidden, match="restricted"):
            await kube.create(f"{path}/pods?{STRICT}", pod)


async def test_one_namespace_needs_no_right_outside_of_it(
    control_plane: Cluster, namespace: str, tmp_path: Path
) -> None:
    """Installed for good by an account with a Role in it; rights that it has not it cannot give."""
    everything = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    user = await control_plane.limited_user(tmp_path, namespace, "tenant", rules=[everything])
    async with control_plane.connected(user) as tenant:
        for raw in rendered("single-namespace", namespace):
            await apply(tenant, raw, query="fieldValidation=Strict")
        with pytest.raises(KubeForbidden):
            await tenant.get("/api/v1/namespaces")
