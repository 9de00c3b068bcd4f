"""Services that claimed pools name: created, extended, and never anybody else's."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from coordinator.ownership import decide
from coordinator.ownership.wanted import Wanted, amended, manifest, satisfied, wanted
from coordinator.services import IN_FLIGHT, ServiceKeeper
from fleet.errors import KubeConflict, KubeForbidden, KubeThrottled, KubeUnavailable
from fleet.kube.contract import Raw
from fleet.kube.names import MANAGED_BY_LABEL
from fleet.model import Pool, Service
from fleet.settings.model import OwnershipSettings
from tests.ownership_cluster import Cluster, service_fact
from tests.ownership_facts import FLEET, OURS, THEIRS, key, pool, service

pytestmark = pytest.mark.looptime

LABELS = {MANAGED_BY_LABEL: "epp-fleet.dev", "epp-fleet.dev/fleet": FLEET}
FORBIDDEN = KubeForbidden("may not create services in ns", status=403)
AWAY = KubeUnavailable("no answer")


def want(*pools: Pool, there: Service | None = None) -> Wanted | None:
    settings = OwnershipSettings(controller_name=OURS)
    services = {} if there is None else {key(): there}
    decisions = decide(pools, services, {}, settings, FLEET)
    return wanted(key(), [(each, decisions[each.ref]) for each in pools])


def owner(name: str, uid: str = "") -> Raw:
    return {
        "apiVersion": "inference.networking.k8s.io/v1",
        "kind": "InferencePool",
        "name": name,
        "uid": uid or f"uid-{name}",
    }


def port(number: int) -> Raw:
    return {
        "name": f"grpc-{number}",
        "port": number,
        "protocol": "TCP",
        "appProtocol": "http2",
    }


async def test_the_manifest() -> None:
    """Selector-less, HTTP/2, owned by the pool so that it goes with it."""
    found = want(pool())
    assert found is not None
    assert manifest(found, fleet=FLEET, controller_name=OURS) == {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "namespace": "ns",
            "name": "epp",
            "labels": LABELS,
            "annotations": {"epp-fleet.dev/controller-name": OURS},
            "ownerReferences": [owner("a")],
        },
        "spec": {"type": "ClusterIP", "ports": [port(9002)]},
    }


async def test_several_pools_of_one_service() -> None:
    """A port for each number, an owner for each pool, those of pools that are not ours left out."""
    found = want(
        pool("b", port=9003), pool("a"), pool("c"), pool("d", port=9009, controller=THEIRS)
    )
    assert found is not None
    assert found.ports == (9002, 9003)
    assert [each.ref.name for each in found.owners] == ["a", "b", "c"]


@pytest.mark.parametrize(
    "there",
    [
        service(),
        service(fleet=None),
        service(fleet="green", created=True),
        service(created=True, selector={"a": "b"}),
    ],
)
async def test_nothing_is_wanted_of_services_that_are_not_ours(there: Service) -> None:
    """A labelled one is used as it is, the others are not used."""
    assert want(pool(), there=there) is None


async def test_what_an_existing_one_lacks() -> None:
    """Port, owner or label; everything that it has stays."""
    full = service(created=True, owners=("uid-a",))
    cases = [
        (full, True),
        (service(created=True), False),
        (service(created=True, ports=(1,), owners=("uid-a",)), False),
        (service(created=True, ports=(1, 9002), owners=("x", "uid-a")), True),
    ]
    for there, good in cases:
        found = want(pool(), there=there)
        assert found is not None
        assert satisfied(found, there, fleet=FLEET) is good


def stored(**spec: object) -> Raw:
    return {
        "metadata": {
            "name": "epp",
            "namespace": "ns",
            "labels": {**LABELS, "team": "x"},
            "annotations": {"note": "kept", "epp-fleet.dev/controller-name": OURS},
            "ownerReferences": [owner("a")],
            "resourceVersion": "7",
        },
        "spec": {"clusterIP": "10.0.0.1", "ports": [{**port(9002), "targetPort": 9002}], **spec},
    }


async def test_amending_adds_and_takes_nothing_away() -> None:
    """The object as the API server has it, with one port and one owner more."""
    found = want(pool(), pool("b", port=9003), there=service(created=True))
    assert found is not None
    changed = amended(stored(), found, fleet=FLEET, controller_name=OURS)
    assert changed is not None
    assert changed["spec"]["clusterIP"] == "10.0.0.1"
    assert changed["spec"]["ports"] == [{**port(9002), "targetPort": 9002}, port(9003)]
    assert changed["metadata"]["ownerReferences"] == [owner("a"), owner("b")]
    assert changed["metadata"]["labels"] == {**LABELS, "team": "x"}
    assert changed["metadata"]["annotations"]["note"] == "kept"
    assert changed["metadata"]["resourceVersion"] == "7"
    assert amended(changed, found, fleet=FLEET, controller_name=OURS) is None


async def test_amending_refuses_what_became_somebody_elses() -> None:
    """Between the decision and the write a Service may have changed hands."""
    found = want(pool(), there=service(created=True))
    assert found is not None
    plain = stored()
    del plain["metadata"]["labels"][MANAGED_BY_LABEL]
    green = stored()
    green["metadata"]["labels"]["epp-fleet.dev/fleet"] = "green"
    for raw in (plain, green, stored(selector={"a": "b"})):
        with pytest.raises(ValueError, match="Service ns/epp"):
            amended(raw, found, fleet=FLEET, controller_name=OURS)


# -- the leader's hand -----------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def leading(
    cluster: Cluster, *, lease: list[bool] | None = None
) -> AsyncIterator[ServiceKeeper]:
    """A term's task, which must not have failed."""
    keeper = cluster.keeper()
    valid = lease or [True]
    task = asyncio.create_task(keeper.run(lambda: valid[0]))
    try:
        await asyncio.sleep(0.1)
        yield keeper
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_missing_service_is_created_once() -> None:
    """And shows as ours from then on."""
    cluster = Cluster(pool(), pool("b", service="epp-b", port=9005))
    async with leading(cluster) as keeper:
        await asyncio.sleep(300)
        assert sorted(cluster.api.writes) == [("create", "epp"), ("create", "epp-b")]
        assert keeper.failures == {}
    states = [each.served[0].state.value for each in cluster.claims.decisions().values()]
    assert states == ["ours", "ours"]
    assert cluster.services()["epp-b"]["spec"]["ports"] == [port(9005)]


async def test_a_pool_that_comes_later_is_served_at_once() -> None:
    """And a pool that asks for another port of the same Service adds it."""
    cluster = Cluster()
    async with leading(cluster):
        cluster.source.put(pool())
        await asyncio.sleep(0.01)
        cluster.source.put(pool("b", port=9003))
        await asyncio.sleep(0.01)
        assert cluster.api.writes == [("create", "epp"), ("replace", "epp")]
        made = service_fact(cluster.services()["epp"])
        assert dict(made.ports) == {9002: "grpc-9002", 9003: "grpc-9003"}
        assert made.owners == ("uid-a", "uid-b")


async def test_services_of_others_are_never_written() -> None:
    """With a selector, without label, or labelled by hand and lacking a port."""
    cluster = Cluster(
        pool("a", service="selects"), pool("b", service="plain"), pool("c", service="ports")
    )
    fleet_label = {"epp-fleet.dev/fleet": FLEET}
    for name, labels, spec in (
        ("selects", LABELS, {"selector": {"a": "b"}, "ports": []}),
        ("plain", {}, {"ports": [{"port": 9002}]}),
        ("ports", fleet_label, {"ports": [{"port": 80}]}),
    ):
        cluster.put({"metadata": {"namespace": "ns", "name": name, "labels": labels}, "spec": spec})
    async with leading(cluster):
        await asyncio.sleep(100)
    assert cluster.api.writes == []


async def test_a_deleted_service_comes_again() -> None:
    """Somebody deleted it, its pool still names it."""
    cluster = Cluster(pool())
    async with leading(cluster):
        cluster.remove("epp")
        await asyncio.sleep(0.01)
        assert "epp" in cluster.services()


async def test_a_recreated_pool_owns_the_service_too() -> None:
    """Else the Service would go with the pool's former life."""
    cluster = Cluster(pool())
    async with leading(cluster):
        cluster.source.put(pool(uid="second"))
        await asyncio.sleep(0.01)
        assert service_fact(cluster.services()["epp"]).owners == ("uid-a", "second")


async def test_a_handed_over_service_gets_our_label_and_keeps_its_address() -> None:
    """One write; gateways see no change."""
    cluster = Cluster(pool(controller=OURS))
    raw = stored(clusterIP="10.9.9.9")
    raw["metadata"]["labels"]["epp-fleet.dev/fleet"] = "green"
    raw["metadata"]["annotations"]["epp-fleet.dev/controller-name"] = THEIRS
    cluster.put(raw)
    async with leading(cluster):
        await asyncio.sleep(20)
    after = cluster.services()["epp"]
    assert cluster.api.writes == [("replace", "epp")]
    assert after["metadata"]["labels"] == {**LABELS, "team": "x"}
    assert after["metadata"]["annotations"]["epp-fleet.dev/controller-name"] == OURS
    assert after["spec"]["clusterIP"] == "10.9.9.9"
    assert cluster.claims.decisions()[pool().ref].served[0].state.value == "ours"


async def test_one_that_exists_already_is_looked_at_again() -> None:
    """The source is behind: another leader created it, with a port less."""
    cluster = Cluster(pool(), pool("b", port=9003))
    cluster.blind = True
    cluster.put(stored())
    async with leading(cluster) as keeper:
        assert cluster.api.writes == [("create", "epp"), ("replace", "epp")]
        cluster.look()
        await asyncio.sleep(100)
        assert keeper.failures == {}
    assert len(cluster.api.writes) == 2


async def test_one_that_exists_and_is_not_ours_is_left_and_told() -> None:
    """Until the source shows it: then the pool is refused, and nothing is left to do."""
    cluster = Cluster(pool())
    cluster.blind = True
    cluster.put({"metadata": {"namespace": "ns", "name": "epp"}, "spec": {"ports": []}})
    async with leading(cluster) as keeper:
        assert "was not created by this fleet" in keeper.failures[key()].message
        cluster.look()
        await asyncio.sleep(0.01)
        assert keeper.failures == {}
    assert cluster.services()["epp"]["metadata"].get("labels") is None


async def test_a_lost_event_does_not_end_in_writes_for_ever() -> None:
    """The source stays blind for an hour: looked at again, ever more seldom, nothing written."""
    cluster = Cluster(pool())
    cluster.blind = True
    async with leading(cluster):
        await asyncio.sleep(3600)
    assert 50 <= len(cluster.api.writes) <= 80
    assert {verb for verb, _ in cluster.api.writes} == {"create"}
    assert cluster.services()["epp"]["metadata"]["ownerReferences"] == [owner("a")]


async def test_failures_are_told_and_tried_again_more_and_more_seldom() -> None:
    """0.5 s, 1 s, 2 s ... +-20 %, at most 60 s; a success forgets them."""
    cluster = Cluster(pool())
    cluster.api.failing = [FORBIDDEN] * 4
    async with leading(cluster) as keeper:
        failure = keeper.failures[key()]
        assert (failure.message, failure.tries) == ("may not create services in ns", 1)
        await asyncio.sleep(0.2)
        assert len(cluster.api.writes) == 1
        await asyncio.sleep(0.4)
        assert keeper.failures[key()].tries == 2
        await asyncio.sleep(9)
        assert keeper.failures == {}
    assert len(cluster.api.writes) == 5


async def test_a_change_does_not_hurry_what_fails() -> None:
    """A tenant who edits a pool all the time cannot make us hammer the API server."""
    cluster = Cluster(pool())
    cluster.api.failing = [AWAY] * 100
    async with leading(cluster):
        for n in range(400):
            cluster.source.put(pool(labels={"n": str(n)}))
            await asyncio.sleep(0.01)
    assert len(cluster.api.writes) <= 5


async def test_an_answer_that_was_lost_is_no_second_service() -> None:
    """The write landed, nobody heard: the next try finds it there."""
    cluster = Cluster(pool())
    cluster.server.losing = 1
    cluster.blind = True
    async with leading(cluster) as keeper:
        await asyncio.sleep(2)
        cluster.look()
        await asyncio.sleep(2)
        assert keeper.failures == {}
    assert list(cluster.services()) == ["epp"]


async def test_another_writer_in_between_is_no_failure() -> None:
    """Read and decided again."""
    cluster = Cluster(pool())
    async with leading(cluster) as keeper:
        cluster.api.failing = [KubeConflict("it changed", status=409)]
        cluster.source.put(pool("b", port=9003))
        await asyncio.sleep(1)
        assert keeper.failures == {}
        assert 9003 in service_fact(cluster.services()["epp"]).ports


async def test_a_throttled_leader_rests_as_long_as_it_is_told_to() -> None:
    """For everything, not for one Service."""
    cluster = Cluster(*(pool(f"p{n}", service=f"s{n}") for n in range(3)))
    cluster.api.failing = [KubeThrottled("slow down", retry_after_seconds=7.0)] * 3
    async with leading(cluster):
        await asyncio.sleep(6.5)
        tried = len(cluster.api.writes)
        assert tried <= 3
        await asyncio.sleep(1)
    assert len(cluster.services()) == 3


async def test_many_are_created_side_by_side_within_a_bound() -> None:
    """100 Services of 50 ms each: in about 0.35 s, not in 5."""
    cluster = Cluster(*(pool(f"p{n}", service=f"s{n}") for n in range(100)))
    cluster.api.seconds = 0.05
    async with leading(cluster):
        await asyncio.sleep(0.4)
        assert len(cluster.services()) == 100
    assert cluster.api.busiest == IN_FLIGHT


async def test_without_a_lease_nothing_is_written() -> None:
    """It is in doubt for a while, then it covers again."""
    cluster = Cluster(pool())
    lease = [False]
    async with leading(cluster, lease=lease):
        await asyncio.sleep(5)
        assert cluster.api.writes == []
        lease[0] = True
        await asyncio.sleep(0.5)
        assert cluster.api.writes == [("create", "epp")]


async def test_a_pool_that_went_meanwhile_is_forgotten() -> None:
    """Nothing is created for it, and no failure is left of it."""
    cluster = Cluster(pool())
    cluster.api.failing = [AWAY]
    async with leading(cluster) as keeper:
        cluster.source.remove(pool())
        await asyncio.sleep(5)
        assert keeper.failures == {}
    assert len(cluster.api.writes) == 1


async def test_each_term_begins_anew() -> None:
    """What failed in the last one is tried at once."""
    cluster = Cluster(pool())
    cluster.api.failing = [FORBIDDEN] * 3
    keeper = cluster.keeper()
    for _ in range(2):
        task = asyncio.create_task(keeper.run(lambda: True))
        await asyncio.sleep(0.1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert keeper.failures == {}
    assert len(cluster.api.writes) == 2
