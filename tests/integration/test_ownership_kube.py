"""Ownership over real HTTP against an API server that fails on demand."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fleet.kube.client import KubeClient, open_client
from fleet.kube.names import FLEET_LABEL, MANAGED_BY, MANAGED_BY_LABEL, SLICE_MANAGED_BY_LABEL
from fleet.settings.model import KubernetesSettings
from tests.fake_api_server import FakeApiServer, Raw, Status
from tests.fake_api_store import CORE_EVENTS, SERVICES
from tests.ownership_estate import (
    controller_of,
    fleet_settings,
    pool_body,
    running_estate,
)

BLUE = fleet_settings("blue", "ns")
GREEN = fleet_settings("green", "ns", claim="list", pools="ns/none")


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer.running() as running:
        yield running


@pytest.fixture
async def api(server: FakeApiServer, tmp_path: Path) -> AsyncIterator[KubeClient]:
    settings = KubernetesSettings(kubeconfig=str(server.kubeconfig(tmp_path)))
    client = await open_client(settings)
    yield client
    await client.close()


def services(server: FakeApiServer) -> dict[str, Raw]:
    found = server.store.all(SERVICES, lambda _: True)
    return {str(raw["metadata"]["name"]): raw for raw in found}


def writes(server: FakeApiServer, plural: str = "/services") -> list[str]:
    """Methods of the writes to one kind, in order."""
    return [
        seen.method
        for seen in server.requests
        if plural in seen.path and seen.method not in ("GET", "HEAD")
    ]


def events(server: FakeApiServer) -> list[tuple[str, str]]:
    """Pool and reason of every event."""
    found = server.store.all(CORE_EVENTS, lambda _: True)
    return [(raw["involvedObject"]["name"], raw["reason"]) for raw in found]


def a_service(name: str, labels: dict[str, str] | None = None, **spec: object) -> Raw:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"namespace": "ns", "name": name, "labels": labels or {}},
        "spec": {"ports": [{"name": "grpc", "port": 9002}], **spec},
    }


def a_slice(service: str, manager: str, name: str = "") -> Raw:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "namespace": "ns",
            "name": name or f"{service}-x",
            "labels": {
                "kubernetes.io/service-name": service,
                SLICE_MANAGED_BY_LABEL: manager,
                FLEET_LABEL: "blue",  # copied from the Service by the controller
            },
        },
        "addressType": "IPv4",
        "endpoints": [],
        "ports": [],
    }


async def test_applying_a_pool_is_all_that_a_tenant_does(
    server: FakeApiServer, api: KubeClient
) -> None:
    """Its Service is created and its group is there; an event says so; at rest nothing is asked."""
    async with running_estate(api, BLUE) as blue:
        applied = server.put(pool_body("a"))
        await blue.serves("a", epp="ours")
        assert blue.groups() == {"epp:9002"}
        await server.until(lambda: events(server) == [("a", "Claimed")])
        (owner,) = services(server)["epp"]["metadata"]["ownerReferences"]
        assert owner["uid"] == applied["metadata"]["uid"]
        assert writes(server) == ["POST"]


async def test_a_pool_of_the_old_group_owns_its_service_by_that(
    server: FakeApiServer, api: KubeClient
) -> None:
    """extensionRef, default port, and an owner reference of v1alpha2."""
    async with running_estate(api, BLUE) as blue:
        server.put(
            {
                "apiVersion": "inference.networking.x-k8s.io/v1alpha2",
                "kind": "InferencePool",
                "metadata": {"name": "old", "namespace": "ns"},
                "spec": {
                    "selector": {"app": "x"},
                    "targetPortNumber": 8000,
                    "extensionRef": {"name": "old-epp"},
                },
            }
        )
        await blue.until(lambda: blue.states("old") == {"old-epp": "ours"}, "created")
    made = services(server)["old-epp"]
    assert made["spec"]["ports"][0]["port"] == 9002
    (owner,) = made["metadata"]["ownerReferences"]
    assert owner["apiVersion"] == "inference.networking.x-k8s.io/v1alpha2"


async def test_of_one_name_in_both_groups_v1_counts(server: FakeApiServer, api: KubeClient) -> None:
    """field case G1: gateway-api-inference-extension#1737; one pool, never two groups of it."""
    old = {
        "apiVersion": "inference.networking.x-k8s.io/v1alpha2",
        "kind": "InferencePool",
        "metadata": {"name": "a", "namespace": "ns"},
        "spec": {
            "selector": {"app": "x"},
            "targetPortNumber": 8000,
            "extensionRef": {"name": "old-epp"},
        },
    }
    server.put(old)
    server.put(pool_body("a"))
    async with running_estate(api, BLUE) as blue:
        await blue.serves("a", epp="ours")
        assert blue.groups() == {"epp:9002"}
        assert list(services(server)) == ["epp"]


async def test_what_belongs_to_somebody_else_is_not_written(
    server: FakeApiServer, api: KubeClient
) -> None:
    """A picker with a selector, an ExternalName, a Service that nobody labelled, a pool whose
    picker is no Service: a refusal and an event each, and no request but reads."""
    server.put(a_service("selects", selector={"app": "epp"}))
    server.put(a_service("elsewhere", type="ExternalName", externalName="epp.example.com"))
    server.put(a_service("plain"))
    for name in ("selects", "elsewhere", "plain"):
        server.put(pool_body(name, service=name))
    kind = pool_body("kind")
    kind["spec"]["endpointPickerRef"]["kind"] = "Deployment"
    server.put(kind)
    server.put(pool_body("none", service=None))
    expected = {
        ("selects", "ServiceHasSelector"),
        ("elsewhere", "ServiceIsExternalName"),
        ("plain", "ServiceNotLabelled"),
        ("kind", "UnsupportedEndpointPicker"),
        ("none", "NoEndpointPicker"),
    }
    async with running_estate(api, BLUE) as blue:
        await server.until(lambda: set(events(server)) == expected)
        assert blue.groups() == set()
        assert {(name, *blue.reasons(name)) for name, _ in expected} == expected
    assert writes(server) == []


async def test_foreign_slices_turn_a_group_off_and_on(
    server: FakeApiServer, api: KubeClient
) -> None:
    """kubernetes#103576: a Service whose selector was removed keeps its old slices routed."""
    server.put(a_service("epp", {FLEET_LABEL: "blue"}))
    server.put(a_slice("epp", "endpointslice-controller.k8s.io"))
    server.put(pool_body("a"))
    async with running_estate(api, BLUE) as blue:
        assert blue.reasons("a") == ["ServiceHasForeignSlices"]
        server.remove(a_slice("epp", "endpointslice-controller.k8s.io"))
        await blue.has_groups("epp:9002")
        server.put(a_slice("epp", "endpointslicemirroring-controller.k8s.io"))
        await blue.has_groups()
    assert writes(server) == []


async def test_the_last_foreign_slice_counts(server: FakeApiServer, api: KubeClient) -> None:
    """Two of one manager, one of which is moved to another Service; slices of no Service at all."""
    manager = "endpointslice-controller.k8s.io"
    for name in ("one", "two"):
        server.put(a_service(name, {FLEET_LABEL: "blue"}))
        server.put(pool_body(name, service=name))
    server.put(a_slice("one", manager, "s1"))
    server.put(a_slice("one", manager, "s2"))
    nowhere = a_slice("one", manager, "s3")
    del nowhere["metadata"]["labels"]["kubernetes.io/service-name"]
    server.put(nowhere)
    async with running_estate(api, BLUE) as blue:
        await blue.has_groups("two:9002")
        server.remove(a_slice("one", manager, "s1"))
        server.put(a_slice("two", manager, "s2"))
        await blue.has_groups("one:9002")
        server.remove(a_slice("two", manager, "s2"))
        await blue.has_groups("one:9002", "two:9002")


async def test_slices_of_another_fleet_are_seen_as_such(
    server: FakeApiServer, api: KubeClient
) -> None:
    """Left over from a hand-over: told, not refused; ours are nobody's foreign slices."""
    server.put(a_service("epp", {FLEET_LABEL: "blue"}))
    server.put(pool_body("a"))
    theirs = a_slice("epp", MANAGED_BY, "green")
    theirs["metadata"]["labels"][FLEET_LABEL] = "green"
    server.put(theirs)
    server.put(a_slice("epp", MANAGED_BY, "blue"))
    async with running_estate(api, BLUE) as blue:
        decision = blue.decision("a")
        assert decision is not None
        assert [each.note for each in decision.served] == [
            "EndpointSlices of another fleet (green) are still in it"
        ]
        server.remove(theirs)

        def quiet() -> bool:
            now = blue.decision("a")
            return now is not None and [each.note for each in now.served] == [""]

        await blue.until(quiet, "the note goes with the slice")


async def test_a_pool_is_handed_over_and_back_by_its_annotation(
    server: FakeApiServer, api: KubeClient
) -> None:
    """The same Service all the time; at each moment at most one fleet writes it, and when all is
    quiet exactly one serves the pool."""
    async with running_estate(api, BLUE) as blue, running_estate(api, GREEN) as green:
        server.put(pool_body("a"))
        await blue.serves("a", epp="ours")
        uid = services(server)["epp"]["metadata"]["uid"]
        assert green.groups() == set()
        for taker, giver, fleet in ((green, blue, "green"), (blue, green, "blue")):
            server.put(pool_body("a", controller=controller_of(fleet)))
            await taker.serves("a", epp="ours")
            await giver.has_groups()
            labels = services(server)["epp"]["metadata"]["labels"]
            assert labels == {FLEET_LABEL: fleet, MANAGED_BY_LABEL: MANAGED_BY}
        assert services(server)["epp"]["metadata"]["uid"] == uid
    assert writes(server) == ["POST", "PUT", "PUT"]


async def test_two_fleets_that_both_claim_all_do_not_fight(
    server: FakeApiServer, api: KubeClient
) -> None:
    """The first one has the Service; the second one refuses, and says whose it is."""
    both = fleet_settings("green", "ns")
    async with running_estate(api, BLUE) as blue:
        server.put(pool_body("a"))
        await blue.serves("a", epp="ours")
        async with running_estate(api, both) as green:
            await server.until(lambda: ("a", "ServiceOfOtherFleet") in events(server))
            assert green.groups() == set()
            assert blue.groups() == {"epp:9002"}
    assert writes(server) == ["POST"]


async def test_a_migration_by_also_serve_and_back(server: FakeApiServer, api: KubeClient) -> None:
    """The old picker's Service is never written; ours outlives the way back."""
    server.put(a_service("old", selector={"app": "old-epp"}))
    version = services(server)["old"]["metadata"]["resourceVersion"]
    server.put(pool_body("a", service="old"))
    async with running_estate(api, BLUE) as blue:
        server.put(pool_body("a", service="old", also="new"))
        await blue.serves("a", new="ours")
        server.put(pool_body("a", service="new", also="old"))
        await blue.has_groups("new:9002")
        server.put(pool_body("a", service="old"))
        await blue.has_groups()
        assert "new" in services(server)
    assert services(server)["old"]["metadata"]["resourceVersion"] == version


async def test_an_api_server_that_refuses_writes_is_told_and_outlived(
    server: FakeApiServer, api: KubeClient
) -> None:
    """503, 429 and 403 on Services: the group is there all the same, the error is to be seen."""
    for fault in (
        Status(503),
        Status(429, retry_after="1"),
        Status(403, message="services is forbidden: User x cannot create resource"),
    ):
        server.fail(r"/services$", fault, method="POST", times=1)
    rule = server.fail(r"/services$", Status(403), method="POST")
    async with running_estate(api, BLUE) as blue:
        server.put(pool_body("a"))
        await blue.until(lambda: "forbidden" in blue.failure("epp").lower(), "the error shows")
        assert blue.groups() == {"epp:9002"}
        rule.remove()
        await blue.serves("a", epp="ours")
        await blue.until(lambda: blue.failure("epp") == "", "the error is gone")


async def test_a_follower_decides_and_writes_nothing(
    server: FakeApiServer, api: KubeClient
) -> None:
    """It knows the groups, so that it can lead at once; then it writes."""
    async with running_estate(api, BLUE, leads=False) as follower:
        server.put(pool_body("a"))
        await follower.has_groups("epp:9002")
        assert writes(server) == []
        follower.leads = True
        await follower.serves("a", epp="ours")


async def test_two_leaders_at_once_end_in_one_service(
    server: FakeApiServer, api: KubeClient
) -> None:
    """One was paused and does not know it yet: whatever both write, the Service has both ports and
    both owners."""
    async with running_estate(api, BLUE) as one, running_estate(api, BLUE) as two:
        server.put(pool_body("a"))
        server.put(pool_body("b", port=9003))
        for each in (one, two):
            await each.serves("b", epp="ours")

        def complete() -> bool:
            made = services(server)["epp"]
            ports = {port["port"] for port in made["spec"]["ports"]}
            return ports == {9002, 9003} and len(made["metadata"]["ownerReferences"]) == 2

        await server.until(complete)
