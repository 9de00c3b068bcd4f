"""Which pods are watched, for whom and for how long."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from fleet.clock import SystemClock
from fleet.kube.listwatch import ListWatch
from fleet.kube.listwatch_cache import key_of
from fleet.kube.listwatch_events import Collection
from fleet.sources.contract import Change, Kind, ObjectKey, Watch
from fleet.sources.kubernetes_scopes import FEW, MANY
from tests import manifest_texts as texts
from tests.fake_api_server import FakeApiServer, Hold, Status
from tests.kube_sources import QUICK, RunningSource, running_source, until
from tests.scripted_kube import Highest

CLUSTER = "^/api/v1/pods$"
ONE_BY_ONE = "^/api/v1/namespaces/[^/]+/pods$"


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer.running() as running:
        yield running


@pytest.fixture
async def on(server: FakeApiServer, tmp_path: Path) -> AsyncIterator[RunningSource]:
    async with running_source(server.kubeconfig(tmp_path)) as running:
        yield running


def ignore(change: Change) -> None:
    """A listener that does not care."""


def watch_namespaces(on: RunningSource, count: int, first: int = 0) -> list[Watch]:
    """Watch the pods of ns<first>, ns<first + 1>, ..."""
    return [
        on.source.watch(Kind.POD, ignore, namespace=f"ns{number}")
        for number in range(first, first + count)
    ]


async def test_only_what_is_watched_is_asked_for(server: FakeApiServer, on: RunningSource) -> None:
    """A process needs no permission for what it does not use."""
    await on.source.start()
    on.source.watch(Kind.POD, ignore, namespace="ns1")
    await until(lambda: server.watches() == 1)
    assert {each.path for each in server.requests} == {"/api/v1/namespaces/ns1/pods"}
    on.source.watch(Kind.SERVICE, ignore)
    await until(lambda: server.watches("/api/v1/services") == 1)
    assert server.watches("inferencepools") == 0


async def test_one_watch_a_namespace_for_as_long_as_somebody_asks(
    server: FakeApiServer, on: RunningSource
) -> None:
    """Two listeners share it; with the last one it ends, and its pods are forgotten."""
    server.put(texts.pod("p"))
    await on.source.start()
    first = on.source.watch(Kind.POD, ignore, namespace="ns1")
    await first.wait_synced()
    second = on.source.watch(Kind.POD, ignore, namespace="ns1")
    await second.wait_synced()
    await until(lambda: server.watches(ONE_BY_ONE) == 1)
    assert server.count("GET", "pods", watch=False) == 1
    first.close()
    first.close()
    await asyncio.sleep(0)
    assert set(on.source.objects(Kind.POD)) == {ObjectKey("ns1", "p")}
    second.close()
    assert on.source.objects(Kind.POD) == {}
    await until(lambda: server.watches() == 0)
    assert on.source.conditions() == ()


async def test_watched_again_is_listed_again(server: FakeApiServer, on: RunningSource) -> None:
    """And what changed in between is there."""
    server.put(texts.pod("p"))
    await on.source.start()
    watch = on.source.watch(Kind.POD, ignore, namespace="ns1")
    await watch.wait_synced()
    watch.close()
    server.put(texts.pod("q"))
    server.remove(texts.pod("p"))
    again = on.source.watch(Kind.POD, ignore, namespace="ns1")
    assert not again.synced()
    await again.wait_synced()
    assert set(on.source.objects(Kind.POD)) == {ObjectKey("ns1", "q")}


async def test_many_namespaces_become_one_watch_of_the_cluster(
    server: FakeApiServer, on: RunningSource
) -> None:
    """And back when few are left; no pod is out of sight in between, and nobody is told twice."""
    server.put(texts.pod("p", "ns0"))
    told: list[Change] = []
    on.source.watch(Kind.POD, told.append, namespace="ns0")
    await on.source.start()
    many = watch_namespaces(on, MANY - 1, first=1)
    await until(lambda: server.watches(ONE_BY_ONE) == MANY)
    hold = server.fail(CLUSTER, Hold(), watch=False)
    many += watch_namespaces(on, 1, first=MANY)
    await server.until(lambda: hold.hits == 1)
    assert server.watches(ONE_BY_ONE) >= MANY
    hold.remove()
    await until(lambda: server.watches(ONE_BY_ONE) == 0 and server.watches(CLUSTER) == 1)
    assert len(told) == 1
    server.put(texts.pod("q", "ns0"))
    await until(lambda: len(told) == 2)
    late = on.source.watch(Kind.POD, ignore, namespace="ns0")
    await late.wait_synced()
    for watch in many[: MANY - FEW]:
        watch.close()
    assert server.watches(CLUSTER) == 1
    many[-1].close()
    await until(lambda: server.watches(CLUSTER) == 0 and server.watches(ONE_BY_ONE) == FEW)
    assert len(told) == 2
    assert len(on.source.objects(Kind.POD, namespace="ns0")) == 2


async def test_where_the_cluster_may_not_be_watched_namespaces_go_on(
    server: FakeApiServer, on: RunningSource
) -> None:
    """403 for the cluster is a problem for people, not for pods."""
    server.put(texts.pod("p", "ns7"))
    server.fail(CLUSTER, Status(403, "Forbidden"))
    watches = watch_namespaces(on, MANY + 5)
    await on.source.start()
    await asyncio.gather(*(watch.wait_synced() for watch in watches))
    await until(lambda: server.watches(ONE_BY_ONE) == MANY + 5)
    assert set(on.source.objects(Kind.POD)) == {ObjectKey("ns7", "p")}
    assert {problem.where for problem in on.source.problems()} == {"/api/v1/pods"}


async def test_watching_all_namespaces(server: FakeApiServer, on: RunningSource) -> None:
    """One watch of the cluster, whatever else is asked for."""
    server.put(texts.pod("p"))
    server.put(texts.pod("q", "ns2"))
    everything = on.source.watch(Kind.POD, ignore)
    one = on.source.watch(Kind.POD, ignore, namespace="ns1")
    await on.source.start()
    await everything.wait_synced()
    await one.wait_synced()
    await until(lambda: server.watches(CLUSTER) == 1 and server.watches(ONE_BY_ONE) == 0)
    assert len(on.source.objects(Kind.POD)) == 2


async def test_only_the_namespaces_of_the_settings(server: FakeApiServer, tmp_path: Path) -> None:
    """Namespaced permissions suffice: nothing of the cluster is asked for, and what lies elsewhere
    does not exist."""
    kubeconfig = server.kubeconfig(tmp_path)
    for namespace in ("ns1", "ns2", "ns3"):
        server.put(texts.pool("a", namespace))
        server.put(texts.pod("p", namespace))
    async with running_source(kubeconfig, watch_namespaces="ns1,ns2") as on:
        kinds = [on.source.watch(kind, ignore) for kind in Kind]
        outside = on.source.watch(Kind.POD, ignore, namespace="ns3")
        await on.source.start()
        for watch in (*kinds, outside):
            await watch.wait_synced()
        for kind in (Kind.POOL, Kind.POD):
            assert {key.namespace for key in on.source.objects(kind)} == {"ns1", "ns2"}
        assert {each.path.split("/namespaces/")[1].split("/")[0] for each in server.requests} == {
            "ns1",
            "ns2",
        }


async def test_nothing_but_namespaces_that_may_not_be_watched(
    server: FakeApiServer, tmp_path: Path
) -> None:
    """They are empty, which is known at once."""
    async with running_source(server.kubeconfig(tmp_path), watch_namespaces="ns1") as on:
        outside = on.source.watch(Kind.POD, ignore, namespace="ns3")
        await asyncio.sleep(0)
        assert not outside.synced()
        await on.source.start()
        await outside.wait_synced()
        assert server.requests == []


async def test_a_pod_leaves_the_selection_of_a_watch(
    server: FakeApiServer, on: RunningSource
) -> None:
    """sgl-project/sglang#26842, ai-dynamo/dynamo#9700: with a label selector, an object that is
    relabelled is gone for whoever watches the old label, and new for whoever watches the new."""
    server.put(texts.pod("p", labels={"app": "a"}))
    loops = {
        label: ListWatch(
            on.client,
            Collection("/api/v1", "pods", "ns1"),
            keep=key_of,
            told=lambda deltas: None,
            pace=QUICK,
            clock=SystemClock(),
            rng=Highest(),
            selectors={"labelSelector": f"app={label}"},
        )
        for label in ("a", "b")
    }
    for loop in loops.values():
        loop.start()
    try:
        await until(lambda: server.watches() == 2 and len(loops["a"].values) == 1)
        server.put(texts.pod("p", labels={"app": "b"}))
        await until(lambda: len(loops["b"].values) == 1)
        await until(lambda: len(loops["a"].values) == 0)
    finally:
        for loop in loops.values():
            await loop.close()


async def test_closing_ends_everything(server: FakeApiServer, tmp_path: Path) -> None:
    """No connection, no task and no call is left, also from listeners closed by it."""
    server.put(texts.pod("p"))
    async with running_source(server.kubeconfig(tmp_path)) as on:
        for kind in Kind:
            on.source.watch(kind, ignore)
        await on.source.start()
        await until(lambda: server.watches() == 8)  # five kinds, three of them in two groups
        await on.source.close()
        assert on.source.conditions() == ()
        assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("watch /")]
        await until(lambda: server.watches() == 0)


async def test_a_client_closes_the_connection_of_a_watch_it_leaves(
    server: FakeApiServer, on: RunningSource
) -> None:
    """Else each move of a group would leave one behind."""
    events = on.client.watch("/api/v1/pods", params={}, read_timeout_seconds=5)
    server.put(texts.pod("p"))
    async with aclosing(events):
        assert (await anext(events))["type"] == "ADDED"
        assert server.watches() == 1
    await until(lambda: server.watches() == 0)
