"""Kinds that are absent, go, come under two groups, or may not be read."""

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fleet.model import Pool
from fleet.sources.contract import Kind
from tests import manifest_texts as texts
from tests.fake_api_server import OLD_POOLS, POOLS, FakeApiServer, Status
from tests.kube_sources import RunningSource, running_source, until
from tests.source_log import NS1_PODS, OLD, V1, A, Log, names, watch_pods


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer.running() as running:
        yield running


@pytest.fixture
async def on(server: FakeApiServer, tmp_path: Path) -> AsyncIterator[RunningSource]:
    async with running_source(server.kubeconfig(tmp_path)) as running:
        yield running


async def test_a_missing_permission_is_loud(
    server: FakeApiServer, on: RunningSource, caplog: pytest.LogCaptureFixture
) -> None:
    """kserve/kserve#5750: the log names verb and resource, once; the age grows, what was known
    stays."""
    await watch_pods(server, on)
    denied = server.fail(NS1_PODS, Status(403, "Forbidden", 'User "u" cannot list resource "pods"'))
    caplog.set_level(logging.INFO)
    server.cut_watches()
    await until(lambda: denied.hits > 5)
    errors = [each for each in caplog.records if each.levelno == logging.ERROR]
    (error,) = errors
    assert 'verb "list" on resource "pods"' in error.__dict__["error"]
    assert names(on) == {"p", "q"}
    before = on.source.age()
    await until(lambda: on.source.age() > before + 0.05)
    assert 'verb "list" on resource "pods"' in on.source.problems()[0].message


async def test_no_crds_at_all(tmp_path: Path) -> None:
    """kubernetes-sigs/gateway-api-inference-extension#1737, envoyproxy/ai-gateway#953: nothing
    crashes and nothing waits; both kinds are looked for again, and found when they come."""
    async with (
        FakeApiServer.running() as server,
        running_source(server.kubeconfig(tmp_path)) as on,
    ):
        for kind in (POOLS, OLD_POOLS):
            server.uninstall(kind)
        log = Log()
        watch = on.source.watch(Kind.POOL, log)
        await on.source.start()
        await watch.wait_synced()
        assert on.source.problems() == ()
        assert on.condition(V1).missing
        server.store.install(POOLS)
        server.put(texts.pool("a"))
        await until(lambda: log.signs == ["+a"])
        await until(lambda: not on.condition(V1).missing)
        assert on.condition(OLD).missing


async def test_a_crd_that_goes_while_running(server: FakeApiServer, on: RunningSource) -> None:
    """kubernetes-sigs/gateway-api-inference-extension#407: its pools go with it; when it comes back
    so do new ones."""
    server.put(texts.pool("a"))
    log = Log()
    on.source.watch(Kind.POOL, log)
    await on.source.start()
    await until(lambda: server.watches(V1) == 1)
    server.uninstall(POOLS)
    await until(lambda: on.condition(V1).missing)
    assert log.signs == ["+a", "-a"]
    server.store.install(POOLS)
    server.put(texts.pool("a"))
    await until(lambda: log.signs == ["+a", "-a", "+a"])


async def test_a_server_that_forgot_its_kinds_is_not_believed_at_once(
    server: FakeApiServer, on: RunningSource
) -> None:
    """kubernetes-sigs/gateway-api-inference-extension#1936: a 404 that discovery contradicts is a
    failure like any other and removes nothing."""
    server.put(texts.pool("a"))
    log = Log()
    on.source.watch(Kind.POOL, log)
    await on.source.start()
    await until(lambda: server.watches(V1) == 1)
    rule = server.fail(f"{V1}$", Status(404, "NotFound"), times=8)
    server.cut_watches()
    await until(lambda: rule.hits == 8 and server.watches(V1) == 1)
    assert log.signs == ["+a"]
    server.fail("^/apis/inference.networking.k8s.io/v1", Status(404, "NotFound"), times=4)
    server.cut_watches()
    await until(lambda: server.watches(V1) == 1)
    assert log.signs == ["+a"]


async def test_one_name_in_both_groups(server: FakeApiServer, on: RunningSource) -> None:
    """kubernetes-sigs/gateway-api-inference-extension#1737: never two pools; v1 wins while it is
    there, and the older one is what is left."""
    server.put(texts.old_pool("a", targetPortNumber=7000))
    log = Log()
    on.source.watch(Kind.POOL, log)
    await on.source.start()
    await until(lambda: server.watches("inferencepools") == 2)

    def ports() -> list[tuple[int, ...]]:
        return [
            pool.target_ports
            for pool in on.source.objects(Kind.POOL).values()
            if isinstance(pool, Pool)
        ]

    assert ports() == [(7000,)]
    server.put(texts.pool("a", ports=(8000,)))
    await until(lambda: ports() == [(8000,)])
    server.put(texts.old_pool("a", targetPortNumber=7001))
    await until(
        lambda: on.source.seen(Kind.POOL, A, rank=1) == str(server.store.version), "it was seen"
    )
    assert ports() == [(8000,)]
    server.remove(texts.pool("a"))
    await until(lambda: ports() == [(7001,)])
    server.remove(texts.old_pool("a"))
    await until(lambda: ports() == [])
    assert log.signs == ["+a", "~a", "~a", "-a"]


async def test_an_absent_old_group_needs_no_permission(tmp_path: Path) -> None:
    """kubernetes-sigs/gateway-api-inference-extension#1737: RBAC is asked before the kind is looked
    up, so a kind that does not exist may answer 403; discovery tells the two apart."""
    async with (
        FakeApiServer.running(POOLS) as server,
        running_source(server.kubeconfig(tmp_path)) as on,
    ):
        server.fail(OLD, Status(403, "Forbidden"))
        server.put(texts.pool("a"))
        watch = on.source.watch(Kind.POOL, Log())
        await on.source.start()
        await watch.wait_synced()
        assert names(on, Kind.POOL) == {"a"}
        assert on.source.problems() == ()
