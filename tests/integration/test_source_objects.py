"""Objects that change, go or cannot be read while a source over the API server watches them."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fleet.model import Pod, Pool
from fleet.sources.contract import Kind
from tests import manifest_texts as texts
from tests.fake_api_server import FakeApiServer, Raw
from tests.kube_sources import RunningSource, running_source, until
from tests.source_log import V1, Log, names, watch_pods


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer.running() as running:
        yield running


@pytest.fixture
async def on(server: FakeApiServer, tmp_path: Path) -> AsyncIterator[RunningSource]:
    async with running_source(server.kubeconfig(tmp_path)) as running:
        yield running


async def test_a_deletion_that_the_watch_missed(server: FakeApiServer, on: RunningSource) -> None:
    """vllm-project/production-stack#1091, #1008, #656: DELETED fell into a gap of the watch; the
    pod is gone all the same."""
    log = await watch_pods(server, on)
    server.cut_watches()
    with server.losing_events():
        server.remove(texts.pod("p"))
    await until(lambda: names(on) == {"q"})
    assert log.signs == ["-p"]


async def test_a_relabelled_pod_changes_once(server: FakeApiServer, on: RunningSource) -> None:
    """kubernetes-sigs/gateway-api-inference-extension#696, sgl-project/sglang#26842,
    ai-dynamo/dynamo#9700: one change with the old labels and the new."""
    log = await watch_pods(server, on)
    server.put(texts.pod("p", labels={"app": "other"}))
    await until(lambda: bool(log.changes))
    (change,) = log.changes
    assert isinstance(change.old, Pod)
    assert isinstance(change.new, Pod)
    assert (change.old.labels, change.new.labels) == ({"app": "pool-a"}, {"app": "other"})


async def test_a_pool_recreated_while_nobody_looked(
    server: FakeApiServer, on: RunningSource
) -> None:
    """kubernetes-sigs/gateway-api-inference-extension#350, #268, #393: same name, another uid and
    selector, DELETE lost: one change, from the one to the other."""
    server.put(texts.pool("a"))
    log = Log()
    on.source.watch(Kind.POOL, log)
    await on.source.start()
    await until(lambda: server.watches(V1) == 1)
    (first,) = log.changes
    log.changes.clear()
    server.cut_watches()
    with server.losing_events():
        server.remove(texts.pool("a"))
        server.put(texts.pool("a", labels={"app": "b"}))
    await until(lambda: bool(log.changes))
    (change,) = log.changes
    assert change.old == first.new
    assert isinstance(change.old, Pool)
    assert isinstance(change.new, Pool)
    assert change.new.uid != change.old.uid
    assert change.new.selector == {"app": "b"}


async def test_an_object_that_is_too_large(server: FakeApiServer, on: RunningSource) -> None:
    """It is skipped with a reason, and its last good state stays, both in a watch and in a list."""
    server.put(texts.pool("a"))
    on.source.watch(Kind.POOL, Log())
    await on.source.start()
    await until(lambda: server.watches(V1) == 1)
    large: Raw = texts.pool("a", ports=(9000,))
    large["metadata"]["labels"] = {f"label-{number}": "x" * 60 for number in range(10_000)}
    server.put(large)
    await until(lambda: on.condition(V1).skipped == 1)
    server.cut_watches()
    await until(lambda: all(each.counters.lists == 2 for each in on.source.conditions()))
    (pool,) = on.source.objects(Kind.POOL).values()
    assert isinstance(pool, Pool)
    assert pool.target_ports == (8000,)
    (problem,) = on.source.problems()
    assert problem.where == V1.replace("inferencepools", "namespaces/ns1/inferencepools/a")
    assert "labels and annotations" in problem.message
