"""Envoy's files over time: what enters when, and in which order."""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from fleet.local.envoy_config import eds_file_name, picker_of, pods_cluster
from fleet.local.envoy_files import EnvoyFiles, Folders, picker_clusters
from fleet.model import GroupKey, Pod, Pool, PoolRef


def _pool(name: str) -> Pool:
    group = GroupKey("acme", f"{name}-epp", 9002)
    return Pool(PoolRef("acme", name), f"u-{name}", {"app": name}, (8000,), group)


RED, BLUE = _pool("red"), _pool("blue")


def _clusters(pool: Pool) -> set[str]:
    assert pool.group is not None
    return {picker_of(pool.ref, pool.group).cluster, pods_cluster(pool.ref)}


class _Envoy:
    """Has the clusters it is told to have."""

    def __init__(self, folder: Path) -> None:
        self.live: set[str] = set()
        self.asked = 0
        self.files = EnvoyFiles(Folders(folder), self._clusters)
        self.files.prepare()

    async def _clusters(self) -> Collection[str]:
        self.asked += 1
        return self.live

    def lead(self, pool: Pool) -> None:
        """The leader writes the group's file."""
        assert pool.group is not None
        (self.files.folders.eds / eds_file_name(pool.group)).write_text("{}")

    def written(self, path: Path) -> list[Any]:
        resources = json.loads(path.read_text())["resources"]
        assert isinstance(resources, list)
        return resources

    def clusters(self) -> set[str]:
        return {cluster["name"] for cluster in self.written(self.files.folders.clusters)}

    def routes(self) -> list[str]:
        hosts = self.written(self.files.folders.routes)[0]["virtual_hosts"]
        return [route["match"]["prefix"] for route in hosts[0]["routes"]]


@pytest.fixture
def envoy(tmp_path: Path) -> _Envoy:
    return _Envoy(tmp_path)


async def test_a_cluster_waits_for_the_leaders_file(envoy: _Envoy) -> None:
    """Envoy refuses the whole file if one cluster's EDS file is missing."""
    envoy.lead(RED)
    missing = await envoy.files.sync([RED, BLUE], [])
    assert envoy.clusters() == _clusters(RED)
    assert missing == (BLUE.ref, RED.ref)


async def test_a_route_waits_for_envoys_clusters(envoy: _Envoy) -> None:
    """A route to a missing ext_proc cluster would let requests pass without a pick."""
    envoy.lead(RED)
    envoy.live = {pods_cluster(RED.ref)}
    await envoy.files.sync([RED], [])
    assert envoy.routes() == []
    envoy.live = _clusters(RED)
    assert await envoy.files.sync([RED], []) == ()
    assert envoy.routes() == ["/acme/red/"]


async def test_a_pool_that_goes_takes_route_and_cluster_along(envoy: _Envoy) -> None:
    """The other pool's entries stay as they are; a return needs the leader's file again."""
    for pool in (RED, BLUE):
        envoy.lead(pool)
    envoy.live = _clusters(RED) | _clusters(BLUE)
    await envoy.files.sync([RED, BLUE], [])
    assert await envoy.files.sync([BLUE], []) == ()
    assert envoy.routes() == ["/acme/blue/"]
    assert envoy.clusters() == _clusters(BLUE)


async def test_a_lost_file_of_the_leader_keeps_the_cluster(envoy: _Envoy) -> None:
    """The leader may replace or lose a file; the pool is still there."""
    envoy.lead(RED)
    envoy.live = _clusters(RED)
    await envoy.files.sync([RED], [])
    assert RED.group is not None
    (envoy.files.folders.eds / eds_file_name(RED.group)).unlink()
    assert await envoy.files.sync([RED], []) == ()
    assert envoy.routes() == ["/acme/red/"]


async def test_nothing_new_writes_nothing_and_asks_nothing(envoy: _Envoy) -> None:
    """Files of a fleet at rest keep their version, and Envoy's admin is left alone."""
    envoy.lead(RED)
    envoy.live = _clusters(RED)
    await envoy.files.sync([RED], [])
    before = envoy.files.folders.clusters.stat().st_mtime_ns, envoy.files.routes_version
    asked = envoy.asked
    await envoy.files.sync([RED], [])
    assert (envoy.files.folders.clusters.stat().st_mtime_ns, envoy.files.routes_version) == before
    assert envoy.asked == asked


async def test_pods_have_a_file_of_their_own(envoy: _Envoy) -> None:
    """Ready pods of the pool only; pod churn leaves the cluster file untouched."""
    envoy.lead(RED)
    pods = [
        Pod("acme", "red-0", "a", {"app": "red"}, "10.0.0.1", True),
        Pod("acme", "red-1", "b", {"app": "red"}, "10.0.0.2", False),
        Pod("acme", "blue-0", "c", {"app": "blue"}, "10.0.0.3", True),
        Pod("other", "red-0", "d", {"app": "red"}, "10.0.0.4", True),
    ]
    await envoy.files.sync([RED], pods)
    before = envoy.files.folders.clusters.read_text()
    made = envoy.written(envoy.files.folders.pods / "acme~red.json")[0]
    hosts = [
        host["endpoint"]["address"]["socket_address"]["address"]
        for host in made["endpoints"][0]["lb_endpoints"]
    ]
    assert hosts == ["10.0.0.1"]
    await envoy.files.sync([RED], [])
    assert envoy.written(envoy.files.folders.pods / "acme~red.json")[0]["endpoints"] == []
    assert envoy.files.folders.clusters.read_text() == before


async def test_pods_stand_in_the_clusters_when_watches_are_scarce(envoy: _Envoy) -> None:
    """Two pools need four files; with three to spare, only the leader's two are followed."""
    envoy.files.watches = 3
    for pool in (RED, BLUE):
        envoy.lead(pool)
    pod = Pod("acme", "red-0", "a", {"app": "red"}, "10.0.0.1", True)
    await envoy.files.sync([RED, BLUE], [pod])
    found = {c["name"]: c for c in envoy.written(envoy.files.folders.clusters)}
    made = found[pods_cluster(RED.ref)]
    assert made["type"] == "STATIC"
    assert made["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"] == {
        "socket_address": {"address": "10.0.0.1", "port_value": 8000}
    }
    followed = [c for c in found.values() if "eds_cluster_config" in c]
    assert len(followed) == 2


async def test_no_more_pools_than_envoy_can_follow(
    envoy: _Envoy, caplog: pytest.LogCaptureFixture
) -> None:
    """It would abort; the pool that came first stays, the other has no route and is told once."""
    envoy.files.watches = 1
    envoy.lead(RED)
    envoy.live = _clusters(RED) | _clusters(BLUE)
    await envoy.files.sync([RED], [])
    envoy.lead(BLUE)
    assert await envoy.files.sync([RED, BLUE], []) == (BLUE.ref,)
    assert await envoy.files.sync([RED, BLUE], []) == (BLUE.ref,)
    assert envoy.clusters() == _clusters(RED)
    assert envoy.routes() == ["/acme/red/"]
    assert [record.getMessage() for record in caplog.records] == ["gateway full"]


def test_a_group_of_two_pools_may_have_two_picker_clusters() -> None:
    """AI Gateway has one per pool, Istio one per Service port."""
    istio = GroupKey("acme", "llama-8b-epp", 9002)
    ai_gateway = GroupKey("acme", "mistral-7b-epp", 9002)
    found = picker_clusters({istio: (RED, BLUE), ai_gateway: (RED, BLUE)})
    assert len(found[istio]) == 1
    assert found[ai_gateway] == {
        "envoy.clusters.endpointpicker_red_acme_ext_proc",
        "envoy.clusters.endpointpicker_blue_acme_ext_proc",
    }
