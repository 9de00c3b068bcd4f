"""The accounts, rules and policies of `deploy/` in a cluster of tests, as an installation has them.

The namespace and the fleet's name are the test's own, put where docs/kubernetes.md says that they
stand; what belongs to no namespace is renamed, so that tests do not meet.
"""

import copy
import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fleet.errors import KubeError
from fleet.kube.contract import KubeApi, Raw
from tests.control_plane.cluster import Cluster
from tests.control_plane.objects import service_account_token
from tests.kustomize import overlay

COORDINATOR = "epp-fleet-coordinator"
WORKER = "epp-fleet-worker"

_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_COLLECTIONS = {
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "Role": _RBAC + "/namespaces/{}/roles",
    "RoleBinding": _RBAC + "/namespaces/{}/rolebindings",
    "ClusterRole": _RBAC + "/clusterroles",
    "ClusterRoleBinding": _RBAC + "/clusterrolebindings",
    "ValidatingAdmissionPolicy": _ADMISSION + "/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": _ADMISSION + "/validatingadmissionpolicybindings",
}
_OF_NO_NAMESPACE = tuple(kind for kind, path in _COLLECTIONS.items() if "{}" not in path)


class Right(NamedTuple):
    """One verb on one resource."""

    verb: str
    group: str
    resource: str


Change = Callable[[Raw], Raw | None]
"""What becomes of an object before it is created; None = it is left out."""


@dataclass(frozen=True, slots=True)
class Installed:
    """What an installation made.

    Attributes:
        objects: as they were created.
    """

    cluster: Cluster
    namespace: str
    fleet: str
    objects: Sequence[Raw]

    async def kubeconfig(self, api: KubeApi, folder: Path, account: str) -> Path:
        """A kubeconfig of `COORDINATOR` or `WORKER`."""
        token = await service_account_token(api, self.namespace, account)
        place = folder / account
        place.mkdir(exist_ok=True)
        return self.cluster.kubeconfig_of_token(place, token, namespace=self.namespace)

    def rights(self, account: str) -> set[Right]:
        """All that the account was given."""
        roles = {
            each["roleRef"]["name"]
            for each in self.objects
            if each["kind"].endswith("RoleBinding")
            and account in [subject["name"] for subject in each["subjects"]]
        }
        return {
            right
            for each in self.objects
            if each["kind"] in ("Role", "ClusterRole") and each["metadata"]["name"] in roles
            for right in rights_of(each)
        }


def rights_of(role: Raw) -> Iterator[Right]:
    """Every single right that a role gives."""
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    yield Right(verb, group, resource)


def without(right: Right) -> Change:
    """Take one right out of every role."""

    def change(raw: Raw) -> Raw:
        if raw["kind"] in ("Role", "ClusterRole"):
            for rule in raw["rules"]:
                if right.group in rule["apiGroups"] and right.resource in rule["resources"]:
                    rule["verbs"] = [verb for verb in rule["verbs"] if verb != right.verb]
            raw["rules"] = [rule for rule in raw["rules"] if rule["verbs"]]
        return raw

    return change


@asynccontextmanager
async def installed(
    cluster: Cluster,
    api: KubeApi,
    namespace: str,
    *,
    name: str = "cluster-wide",
    fleet: str,
    change: Change = copy.copy,
) -> AsyncIterator[Installed]:
    """Accounts, roles and policies of an overlay, until the context ends.

    Raises:
        NoKustomize: nothing here renders it.
    """
    objects = []
    async with AsyncExitStack() as stack:
        for raw in overlay(name):
            if raw["kind"] not in _COLLECTIONS:
                continue
            body = change(_moved(raw, namespace, fleet))
            if body is None:
                continue
            collection = _COLLECTIONS[raw["kind"]].format(namespace)
            await api.create(collection, body)
            objects.append(body)
            if raw["kind"] in _OF_NO_NAMESPACE:
                path = f"{collection}/{body['metadata']['name']}"
                stack.push_async_callback(_delete, api, path)
        yield Installed(cluster, namespace, fleet, tuple(objects))


async def _delete(api: KubeApi, path: str) -> None:
    with suppress(KubeError):
        await api.delete(path)


def _moved(raw: Raw, namespace: str, fleet: str) -> Raw:
    """For another namespace and fleet, with a name of its own if it belongs to no namespace."""
    text = json.dumps(raw)
    for old, new in (
        ('"namespace": "epp-fleet"', f'"namespace": "{namespace}"'),
        ("system:serviceaccount:epp-fleet:", f"system:serviceaccount:{namespace}:"),
        ('"epp-fleet-default"', f'"epp-fleet-{fleet}"'),
        ("== 'default'", f"== '{fleet}'"),
    ):
        text = text.replace(old, new)
    moved: Raw = json.loads(text)
    if raw["kind"] in _OF_NO_NAMESPACE:
        moved["metadata"]["name"] = f"{raw['metadata']['name']}.{namespace}"
    if moved.get("roleRef", {}).get("kind") == "ClusterRole":
        moved["roleRef"]["name"] += f".{namespace}"
    if "policyName" in moved.get("spec", {}):
        moved["spec"]["policyName"] += f".{namespace}"
    return moved
