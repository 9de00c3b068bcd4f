"""What tests need in a cluster: CRDs, namespaces, Nodes, Pods with a status, limited users.

All by `KubeApi`, so they work on any API server, also on the fake one. No kubelet runs: a Pod is
what its status says, and one that is deleted with a grace period stays, with a deletionTimestamp,
until it is deleted with none.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from fleet.errors import KubeConflict, KubeError, KubeNotFound
from fleet.kube.contract import KubeApi, Raw

CRDS = Path(__file__).parent.parent / "data" / "crds"
WAIT_SECONDS = 30.0
_POLL_SECONDS = 0.05

_CRDS_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"


async def eventually(
    condition: Callable[[], Awaitable[bool]], what: str, *, seconds: float = WAIT_SECONDS
) -> None:
    """Return once the condition holds, asked every 50 ms.

    Raises:
        AssertionError: it never held; names `what`.
    """
    try:
        async with asyncio.timeout(seconds):
            while not await condition():
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        raise AssertionError(f"not within {seconds:g} s: {what}") from None


async def apply_crds(api: KubeApi, folder: Path = CRDS) -> None:
    """Create those of the folder that are absent, and wait until their kinds are served."""
    crds = [yaml.safe_load(path.read_text()) for path in sorted(folder.glob("*.yaml"))]
    for crd in crds:
        await ensure(api, _CRDS_PATH, crd)
    for crd in crds:
        await _served(api, crd)


async def _served(api: KubeApi, crd: Raw) -> None:
    group, plural = crd["spec"]["group"], crd["spec"]["names"]["plural"]
    version = next(each["name"] for each in crd["spec"]["versions"] if each["served"])

    async def listed() -> bool:
        try:
            await api.get(f"/apis/{group}/{version}/{plural}", params={"limit": "1"})
        except KubeError:  # 404 before Established, 503 or 429 while its storage starts
            return False
        return True

    await eventually(listed, f"{plural}.{group} is served")


async def ensure(api: KubeApi, collection: str, raw: Raw) -> Raw:
    """Create the object unless it exists; what is stored."""
    try:
        return await api.create(collection, raw)
    except KubeConflict:
        return await api.get(f"{collection}/{raw['metadata']['name']}")


async def make_namespace(api: KubeApi, *, prefix: str = "epp-test") -> str:
    """A new namespace with a name of its own, in which Pods can be created at once."""
    body: Raw = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"generateName": f"{prefix}-"},
    }
    name: str = (await api.create("/api/v1/namespaces", body))["metadata"]["name"]
    # A controller makes it too, if there is one, but later.
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    await ensure(api, f"/api/v1/namespaces/{name}/serviceaccounts", account)
    return name


async def exists(api: KubeApi, path: str) -> bool:
    """Whether there is such an object."""
    try:
        await api.get(path)
    except KubeNotFound:
        return False
    return True


async def make_node(api: KubeApi, name: str, *, zone: str = "") -> None:
    """A Node, unless it exists."""
    labels = {"topology.kubernetes.io/zone": zone} if zone else {}
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
    await ensure(api, "/api/v1/nodes", body)


async def make_pod(
    api: KubeApi,
    namespace: str,
    name: str,
    *,
    labels: Mapping[str, str],
    ip: str = "",
    node: str = "",
    ready: bool = True,
) -> Raw:
    """A Pod, and its status if it has an address; as it is stored then.

    Args:
        ip: of 192.0.2.0/24: loopback addresses may not stand in an EndpointSlice.
        node: where it runs; the Node must exist.
    """
    spec: Raw = {"containers": [{"name": "server", "image": "model-server"}]}
    if node:
        spec["nodeName"] = node
    metadata = {"name": name, "namespace": namespace, "labels": dict(labels)}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    made = await api.create(f"/api/v1/namespaces/{namespace}/pods", body)
    return await set_pod_status(api, namespace, name, ip=ip, ready=ready) if ip else made


async def set_pod_status(
    api: KubeApi,
    namespace: str,
    name: str,
    *,
    ip: str,
    ready: bool = True,
    phase: str = "Running",
) -> Raw:
    """What a kubelet would report."""
    condition = {"type": "Ready", "status": "True" if ready else "False"}
    status = {
        "phase": phase,
        "podIP": ip,
        "podIPs": [{"ip": ip}],
        "conditions": [condition],
    }
    path = f"/api/v1/namespaces/{namespace}/pods/{name}/status"
    return await api.patch(path, {"status": status})


async def delete_pod(api: KubeApi, namespace: str, name: str, *, grace_seconds: int = 0) -> None:
    """Delete it: at once, or as a drain does (it stays until a delete without grace)."""
    body: Raw = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": grace_seconds}
    await api.delete(f"/api/v1/namespaces/{namespace}/pods/{name}", body=body)


async def service_account_token(
    api: KubeApi,
    namespace: str,
    name: str,
    *,
    rules: Sequence[Mapping[str, Any]] = (),
    cluster_rules: Sequence[Mapping[str, Any]] = (),
    seconds: int = 3600,
) -> str:
    """A token of a service account that may do exactly this.

    Args:
        rules: of a Role in the namespace.
        cluster_rules: of a ClusterRole, `NAMESPACE-NAME`.
        seconds: the token's life, at least 600.
    """
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
    await ensure(api, accounts, account)
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    if rules:
        await _grant(api, f"{_RBAC}/namespaces/{namespace}/", "Role", name, rules, subject)
    if cluster_rules:
        whole = f"{namespace}-{name}"
        await _grant(api, f"{_RBAC}/cluster", "ClusterRole", whole, cluster_rules, subject)
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": seconds},
    }
    token: str = (await api.create(f"{accounts}/{name}/token", request))["status"]["token"]
    return token


async def _grant(
    api: KubeApi,
    prefix: str,
    kind: str,
    name: str,
    rules: Sequence[Mapping[str, Any]],
    subject: Raw,
) -> None:
    version, metadata = "rbac.authorization.k8s.io/v1", {"name": name}
    role = {"apiVersion": version, "kind": kind, "metadata": metadata, "rules": list(rules)}
    binding = {
        "apiVersion": version,
        "kind": f"{kind}Binding",
        "metadata": metadata,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
        "subjects": [subject],
    }
    await ensure(api, f"{prefix}roles", role)
    await ensure(api, f"{prefix}rolebindings", binding)
