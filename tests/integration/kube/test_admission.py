"""The admission policies of `deploy/` on a real API server: our account and nobody else's."""

import copy
import secrets
from collections.abc import AsyncIterator, Awaitable
from functools import partial
from pathlib import Path

import pytest

from coordinator.ownership import ServiceKey
from coordinator.ownership.wanted import Wanted, manifest
from coordinator.routes.contract import Route
from coordinator.routes.slice_format import IPV4, encode
from coordinator.worker_pods import DELETION_COST
from fleet.errors import KubeForbidden, KubeRefused
from fleet.kube.client import KubeClient
from fleet.kube.contract import KubeApi, Raw
from fleet.kube.names import (
    FLEET_LABEL,
    MANAGED_BY_LABEL,
    SERVICE_NAME_LABEL,
    SLICE_MANAGED_BY_LABEL,
)
from fleet.model import EpochVersion, GroupKey
from tests.control_plane.cluster import Cluster
from tests.control_plane.objects import eventually, make_pod
from tests.deployed import COORDINATOR, installed
from tests.kustomize import NoKustomize

FLEET = f"adm-{secrets.token_hex(3)}"
DENIED = "ValidatingAdmissionPolicy"


def everything(raw: Raw) -> Raw:
    """RBAC stands aside: what is refused here is refused by the policies."""
    if raw["kind"] in ("Role", "ClusterRole"):
        for rule in raw["rules"]:
            rule["verbs"] = ["*"]
            rule.pop("resourceNames", None)
            rule["resources"] += [f"{each}/status" for each in rule["resources"]]
    return raw


class Place:
    """A namespace with the policies in force.

    Attributes:
        ours: the coordinators' account.
        admin: anybody else.
    """

    def __init__(self, namespace: str, ours: KubeApi, admin: KubeApi) -> None:
        self.namespace = namespace
        self.ours = ours
        self.admin = admin
        self.services = f"/api/v1/namespaces/{namespace}/services"
        self.slices = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
        self.pods = f"/api/v1/namespaces/{namespace}/pods"

    def service(self, name: str, *, fleet: str = FLEET) -> Raw:
        """As the program writes it."""
        want = Wanted(ServiceKey(self.namespace, name), (9002,), (), exists=False)
        return manifest(want, fleet=fleet, controller_name="epp-fleet.dev/default")

    def slice(self, service: str, *, fleet: str = FLEET) -> Raw:
        """As the program writes it."""
        group = GroupKey(self.namespace, service, 9002)
        route = Route(group, ("192.0.2.1:9002",), EpochVersion(1, 1))
        return encode(route, route.addresses, IPV4, port_name="grpc-9002", fleet=fleet)


@pytest.fixture
async def place(
    control_plane: Cluster, kube: KubeClient, namespace: str, tmp_path: Path
) -> AsyncIterator[Place]:
    try:
        async with installed(
            control_plane, kube, namespace, fleet=FLEET, change=everything
        ) as found:
            kubeconfig = await found.kubeconfig(kube, tmp_path, COORDINATOR)
            async with control_plane.connected(kubeconfig) as ours:
                place = Place(namespace, ours, kube)
                await _in_force(place)
                yield place
    except NoKustomize as missing:
        pytest.skip(str(missing))


async def _in_force(place: Place) -> None:
    """The API server compiles a new policy within a second or so: until each one denies."""
    config = place.service("never", fleet="another")
    foreign = place.slice("never", fleet="another")
    pod = {"metadata": {"name": "never"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}

    async def denies(path: str, body: Raw) -> bool:
        try:
            # Nothing is stored.
            await place.ours.create(f"{path}?dryRun=All", body)
        except KubeRefused as error:
            return DENIED in str(error)
        return False

    for path, body in ((place.services, config), (place.slices, foreign), (place.pods, pod)):
        await eventually(partial(denies, path, body), f"policy on {path}")


async def refused(work: Awaitable[Raw], words: str) -> None:
    """A policy denies it and says why."""
    with pytest.raises(KubeForbidden, match=words) as no:
        await work
    assert DENIED in str(no.value)
    assert "RBAC lacks" not in str(no.value)


async def test_what_the_program_writes_is_allowed(place: Place) -> None:
    """Slices and Services of its own: create, change, delete a slice."""
    made = await place.ours.create(place.services, place.service("a"))
    made["spec"]["ports"].append({"name": "grpc-9003", "port": 9003, "protocol": "TCP"})
    await place.ours.replace(f"{place.services}/a", made)
    body = await place.ours.create(place.slices, place.slice("a"))
    path = f"{place.slices}/{body['metadata']['name']}"
    body["endpoints"] = []
    await place.ours.replace(path, body)
    await place.ours.delete(path)


async def test_slices_of_others_are_left_alone(place: Place) -> None:
    """Of another fleet, of the endpointslice controller, of nobody: neither changed nor deleted."""
    for number, labels in enumerate(
        (
            {SLICE_MANAGED_BY_LABEL: "endpointslice-controller.k8s.io", SERVICE_NAME_LABEL: "x"},
            {SLICE_MANAGED_BY_LABEL: "epp-fleet.dev", FLEET_LABEL: "another"},
            {FLEET_LABEL: FLEET},
            None,
        )
    ):
        body = place.slice("x")
        body["metadata"]["name"] = f"foreign-{number}"
        body["metadata"]["labels"] = labels
        stored = await place.admin.create(place.slices, body)
        path = f"{place.slices}/foreign-{number}"
        taken = copy.deepcopy(stored)
        taken["metadata"]["labels"] = place.slice("x")["metadata"]["labels"]
        await refused(place.ours.replace(path, taken), "is not of the fleet")
        await refused(place.ours.delete(path), "is not of the fleet")


async def test_a_slice_says_whose_it_is(place: Place) -> None:
    """Each of the three labels must be there; a slice never changes hands between Services."""
    for label in (SLICE_MANAGED_BY_LABEL, FLEET_LABEL, SERVICE_NAME_LABEL):
        body = place.slice("a")
        del body["metadata"]["labels"][label]
        await refused(place.ours.create(place.slices, body), "write only EndpointSlices")
    stored = await place.ours.create(place.slices, place.slice("a"))
    stored["metadata"]["labels"][SERVICE_NAME_LABEL] = "kube-dns"
    path = f"{place.slices}/{stored['metadata']['name']}"
    await refused(place.ours.replace(path, stored), "stays with its Service")


async def test_services_of_others_are_left_alone(place: Place) -> None:
    """Whatever RBAC says: not one that it did not create, labelled for it or not."""
    for number, labels in enumerate(({}, {FLEET_LABEL: FLEET})):
        body = place.service(f"theirs-{number}")
        body["metadata"]["labels"] = labels
        stored = await place.admin.create(place.services, body)
        stored["metadata"]["labels"] = place.service("x")["metadata"]["labels"]
        path = f"{place.services}/theirs-{number}"
        await refused(place.ours.replace(path, stored), "no fleet created this Service")
        await refused(place.ours.delete(path), "delete no Service")


async def test_a_service_is_plain_and_says_whose_it_is(place: Place) -> None:
    """No selector, no external address, no other type; both labels."""
    for change in (
        {"selector": {"app": "victim"}},
        {"externalIPs": ["192.0.2.99"]},
        {"type": "NodePort"},
        {"type": "LoadBalancer"},
        {"type": "ExternalName", "externalName": "elsewhere.example"},
    ):
        body = place.service("bad")
        body["spec"].update(change)
        await refused(place.ours.create(place.services, body), "only ClusterIP Services")
    for label in (MANAGED_BY_LABEL, FLEET_LABEL):
        body = place.service("bad")
        del body["metadata"]["labels"][label]
        await refused(place.ours.create(place.services, body), "labelled as created by")
    stored = await place.ours.create(place.services, place.service("good"))
    stored["spec"]["selector"] = {"app": "victim"}
    await refused(place.ours.replace(f"{place.services}/good", stored), "only ClusterIP Services")


async def test_a_service_of_another_fleet_is_taken_over(place: Place) -> None:
    """A pool that is handed over brings the Service that its old fleet created."""
    stored = await place.admin.create(place.services, place.service("moved", fleet="old"))
    stored["metadata"]["labels"][FLEET_LABEL] = FLEET
    await place.ours.replace(f"{place.services}/moved", stored)


async def test_of_a_pod_only_the_deletion_cost_changes(place: Place) -> None:
    """Not its image, not another label or annotation, not its status."""
    await make_pod(place.admin, place.namespace, "w-0", labels={"a": "b"}, ip="192.0.2.5")
    path = f"{place.pods}/w-0"
    pod = await place.admin.patch(path, {"metadata": {"annotations": {"kept": "yes"}}})
    (container,) = pod["spec"]["containers"]
    changes: list[Raw] = [
        {"spec": {"containers": [{**container, "image": "mine"}]}},
        {"spec": {"activeDeadlineSeconds": 1}},
        {"metadata": {"labels": {"app": "else"}}},
        {"metadata": {"finalizers": ["mine.example/x"]}},
    ]
    for cost in ("3", "4", None):
        await place.ours.patch(path, {"metadata": {"annotations": {DELETION_COST: cost}}})
    for change in changes:
        await refused(place.ours.patch(path, change), "nothing of a pod but its deletion cost")
    for value in ("no", None):
        annotations = {"kept": value, DELETION_COST: "1"}
        work = place.ours.patch(path, {"metadata": {"annotations": annotations}})
        await refused(work, "no annotation of a pod but")
    await refused(place.ours.delete(path), "neither create nor delete")
    status = {"status": {"phase": "Failed"}}
    await refused(place.ours.patch(f"{path}/status", status), "write no status")


async def test_nobody_else_is_limited(place: Place) -> None:
    """The policies look at one account."""
    body = place.slice("x", fleet="another")
    await place.admin.create(place.slices, body)
    await place.admin.delete(f"{place.slices}/{body['metadata']['name']}")
    service = place.service("x", fleet="another")
    service["spec"]["selector"] = {"app": "x"}
    await place.admin.create(place.services, service)
    await place.admin.delete(f"{place.services}/x")
