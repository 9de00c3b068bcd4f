"""The chart on a real API server: helm installs it, changes it, rolls it back, takes it away."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fleet.errors import KubeNotFound
from fleet.kube.client import KubeClient
from fleet.kube.contract import Raw
from tests.control_plane.cluster import Cluster
from tests.go_tools import NoTool
from tests.helm import CHART, Refused, Values, chart, helm
from tests.integration.kube.test_deploy_apply import apply, collection, rendered
from tests.kustomize import ROOT

RELEASE = "fleet"
DOCUMENT = ROOT / "docs" / "kubernetes.md"
DEPLOYMENTS = "/apis/apps/v1/namespaces/{}/deployments/{}"


class Release:
    """One release in a namespace of its own, under a name that no other test uses."""

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        self.namespace = namespace
        self.name = namespace.rpartition("-")[2]
        self._flags = ("--namespace", namespace, "--kubeconfig", str(kubeconfig))

    def values(self, **more: Any) -> Values:
        return {"name": f"fleet-{self.name}", **more}

    async def run(self, *arguments: str, values: Values | None = None) -> str:
        try:
            return await asyncio.to_thread(helm, *arguments, *self._flags, values=values)
        except NoTool as missing:
            pytest.skip(str(missing))

    async def install(self, values: Values) -> str:
        return await self.run("install", RELEASE, str(CHART), values=values)

    def objects(self, values: Values) -> list[Raw]:
        """Those that a release of these values has."""
        return list(chart(values, namespace=self.namespace))


@pytest.fixture
async def release(control_plane: Cluster, namespace: str) -> AsyncIterator[Release]:
    made = Release(control_plane.kubeconfig, namespace)
    yield made
    # Policies and ClusterRoles are of no namespace: they would outlive it.
    await made.run("uninstall", RELEASE, "--ignore-not-found")


async def there(api: KubeClient, objects: list[Raw]) -> list[str]:
    """Which of them the API server has."""
    found = []
    for raw in objects:
        path = f"{collection(raw)}/{raw['metadata']['name']}"
        try:
            await api.get(path)
        except KubeNotFound:
            continue
        found.append(path)
    return found


async def test_a_release_comes_changes_and_goes(kube: KubeClient, release: Release) -> None:
    """Install, change settings, roll back, uninstall: pods' templates follow, and nothing stays."""
    first = release.values(grafanaDashboards={"enabled": True})
    second = release.values(settings={"worker": {"quiet_seconds": 5}})
    assert "STATUS: deployed" in await release.install(first)
    objects = release.objects(first)
    assert len(await there(kube, objects)) == len(objects)
    path = DEPLOYMENTS.format(release.namespace, f"fleet-{release.name}-worker")

    async def template() -> tuple[str, int]:
        pod = (await kube.get(path))["spec"]["template"]
        checksum = pod["metadata"]["annotations"]["checksum/settings"]
        return checksum, pod["spec"]["terminationGracePeriodSeconds"]

    before = await template()
    assert before[1] == 640
    # An autoscaler's work is not undone by an upgrade (uberswe/createmod.com#1097).
    await kube.patch(path, {"spec": {"replicas": 9}})
    await release.run("upgrade", RELEASE, str(CHART), values=second)
    after = await template()
    assert (after[0] != before[0], after[1]) == (True, 615)
    assert (await kube.get(path))["spec"]["replicas"] == 9
    await release.run("rollback", RELEASE, "1")
    assert await template() == before
    await release.run("uninstall", RELEASE, "--wait")
    assert await there(kube, objects + release.objects(second)) == []


async def test_autoscaling_that_is_turned_on_later_ends_no_worker(
    kube: KubeClient, release: Release
) -> None:
    """A Deployment that loses its `replicas` falls to 1, and would take most pools along
    (uberswe/createmod.com#1097): refused, until somebody else has set the number."""
    own = release.values(worker={"autoscaling": {"enabled": False}, "replicas": 7})
    await release.install(own)
    path = DEPLOYMENTS.format(release.namespace, f"fleet-{release.name}-worker")
    scaled = release.values()
    with pytest.raises(Refused, match=rf"fleet-{release.name}-worker would fall from 7 .*=8\)"):
        await release.run("upgrade", RELEASE, str(CHART), values=scaled)
    assert (await kube.get(path))["spec"]["replicas"] == 7
    await kube.patch(f"{path}/scale", {"spec": {"replicas": 8}})
    await release.run("upgrade", RELEASE, str(CHART), values=scaled)
    assert (await kube.get(path))["spec"]["replicas"] == 8
    assert len(await there(kube, release.objects(scaled))) == len(release.objects(scaled))


async def test_a_field_that_the_api_server_does_not_know_is_refused(release: Release) -> None:
    """So that the other test can fail: helm applies with strict field validation."""
    bad: Raw = {"nodeAffinity": {"required": []}}
    with pytest.raises(Refused, match="required"):
        await release.install(release.values(worker={"affinity": bad}))


async def test_one_namespace_needs_no_right_outside_of_it(
    control_plane: Cluster, namespace: str, tmp_path: Path
) -> None:
    """By an account with a Role in it."""
    everything = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    user = await control_plane.limited_user(tmp_path, namespace, "tenant", rules=[everything])
    tenant = Release(user, namespace)
    with pytest.raises(Refused, match="cluster scope"):
        await tenant.install(tenant.values())
    values = tenant.values(scope="namespace")
    await tenant.run("upgrade", "--install", RELEASE, str(CHART), values=values)
    async with control_plane.connected(user) as api:
        objects = tenant.objects(values)
        assert len(await there(api, objects)) == len(objects)
    await tenant.run("uninstall", RELEASE)


async def test_an_installation_by_kustomize_becomes_helms(
    control_plane: Cluster, kube: KubeClient, namespace: str
) -> None:
    """By the flag that docs/kubernetes.md names: the same Deployments go on, and follow values."""
    (flag,) = set(re.findall(r"`helm install (--[a-z -]+)`", DOCUMENT.read_text()))
    for raw in rendered("single-namespace", namespace):
        await apply(kube, raw, query="fieldValidation=Strict")
    path = DEPLOYMENTS.format(namespace, "epp-fleet-coordinator")
    before = await kube.get(path)
    release = Release(control_plane.kubeconfig, namespace)
    values = {"scope": "namespace", "coordinator": {"replicas": 5}}
    await release.run("install", RELEASE, str(CHART), *flag.split(), values=values)
    after = await kube.get(path)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["spec"]["replicas"] == 5
    await release.run("uninstall", RELEASE, "--wait")
    assert await there(kube, release.objects(values)) == []
