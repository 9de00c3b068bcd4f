"""The client on a real API server."""

import asyncio
from pathlib import Path

import pytest

from fleet.errors import (
    KubeConflict,
    KubeForbidden,
    KubeGone,
    KubeNotFound,
    KubeRefused,
    KubeUnavailable,
)
from fleet.kube.client import REREAD_SECONDS, KubeClient, open_client
from fleet.kube.contract import SERVER_SIDE_APPLY, Raw
from fleet.settings.model import KubernetesSettings
from tests.control_plane.cluster import Cluster
from tests.control_plane.objects import eventually, make_node, make_pod, service_account_token
from tests.control_plane.plane import ControlPlane

POOLS = "/apis/inference.networking.k8s.io/v1/namespaces/{}/inferencepools"


def config_map(name: str, **data: str) -> Raw:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def config_maps(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


async def test_create_read_replace_patch_delete(kube: KubeClient, namespace: str) -> None:
    """The five calls do what their HTTP verbs do, and the objects come as plain dicts."""
    path = config_maps(namespace)
    made = await kube.create(path, config_map("a", word="ä\N{GRINNING FACE}"))
    assert made["data"] == {"word": "ä\N{GRINNING FACE}"}
    made["data"] = {"word": "two"}
    assert (await kube.replace(f"{path}/a", made))["data"] == {"word": "two"}
    patched = await kube.patch(f"{path}/a", {"data": {"word": None, "more": "three"}})
    assert patched["data"] == {"more": "three"}
    assert (await kube.get(f"{path}/a"))["data"] == {"more": "three"}
    assert (await kube.delete(f"{path}/a"))["status"] == "Success"
    with pytest.raises(KubeNotFound, match=f'get configmaps a in namespace {namespace}.*"a" not'):
        await kube.get(f"{path}/a")


async def test_apply(kube: KubeClient, namespace: str) -> None:
    """Server-side apply creates and then owns only the fields it names."""
    path = f"{config_maps(namespace)}/applied"
    params = {"fieldManager": "test", "force": "true"}
    for word in ("one", "two"):
        await kube.patch(
            path, config_map("applied", word=word), content_type=SERVER_SIDE_APPLY, params=params
        )
    found = await kube.get(path)
    assert found["data"] == {"word": "two"}
    assert found["metadata"]["managedFields"][0]["operation"] == "Apply"


async def test_a_stale_version_is_a_conflict(kube: KubeClient, namespace: str) -> None:
    """A PUT with an old resourceVersion and a second POST change nothing."""
    path = config_maps(namespace)
    first = await kube.create(path, config_map("a"))
    await kube.patch(f"{path}/a", {"data": {"by": "other"}})
    with pytest.raises(KubeConflict) as stale:
        await kube.replace(f"{path}/a", {**first, "data": {"by": "us"}})
    assert (stale.value.status, stale.value.reason) == (409, "Conflict")
    with pytest.raises(KubeConflict) as again:
        await kube.create(path, config_map("a"))
    assert again.value.reason == "AlreadyExists"
    assert (await kube.get(f"{path}/a"))["data"] == {"by": "other"}


async def test_a_delete_with_preconditions(kube: KubeClient, namespace: str) -> None:
    """Only the object that was meant is deleted."""
    path = config_maps(namespace)
    await kube.create(path, config_map("a"))
    with pytest.raises(KubeConflict):
        await kube.delete(f"{path}/a", body={"preconditions": {"uid": "another"}})
    await kube.get(f"{path}/a")


async def test_what_admission_refuses(kube: KubeClient, namespace: str) -> None:
    """A loopback address in a slice: 422, with the server's own words."""
    slices = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
    body = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "s"},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["127.0.0.1"]}],
    }
    with pytest.raises(KubeRefused, match=r"create endpointslices\.discovery.*loopback") as no:
        await kube.create(slices, body)
    assert (no.value.status, no.value.reason) == (422, "Invalid")


async def test_pages(kube: KubeClient, namespace: str) -> None:
    """`limit` and `continue` walk through a list; a foreign token is refused."""
    path = config_maps(namespace)
    for number in range(5):
        await kube.create(path, config_map(f"a{number}"))
    params = {"limit": "2", "fieldSelector": "metadata.name!=kube-root-ca.crt"}
    names: list[str] = []
    while True:
        page = await kube.get(path, params=params)
        names += [each["metadata"]["name"] for each in page["items"]]
        if not page["metadata"].get("continue"):
            break
        params["continue"] = page["metadata"]["continue"]
    assert names == [f"a{number}" for number in range(5)]
    with pytest.raises(KubeRefused):
        await kube.get(path, params={"limit": "2", "continue": "bm90LWEtdG9rZW4"})


async def test_a_version_that_is_gone(
    kube: KubeClient, own_plane: ControlPlane, namespace: str
) -> None:
    """410: for a list at a version that the server no longer has, an error; for a watch, an event.

    Events have no cache in the API server, so what etcd forgot is gone.
    """
    own_plane.forget_history()
    path = f"/api/v1/namespaces/{namespace}/events"
    exact = {"resourceVersion": "1", "resourceVersionMatch": "Exact", "limit": "1"}
    with pytest.raises(KubeGone) as gone:
        await kube.get(path, params=exact)
    assert (gone.value.status, gone.value.reason) == (410, "Expired")
    watch = kube.watch(path, params={"resourceVersion": "1"}, read_timeout_seconds=10)
    assert [(each["type"], each["object"]["code"]) async for each in watch] == [("ERROR", 410)]


async def test_a_watch_sees_changes(kube: KubeClient, namespace: str) -> None:
    """Every change after the list arrives, in order; the server ends the watch when asked to."""
    path = config_maps(namespace)
    version = (await kube.get(path))["metadata"]["resourceVersion"]
    await kube.create(path, config_map("a", n="1"))
    await kube.patch(f"{path}/a", {"data": {"n": "2"}})
    await kube.delete(f"{path}/a")
    params = {"resourceVersion": version, "timeoutSeconds": "1"}
    watch = kube.watch(path, params=params, read_timeout_seconds=10)
    seen = [(each["type"], each["object"]["metadata"]["name"]) async for each in watch]
    assert [each for each in seen if each[1] == "a"] == [
        ("ADDED", "a"),
        ("MODIFIED", "a"),
        ("DELETED", "a"),
    ]


async def test_pools_and_pods(kube: KubeClient, namespace: str) -> None:
    """The InferencePool kind is served, and a Pod's status is what a test patches."""
    pool = {
        "apiVersion": "inference.networking.k8s.io/v1",
        "kind": "InferencePool",
        "metadata": {"name": "llama"},
        "spec": {
            "selector": {"matchLabels": {"app": "llama"}},
            "targetPorts": [{"number": 8000}],
            "endpointPickerRef": {"name": "epp", "port": {"number": 9002}},
        },
    }
    await kube.create(POOLS.format(namespace), pool)
    listed = await kube.get("/apis/inference.networking.k8s.io/v1/inferencepools")
    assert "llama" in [each["metadata"]["name"] for each in listed["items"]]
    await make_node(kube, "node-1", zone="a")
    pod = await make_pod(
        kube, namespace, "llama-0", labels={"app": "llama"}, ip="192.0.2.7", node="node-1"
    )
    assert pod["status"]["podIP"] == "192.0.2.7"


async def test_who_may_not_is_told_what_is_missing(
    control_plane: Cluster, namespace: str, tmp_path: Path
) -> None:
    """A user with one rule: all else is KubeForbidden and names verb, resource, group and place."""
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "create"]}
    user = await control_plane.limited_user(tmp_path, namespace, "limited", rules=[rule])
    async with control_plane.connected(user) as limited:
        assert limited.namespace == namespace
        await limited.create(config_maps(namespace), config_map("a"))
        with pytest.raises(KubeForbidden) as no:
            await limited.get(config_maps(namespace))
        assert 'verb "list" on resource "configmaps" of API group ""' in str(no.value)
        assert f'in namespace "{namespace}"' in str(no.value)
        with pytest.raises(KubeForbidden) as no:
            async for _ in limited.watch(
                "/apis/inference.networking.k8s.io/v1/inferencepools",
                params={},
                read_timeout_seconds=5,
            ):
                pass
        assert (no.value.status, no.value.reason) == (403, "Forbidden")
        wanted = 'verb "watch" on resource "inferencepools" of API group "inference.networking'
        assert wanted in str(no.value)
        with pytest.raises(KubeForbidden, match=r'verb "patch" on resource "pods/status"'):
            await limited.patch(f"/api/v1/namespaces/{namespace}/pods/x/status", {"status": {}})


async def test_a_token_that_is_refused(
    control_plane: Cluster, kube: KubeClient, namespace: str, tmp_path: Path
) -> None:
    """401 is KubeForbidden; a good token put into the file is found without a restart."""
    token = await service_account_token(
        kube,
        namespace,
        "rotated",
        rules=[{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}],
    )
    path = control_plane.kubeconfig_of_token(tmp_path, "x.y.z", namespace=namespace)
    async with control_plane.connected(path) as client:
        with pytest.raises(KubeForbidden, match="credentials were refused") as no:
            await client.get(config_maps(namespace))
        assert no.value.status == 401
        control_plane.kubeconfig_of_token(tmp_path, token, namespace=namespace)
        await client.get(config_maps(namespace))
    assert token not in str(no.value)


async def test_a_stopped_api_server(
    control_plane: Cluster, own_plane: ControlPlane, namespace: str
) -> None:
    """Nothing waits longer than it was told to, neither a call nor a silent watch."""
    async with control_plane.connected(request_timeout_seconds=0.3) as client:
        path = config_maps(namespace)
        version = (await client.get(path))["metadata"]["resourceVersion"]
        watch = client.watch(path, params={"resourceVersion": version}, read_timeout_seconds=0.5)
        silent = asyncio.ensure_future(anext(aiter(watch)))
        await eventually(lambda: _watching(own_plane, namespace), "the watch is open")
        own_plane.pause()
        try:
            with pytest.raises(KubeUnavailable, match=r"no answer within 0\.3 s"):
                await client.get(path)
            with pytest.raises(
                KubeUnavailable, match=r"watch configmaps.* no answer within 0\.5 s"
            ):
                await silent
        finally:
            own_plane.resume()


async def _watching(plane: ControlPlane, namespace: str) -> bool:
    return any(
        event["verb"] == "watch"
        and event["stage"] == "ResponseStarted"
        and event.get("objectRef", {}).get("namespace") == namespace
        for event in plane.audit_events()
    )


class SetClock:
    """A clock that stands where the test puts it."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("the client never sleeps")


async def test_as_a_pod(
    own_plane: ControlPlane, kube: KubeClient, namespace: str, tmp_path: Path
) -> None:
    """Service account folder and environment of a pod; a rotated token is used 30 s later."""
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}
    tokens = [
        await service_account_token(kube, namespace, name, rules=[rule]) for name in ("one", "two")
    ]
    (tmp_path / "namespace").write_text(namespace)
    (tmp_path / "ca.crt").write_text(Path(own_plane.pki.certificate("ca")).read_text())
    (tmp_path / "token").write_text(tokens[0])
    host, port = own_plane.url.removeprefix("https://").split(":")
    environ = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
    clock = SetClock()
    client = await open_client(
        KubernetesSettings(), environ=environ, service_account=tmp_path, clock=clock
    )
    assert client.namespace == namespace
    await client.get(config_maps(namespace))
    (tmp_path / "token").write_text(tokens[1])
    await client.get(config_maps(namespace))
    clock.now += REREAD_SECONDS
    await client.get(config_maps(namespace))
    await client.close()
    events = own_plane.audit_events(user=f"system:serviceaccount:{namespace}:")
    users = [each["user"]["username"].rpartition(":")[2] for each in events]
    assert users == ["one", "one", "two"]
