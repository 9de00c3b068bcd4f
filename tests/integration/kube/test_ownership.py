"""Ownership on a real control plane: created, collected, handed over, and others left alone."""

from functools import partial
from pathlib import Path

import pytest

from fleet.kube.client import KubeClient
from fleet.kube.contract import Raw
from fleet.kube.names import FLEET_LABEL, MANAGED_BY, MANAGED_BY_LABEL, SERVICE_NAME_LABEL
from tests.control_plane.cluster import Cluster
from tests.control_plane.objects import eventually, exists
from tests.ownership_estate import (
    POOLS,
    controller_of,
    fleet_settings,
    pool_body,
    running_estate,
)


class Tenant:
    """Somebody with pools and Services of their own in one namespace."""

    def __init__(self, kube: KubeClient, namespace: str) -> None:
        self.kube = kube
        self.namespace = namespace
        self.pools = POOLS.format(namespace)
        self.services = f"/api/v1/namespaces/{namespace}/services"

    async def apply(self, name: str, **pool: str | int | None) -> Raw:
        """Create the pool."""
        body = pool_body(name, namespace=self.namespace, **pool)  # type: ignore[arg-type]
        return await self.kube.create(self.pools, body)

    async def edit(self, name: str, *, spec: Raw | None = None, **annotations: str | None) -> None:
        """Change annotations (None takes one away) or the spec of the pool."""
        named = {f"epp-fleet.dev/{k.replace('_', '-')}": v for k, v in annotations.items()}
        body: Raw = {"metadata": {"annotations": named}}
        if spec is not None:
            body["spec"] = spec
        await self.kube.patch(f"{self.pools}/{name}", body)

    async def service(self, name: str) -> Raw:
        return await self.kube.get(f"{self.services}/{name}")

    async def has_service(self, name: str) -> bool:
        return await exists(self.kube, f"{self.services}/{name}")

    async def make_service(self, name: str, labels: dict[str, str], **spec: object) -> Raw:
        return await self.kube.create(
            self.services,
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": name, "labels": labels},
                "spec": {"ports": [{"name": "grpc", "port": 9002}], **spec},
            },
        )

    async def told(self, name: str, *reasons: str) -> bool:
        """Whether the pool's events have exactly these reasons."""
        found = await self.kube.get(
            f"/api/v1/namespaces/{self.namespace}/events",
            params={"fieldSelector": f"involvedObject.name={name}"},
        )
        return {str(event["reason"]) for event in found["items"]} == set(reasons)


@pytest.fixture
async def tenant(kube: KubeClient, namespace: str) -> Tenant:
    return Tenant(kube, namespace)


async def test_a_service_comes_and_goes_with_its_pool(
    tenant: Tenant, control_plane: Cluster
) -> None:
    """Created with all that a gateway needs, owned by the pool; the garbage collector takes it."""
    async with running_estate(tenant.kube, fleet_settings("blue", tenant.namespace)) as blue:
        pool = await tenant.apply("a", port=9005)
        await blue.serves("a", epp="ours")
        made = await tenant.service("epp")
        assert made["spec"]["type"] == "ClusterIP"
        assert made["spec"]["clusterIP"] not in ("", "None")
        assert not made["spec"].get("selector")
        (port,) = made["spec"]["ports"]
        assert (port["name"], port["port"], port["protocol"], port["appProtocol"]) == (
            "grpc-9005",
            9005,
            "TCP",
            "http2",
        )
        labels = made["metadata"]["labels"]
        assert labels == {FLEET_LABEL: "blue", MANAGED_BY_LABEL: MANAGED_BY}
        (owner,) = made["metadata"]["ownerReferences"]
        assert owner["uid"] == pool["metadata"]["uid"]
        if not control_plane.controllers:
            pytest.skip("no controller-manager: nobody collects garbage")
        await tenant.kube.delete(f"{tenant.pools}/a")
        await blue.has_groups()

        async def gone() -> bool:
            return not await tenant.has_service("epp")

        await eventually(gone, "the Service went with its pool")


async def test_a_service_of_two_pools_outlives_the_first(
    tenant: Tenant, control_plane: Cluster
) -> None:
    """A port and an owner each; collected with the last one only."""
    if not control_plane.controllers:
        pytest.skip("no controller-manager: nobody collects garbage")
    async with running_estate(tenant.kube, fleet_settings("blue", tenant.namespace)) as blue:
        await tenant.apply("a", port=9002)
        await blue.serves("a", epp="ours")
        await tenant.apply("b", port=9003)

        async def complete() -> bool:
            made = await tenant.service("epp")
            ports = [port["port"] for port in made["spec"]["ports"]]
            return ports == [9002, 9003] and len(made["metadata"]["ownerReferences"]) == 2

        await eventually(complete, "both ports, both owners")
        address = (await tenant.service("epp"))["spec"]["clusterIP"]
        await tenant.kube.delete(f"{tenant.pools}/a")

        async def released() -> bool:
            owners = (await tenant.service("epp"))["metadata"]["ownerReferences"]
            return len(owners) == 1

        await eventually(released, "the first owner is taken out")
        assert (await tenant.service("epp"))["spec"]["clusterIP"] == address
        await blue.has_groups("epp:9003")


async def test_services_of_others_are_untouched(tenant: Tenant) -> None:
    """Not one write: with a selector (and the slices of its controller), not labelled, labelled but
    without the port, ExternalName. Each pool has its event."""
    await tenant.make_service("selects", {FLEET_LABEL: "blue"}, selector={"app": "x"})
    await tenant.make_service("plain", {})
    await tenant.make_service("ports", {FLEET_LABEL: "blue"})
    await tenant.make_service(
        "elsewhere", {FLEET_LABEL: "blue"}, type="ExternalName", externalName="epp.example.com"
    )
    names = ("selects", "plain", "ports", "elsewhere")
    before = {name: (await tenant.service(name))["metadata"] for name in names}
    expected = {
        "selects": "ServiceHasSelector",
        "plain": "ServiceNotLabelled",
        "ports": "ServiceLacksPort",
        "elsewhere": "ServiceIsExternalName",
    }
    async with running_estate(tenant.kube, fleet_settings("blue", tenant.namespace)) as blue:
        for name in names:
            await tenant.apply(name, service=name, port=9009)
        for name, reason in expected.items():
            await eventually(partial(tenant.told, name, reason), f"{name}: {reason}")
        assert blue.groups() == set()
    after = {name: (await tenant.service(name))["metadata"] for name in names}
    assert {n: m["resourceVersion"] for n, m in after.items()} == {
        n: m["resourceVersion"] for n, m in before.items()
    }


async def test_old_slices_of_a_removed_selector_are_seen(
    tenant: Tenant, control_plane: Cluster
) -> None:
    """kubernetes#103576: they stay routed, so the Service is refused until they are deleted."""
    if not control_plane.controllers:
        pytest.skip("no controller-manager: nobody makes slices")
    await tenant.make_service("epp", {FLEET_LABEL: "blue"}, selector={"app": "x"})
    slices = f"/apis/discovery.k8s.io/v1/namespaces/{tenant.namespace}/endpointslices"
    chosen = {"labelSelector": f"{SERVICE_NAME_LABEL}=epp"}

    async def names() -> list[str]:
        found = await tenant.kube.get(slices, params=chosen)
        return [str(each["metadata"]["name"]) for each in found["items"]]

    async def made() -> bool:
        return bool(await names())

    await eventually(made, "the controller made its slice")
    await tenant.kube.patch(f"{tenant.services}/epp", {"spec": {"selector": None}})
    async with running_estate(tenant.kube, fleet_settings("blue", tenant.namespace)) as blue:
        await tenant.apply("a")
        await blue.until(
            lambda: blue.reasons("a") == ["ServiceHasForeignSlices"], "its slices are seen"
        )
        for name in await names():
            await tenant.kube.delete(f"{slices}/{name}")
        await blue.serves("a", epp="labelled")


async def test_a_hand_over_by_annotation(tenant: Tenant) -> None:
    """From blue to green and back: the same Service and address, one fleet at a time."""
    blue_settings = fleet_settings("blue", tenant.namespace)
    green_settings = fleet_settings("green", tenant.namespace, claim="list", pools="x/none")
    async with (
        running_estate(tenant.kube, blue_settings) as blue,
        running_estate(tenant.kube, green_settings) as green,
    ):
        await tenant.apply("a")
        await blue.serves("a", epp="ours")
        first = await tenant.service("epp")
        for fleet, taker, giver in (("green", green, blue), ("blue", blue, green)):
            await tenant.edit("a", controller_name=controller_of(fleet))
            await taker.serves("a", epp="ours")
            await giver.has_groups()
            now = await tenant.service("epp")
            assert now["metadata"]["uid"] == first["metadata"]["uid"]
            assert now["spec"]["clusterIP"] == first["spec"]["clusterIP"]
            assert now["metadata"]["labels"][FLEET_LABEL] == fleet
            assert len(now["metadata"]["ownerReferences"]) == 1


async def test_a_migration_by_also_serve(tenant: Tenant) -> None:
    """From a picker of one's own to the fleet: the old Service is never written, and the pool has
    the fleet's Service before its endpointPickerRef names it."""
    old = await tenant.make_service("old", {}, selector={"app": "old-epp"})
    async with running_estate(tenant.kube, fleet_settings("blue", tenant.namespace)) as blue:
        await tenant.apply("a", service="old")
        await eventually(lambda: tenant.told("a", "ServiceHasSelector"), "refused")
        await tenant.edit("a", also_serve="new")
        await blue.serves("a", new="ours")
        assert blue.groups() == {"new:9002"}
        picker = {"name": "new", "port": {"number": 9002}}
        await tenant.edit("a", also_serve=None, spec={"endpointPickerRef": picker})
        await blue.until(lambda: blue.reasons("a") == [], "nothing is refused any more")
        assert blue.groups() == {"new:9002"}
        await eventually(lambda: tenant.told("a", "ServiceHasSelector", "Claimed"), "both events")
    now = await tenant.service("old")
    assert now["metadata"]["resourceVersion"] == old["metadata"]["resourceVersion"]


async def test_pools_that_lead_nowhere(tenant: Tenant) -> None:
    """Without a picker, or with one that is no Service: the API server takes them, we do not."""
    async with running_estate(tenant.kube, fleet_settings("blue", tenant.namespace)) as blue:
        await tenant.apply("none", service=None)
        other = pool_body("kind", namespace=tenant.namespace)
        other["spec"]["endpointPickerRef"] |= {"group": "example.com", "kind": "Picker"}
        await tenant.kube.create(tenant.pools, other)
        await blue.until(lambda: blue.reasons("none") == ["NoEndpointPicker"], "none")
        await blue.until(lambda: blue.reasons("kind") == ["UnsupportedEndpointPicker"], "kind")


async def test_an_account_that_may_not_create_services(
    tenant: Tenant, control_plane: Cluster, tmp_path: Path
) -> None:
    """The route goes its way, the error names verb and resource, and a new role is noticed."""
    read: Raw = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]}
    limited = await control_plane.limited_user(tmp_path, tenant.namespace, "reader", rules=[read])
    settings = fleet_settings("blue", tenant.namespace)
    async with (
        control_plane.connected(limited) as api,
        running_estate(api, settings) as blue,
    ):
        await tenant.apply("a")
        await blue.until(lambda: bool(blue.failure("epp")), "the error shows")
        assert "create" in blue.failure("epp")
        assert "services" in blue.failure("epp")
        assert blue.groups() == {"epp:9002"}
        role = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{tenant.namespace}/roles/reader"
        more = {"apiGroups": [""], "resources": ["services"], "verbs": ["create"]}
        await tenant.kube.patch(role, {"rules": [read, more]})
        await blue.serves("a", epp="ours")
        await blue.until(lambda: blue.failure("epp") == "", "the error is gone")
