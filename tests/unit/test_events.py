"""Events on pools: told once, by the leader, within a rate, and never a flood."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace

import pytest

from coordinator import events
from coordinator.events import BURST, PER_SECOND, TOLD_SECONDS, Announcer
from coordinator.ownership import decide
from coordinator.ownership.notices import notices
from fleet.errors import KubeConflict, KubeForbidden, KubeRefused, KubeThrottled, KubeUnavailable
from fleet.model import (
    EpochVersion,
    LeaderInfo,
    Phase,
    Placement,
    PoolId,
    Reason,
    ShardMap,
)
from fleet.settings.model import OwnershipSettings
from tests.ownership_cluster import Cluster
from tests.ownership_facts import FLEET, FOREIGN, OURS, THEIRS, group, key, pool, service

pytestmark = pytest.mark.looptime

REFUSED = pool(service=None)


@dataclass
class Replica:
    """A coordinator that leads or not, and what map it knows."""

    cluster: Cluster
    name: str = "coordinator-0"
    leads: bool = True
    shard_map: ShardMap | None = field(default_factory=lambda: a_map(0))
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def start(self) -> None:
        announcer = Announcer(
            self.cluster.api,
            self.cluster.claims,
            leading=lambda: self.leads,
            shard_map=lambda: self.shard_map,
            reporter=self.name,
            clock=self.cluster.clock,
        )
        self.tasks.append(asyncio.create_task(announcer.run()))


@contextlib.asynccontextmanager
async def announcing(*replicas: Replica) -> AsyncIterator[None]:
    """Their announcers run, and have not failed."""
    for replica in replicas:
        replica.start()
    tasks = [task for replica in replicas for task in replica.tasks]
    try:
        await asyncio.sleep(1)
        yield
        assert not any(task.done() for task in tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def told(cluster: Cluster) -> list[tuple[str, str, str]]:
    """Pool, type and reason of every event, oldest first."""
    return [
        (event["involvedObject"]["name"], event["type"], event["reason"])
        for event in cluster.events()
    ]


def a_map(version: int, *owned: PoolId, since: float = 1e9) -> ShardMap:
    placement = Placement(group(), owned, Phase.OWNED, ("w",), None, Reason.INITIAL, since)
    leader = LeaderInfo("coordinator-0", "h:1", "h:2")
    return ShardMap(FLEET, EpochVersion(1, version), 0.0, leader, {group(): placement})


# -- what is told ----------------------------------------------------------------------------------


async def test_what_each_decision_tells() -> None:
    """Claimed and why; every refusal by its reason; nothing of pools that are not ours."""
    settings = OwnershipSettings(controller_name=OURS)
    pools = (
        pool("a"),
        pool("b", service=None, also="?"),
        pool("c", controller=THEIRS),
        pool("d", service="d", also="d2"),
    )
    there = {key("d"): service("d", selector={"a": "b"}), key("d2"): service("d2", ports=(1,))}
    found = {
        ref.name: {notice.reason: notice.type for notice in notices(decision, FLEET).values()}
        for ref, decision in decide(pools, there, {}, settings, FLEET).items()
    }
    assert found == {
        "a": {"Claimed": "Normal"},
        "b": {"NoEndpointPicker": "Warning", "InvalidAlsoServe": "Warning"},
        "c": {},
        "d": {"ServiceHasSelector": "Warning", "ServiceLacksPort": "Warning"},
    }


async def test_the_same_fault_of_both_services_is_one_notice() -> None:
    """With both messages."""
    settings = OwnershipSettings(controller_name=OURS)
    there = {key(name): service(name, fleet=None) for name in ("x", "y")}
    asked = pool(service="x", also="y")
    (decision,) = decide([asked], there, {}, settings, FLEET).values()
    (notice,) = notices(decision, FLEET).values()
    assert "Service ns/x was" in notice.message
    assert "Service ns/y was" in notice.message


async def test_a_pool_that_comes_into_quarantine_is_told_of() -> None:
    """A Warning, once; not by a replica that begins later and finds it so."""
    cluster = Cluster(pool("a"))
    since = cluster.clock.wall() - 5.0
    replica = Replica(cluster, shard_map=a_map(1, pool("a").id, since=since))
    later = Replica(cluster, "coordinator-1", leads=False)
    expected = [("a", "Warning", "Quarantined")]
    async with announcing(replica):
        assert told(cluster) == []
        owned = a_map(2, pool("a").id, since=since)
        (placement,) = owned.placements.values()
        isolated = replace(placement, phase=Phase.QUARANTINED, standby=None)
        replica.shard_map = later.shard_map = replace(owned, placements={group(): isolated})
        await asyncio.sleep(2)
        assert told(cluster) == expected
        replica.leads, later.leads = False, True
        async with announcing(later):
            await asyncio.sleep(2)
            assert told(cluster) == expected


async def test_the_event_object() -> None:
    """core/v1, about the pool by uid, so that `kubectl describe` shows it."""
    cluster = Cluster(REFUSED)
    async with announcing(Replica(cluster)):
        (event,) = cluster.events()
    assert event["apiVersion"] == "v1"
    assert event["metadata"]["namespace"] == "ns"
    assert event["metadata"]["name"].startswith("a.")
    assert event["involvedObject"] == {
        "apiVersion": "inference.networking.k8s.io/v1",
        "kind": "InferencePool",
        "namespace": "ns",
        "name": "a",
        "uid": "uid-a",
    }
    assert (event["type"], event["reason"], event["count"]) == ("Warning", "NoEndpointPicker", 1)
    assert event["message"].startswith("spec.endpointPickerRef is missing; name a Service")
    assert event["source"] == {"component": "epp-fleet.dev/coordinator", "host": "coordinator-0"}
    assert event["firstTimestamp"] == event["lastTimestamp"]
    assert event["firstTimestamp"].endswith("Z")


async def test_a_refusal_is_told_once_until_it_changes() -> None:
    """The same reason with other words, another reason, the same one again after a repair."""
    cluster = Cluster(pool())
    cluster.source.put(service(ports=(80,)))
    async with announcing(Replica(cluster)):
        for _ in range(5):
            cluster.source.put(pool(labels={"x": "y"}))
            cluster.source.put(pool())
            await asyncio.sleep(1)
        assert told(cluster) == [("a", "Warning", "ServiceLacksPort")]
        cluster.source.put(service(ports=(80, 81)))
        await asyncio.sleep(1)
        cluster.source.put(service(selector={"a": "b"}))
        await asyncio.sleep(1)
        cluster.source.put(service())
        await asyncio.sleep(1)
    assert told(cluster) == [
        ("a", "Warning", "ServiceLacksPort"),
        ("a", "Warning", "ServiceLacksPort"),
        ("a", "Warning", "ServiceHasSelector"),
        ("a", "Normal", "Claimed"),
    ]


async def test_what_was_repaired_before_it_was_told_is_not_told() -> None:
    """While the API server takes nothing, a refusal comes and goes."""
    cluster = Cluster(pool())
    cluster.api.failing = [KubeUnavailable("away")]
    async with announcing(Replica(cluster)):
        cluster.slices.set(key(), FOREIGN)
        await asyncio.sleep(1)
        cluster.slices.set(key())
        await asyncio.sleep(20)
    assert told(cluster) == [("a", "Normal", "Claimed")]


async def test_a_pool_that_is_served_for_the_first_time() -> None:
    """Once for each life; whoever owns it later is no news."""
    cluster = Cluster(pool())
    replica = Replica(cluster)
    async with announcing(replica):
        for version in (1, 2):
            replica.shard_map = a_map(version, pool().id)
            await asyncio.sleep(1)
        assert told(cluster) == [("a", "Normal", "Claimed"), ("a", "Normal", "Served")]
        cluster.source.put(pool(uid="second"))
        replica.shard_map = a_map(3, pool(uid="second").id)
        await asyncio.sleep(1)
    assert told(cluster)[2:] == [("a", "Normal", "Claimed"), ("a", "Normal", "Served")]


async def test_a_map_that_speaks_of_unknown_pools_tells_nothing() -> None:
    """One that is gone, one that is not ours any more."""
    cluster = Cluster(pool("b", controller=THEIRS))
    replica = Replica(cluster, shard_map=a_map(1, pool("gone").id, pool("b").id))
    async with announcing(replica):
        assert told(cluster) == []


# -- who tells -------------------------------------------------------------------------------------


async def test_only_the_leader_tells() -> None:
    """Three replicas know it, one writes it."""
    cluster = Cluster(REFUSED)
    followers = [Replica(cluster, f"coordinator-{n}", leads=False) for n in (1, 2)]
    async with announcing(Replica(cluster), *followers):
        await asyncio.sleep(60)
    assert len(cluster.api.writes) == 1
    assert cluster.events()[0]["reportingInstance"] == "coordinator-0"


async def test_a_new_leader_tells_what_the_old_one_could_not() -> None:
    """The leader died right after the pool came."""
    cluster = Cluster(REFUSED)
    follower = Replica(cluster, "coordinator-1", leads=False)
    async with announcing(follower):
        follower.leads = True
        await asyncio.sleep(1)
        assert told(cluster) == [("a", "Warning", "NoEndpointPicker")]


async def test_a_new_leader_does_not_tell_old_stories() -> None:
    """What it has known for a while was told by the leader before it."""
    cluster = Cluster(REFUSED)
    follower = Replica(cluster, "coordinator-1", leads=False)
    async with announcing(follower):
        await asyncio.sleep(TOLD_SECONDS + 1)
        follower.leads = True
        await asyncio.sleep(5)
        assert cluster.api.writes == []
        cluster.source.put(pool("b", service=None))
        await asyncio.sleep(1)
        assert told(cluster) == [("b", "Warning", "NoEndpointPicker")]


async def test_a_whole_fleet_that_restarts_does_not_tell_old_stories() -> None:
    """Pools that had an owner before are neither claimed nor served anew; refusals are told, since
    their events may have gone meanwhile."""
    await asyncio.sleep(100)
    cluster = Cluster(pool(), pool("b", service="b"), pool("c", service=None))
    replica = Replica(cluster, shard_map=None)
    async with announcing(replica):
        assert told(cluster) == [("c", "Warning", "NoEndpointPicker")]
        replica.shard_map = a_map(7, pool().id, since=50.0)
        await asyncio.sleep(1)
        assert told(cluster)[1:] == [("b", "Normal", "Claimed")]


async def test_a_restarted_leader_writes_no_event_twice() -> None:
    """The name follows from what it says, so the API server refuses the second one."""
    cluster = Cluster(REFUSED)
    async with announcing(Replica(cluster)):
        pass
    async with announcing(Replica(cluster, "coordinator-9")):
        assert len(cluster.events()) == 1
        assert len(cluster.api.writes) == 2
        await asyncio.sleep(60)
        assert len(cluster.api.writes) == 2


# -- how fast, and when it fails -------------------------------------------------------------------


async def test_a_flood_of_refusals_is_told_at_a_bounded_rate() -> None:
    """1,000 pools: a burst, then a few a second."""
    cluster = Cluster(*(pool(f"p{n}", service=None) for n in range(1000)))
    async with announcing(Replica(cluster)):
        assert BURST <= len(cluster.api.writes) <= BURST + 2 * PER_SECOND
        await asyncio.sleep(10)
        assert len(cluster.api.writes) <= BURST + 12 * PER_SECOND
        await asyncio.sleep(1000 / PER_SECOND)
    assert len(cluster.events()) == 1000


async def test_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """More is dropped, and told in the log."""
    monkeypatch.setattr(events, "MAX_WAITING", 100)
    cluster = Cluster(*(pool(f"p{n}", service=None) for n in range(300)))
    async with announcing(Replica(cluster)):
        await asyncio.sleep(300)
    assert len(cluster.events()) == 100


@pytest.mark.parametrize(
    ("error", "rest"),
    [
        (KubeUnavailable("no answer"), 5.0),
        (KubeForbidden("may not create events", status=403), 60.0),
        (KubeThrottled("slow down", retry_after_seconds=8.0), 8.0),
    ],
)
async def test_an_api_server_that_takes_nothing_is_left_in_peace(
    error: Exception, rest: float
) -> None:
    """One try, then a rest for all of them; nothing is lost."""
    cluster = Cluster(*(pool(f"p{n}", service=None) for n in range(10)))
    cluster.api.failing = [error]  # type: ignore[list-item]
    async with announcing(Replica(cluster)):
        await asyncio.sleep(rest - 2)
        assert len(cluster.api.writes) == 1
        await asyncio.sleep(4)
    assert len(cluster.events()) == 10


@pytest.mark.parametrize(
    "error",
    [
        KubeForbidden("namespace ns is being terminated", status=403),
        KubeRefused("invalid", status=422, reason="Invalid"),
        KubeConflict("it exists", status=409),
    ],
)
async def test_one_that_cannot_be_written_does_not_hold_the_others(error: Exception) -> None:
    """It is given up."""
    cluster = Cluster(*(pool(f"p{n}", service=None) for n in range(3)))
    cluster.api.failing = [error]  # type: ignore[list-item]
    async with announcing(Replica(cluster)):
        assert len(cluster.events()) == 2
        await asyncio.sleep(100)
    assert len(cluster.api.writes) == 3


async def test_a_pool_that_went_is_not_told_of() -> None:
    """It waited for its turn."""
    cluster = Cluster(REFUSED)
    cluster.api.failing = [KubeUnavailable("away")]
    async with announcing(Replica(cluster)):
        cluster.source.remove(REFUSED)
        await asyncio.sleep(20)
    assert cluster.events() == []


async def test_names_are_dns_subdomains_whatever_the_pools() -> None:
    """A pool's name may have 253 characters, and a dot where it is cut."""
    long = "a" * 199 + "." + "b" * 53
    cluster = Cluster(pool(long, service=None))
    async with announcing(Replica(cluster)):
        (event,) = cluster.events()
    name = event["metadata"]["name"]
    assert len(name) <= 253
    assert ".." not in name
