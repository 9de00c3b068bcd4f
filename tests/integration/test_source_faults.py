"""What goes wrong between an API server and us, and what a source makes of it.

Every fault is real HTTP from `tests.fake_api_server`; waits are for conditions.
"""

import asyncio
import gc
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from fleet.sources.contract import Kind, ObjectKey
from tests import manifest_texts as texts
from tests.fake_api_server import (
    BadEvent,
    CutMidJson,
    ErrorEvent,
    FakeApiServer,
    Fault,
    Garbage,
    HalfOpen,
    Hold,
    Reset,
    Status,
    StatusInside,
)
from tests.kube_sources import QUICK, RunningSource, running_source, until
from tests.source_log import NS1_PODS, Log, names, versions_asked, watch_pods

P, Q = ObjectKey("ns1", "p"), ObjectKey("ns1", "q")


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer.running() as running:
        yield running


@pytest.fixture
async def on(server: FakeApiServer, tmp_path: Path) -> AsyncIterator[RunningSource]:
    async with running_source(server.kubeconfig(tmp_path)) as running:
        yield running


EXPIRED: list[tuple[str, Fault]] = [
    ("ERROR event", ErrorEvent(410)),
    ("HTTP 410", Status(410, "Expired")),
    ("410 inside a 200 that is no stream", StatusInside(410)),
]


@pytest.mark.parametrize(("_name", "fault"), EXPIRED)
@pytest.mark.parametrize("times", [1, 3])
async def test_an_expired_watch_lists_anew(
    server: FakeApiServer, on: RunningSource, _name: str, fault: Fault, times: int
) -> None:
    """tomplus/kubernetes_asyncio#325, kubernetes-client/python#2223, apache/airflow#23521,
    vllm-project/production-stack#228, kubernetes/kubernetes#133810: 410 in whatever form, also
    again and again, ends in a list, a diff, and a watch from the list's version; the expired one
    is never asked for again."""
    log = await watch_pods(server, on)
    first = versions_asked(server, NS1_PODS)[-1]
    server.fail(NS1_PODS, fault, watch=True, times=times)
    with server.losing_events():
        server.remove(texts.pod("p"))
        server.put(texts.pod("r"))
    server.end_watches()  # resumed, as usual, and refused
    await until(lambda: server.watches(NS1_PODS) == 1 and names(on) == {"q", "r"})
    assert sorted(log.signs) == ["+r", "-p"]
    asked = versions_asked(server, NS1_PODS)
    assert asked.count(first) == 2  # before, and the one that was refused
    assert asked[-1] == str(server.store.version)
    assert server.count("GET", NS1_PODS, watch=False) == 1 + times
    assert on.condition("pods").counters.expired == times


async def test_history_that_really_expired(server: FakeApiServer, on: RunningSource) -> None:
    """kubernetes/kubernetes#133810: the server compacted what the watch would resume from."""
    await watch_pods(server, on)
    server.end_watches()
    server.remove(texts.pod("p"))
    server.expire_history()
    await until(lambda: server.watches(NS1_PODS) == 1 and names(on) == {"q"})


async def test_pages_that_expire_are_listed_from_the_start(
    server: FakeApiServer, tmp_path: Path
) -> None:
    """tomplus/kubernetes_asyncio#325: 410 for a continue token; nobody is dropped meanwhile."""
    for number in range(25):
        server.put(texts.pod(f"p{number}"))
    async with running_source(server.kubeconfig(tmp_path), pace=replace(QUICK, page=10)) as on:
        hold = server.fail(NS1_PODS, Hold(), later_pages=True, times=1)
        log = Log()
        watch = on.source.watch(Kind.POD, log, namespace="ns1")
        await on.source.start()
        await server.until(lambda: hold.hits == 1)
        server.expire_history()
        assert not watch.synced()
        hold.remove()
        await watch.wait_synced()
        assert len(log.changes) == len(on.source.objects(Kind.POD)) == 25


async def test_an_error_event_gives_no_version(server: FakeApiServer, on: RunningSource) -> None:
    """kubernetes-client/python-base#199: its object is a Status without one; the next watch asks
    from a list's version, never from `None` or nothing."""
    await watch_pods(server, on)
    server.fail(NS1_PODS, ErrorEvent(500, "InternalError"), watch=True, times=2)
    server.end_watches()
    await until(lambda: on.condition("pods").counters.failures == 2)
    await until(lambda: server.watches(NS1_PODS) == 1)
    assert all(str(version).isdigit() for version in versions_asked(server, NS1_PODS))


async def test_bookmarks_advance_the_version(server: FakeApiServer, on: RunningSource) -> None:
    """kubernetes-client/python-base#199: the next watch begins where the bookmark was, although no
    pod changed; a bookmark without an object does no harm."""
    await watch_pods(server, on)
    server.put(texts.pool("a"))  # the version of the whole server grows
    server.send_bookmarks()
    server.send_to_watches(b'{"type": "BOOKMARK", "object": {}}\n')
    await until(lambda: on.condition("pods").counters.bookmarks == 2)
    server.end_watches()
    await until(lambda: len(versions_asked(server, NS1_PODS)) == 2)
    assert versions_asked(server, NS1_PODS)[-1] == str(server.store.version)
    assert server.count("GET", NS1_PODS, watch=False) == 1
    assert on.condition("pods").counters.failures == 0


async def test_a_silent_watch_is_cut(server: FakeApiServer, tmp_path: Path) -> None:
    """opensandbox-group/OpenSandbox#1533, sgl-project/sglang#32322: the socket is dead and nobody
    says so. Later than the server should have ended the watch, we do, and list; until then the age
    tells."""
    pace = replace(QUICK, watch_seconds=0.3, grace_seconds=0.1)
    async with running_source(server.kubeconfig(tmp_path), pace=pace) as on:
        await watch_pods(server, on)
        server.freeze_watches()
        server.remove(texts.pod("p"))
        before = on.source.age()
        await until(lambda: on.source.age() > before + 0.2, "the age grows")
        assert names(on) == {"p", "q"}
        await until(lambda: names(on) == {"q"}, "it was noticed")
        await until(lambda: on.condition("pods").counters.lists == 2, "the list is complete")


async def test_a_full_list_comes_on_its_own_timer(server: FakeApiServer, tmp_path: Path) -> None:
    """opensandbox-group/OpenSandbox#1322, vllm-project/production-stack#1091: whatever the watch
    does, and although it looks alive."""
    async with running_source(
        server.kubeconfig(tmp_path), pace=replace(QUICK, relist_seconds=0.4)
    ) as on:
        log = await watch_pods(server, on)
        with server.losing_events():
            server.remove(texts.pod("p"))
        await until(lambda: names(on) == {"q"})
        assert log.signs == ["-p"]
        assert on.condition("pods").counters.failures == 0


async def test_a_list_that_is_never_answered(server: FakeApiServer, tmp_path: Path) -> None:
    """opensandbox-group/OpenSandbox#1533: also a list has a deadline."""
    server.put(texts.pod("p"))
    rule = server.fail(NS1_PODS, HalfOpen(), times=2)
    async with running_source(
        server.kubeconfig(tmp_path), pace=replace(QUICK, page_seconds=0.1)
    ) as on:
        watch = on.source.watch(Kind.POD, Log(), namespace="ns1")
        await on.source.start()
        await watch.wait_synced()
        assert rule.hits == 2
        assert names(on) == {"p"}


BROKEN: list[tuple[str, Fault]] = [
    ("cut in the middle of an event", CutMidJson()),
    ("a line that is no JSON", Garbage()),
    ("a line that is no event", BadEvent(b'{"hello": "world"}\n')),
    ("an event of an unknown type", BadEvent(b'{"type": "RENAMED", "object": {}}\n')),
    ("an event without an object", BadEvent(b'{"type": "ADDED"}\n')),
    ("an event without a name", BadEvent(b'{"type": "DELETED", "object": {"metadata": {}}}\n')),
    ("connection reset", Reset()),
    ("HTTP 500", Status(500)),
    ("HTTP 429", Status(429, retry_after="0")),
    ("HTTP 403", Status(403, "Forbidden")),
]


@pytest.mark.parametrize(("_name", "fault"), BROKEN)
async def test_a_watch_that_breaks(
    server: FakeApiServer, on: RunningSource, _name: str, fault: Fault
) -> None:
    """tomplus/kubernetes_asyncio#235, #352: whatever breaks a watch, in whatever way, the loop
    lives, and what changed meanwhile is found, once."""
    log = await watch_pods(server, on)
    rule = server.fail(NS1_PODS, fault, watch=True, times=3)
    server.cut_watches()
    server.remove(texts.pod("p"))
    await until(lambda: rule.hits == 3 and server.watches(NS1_PODS) == 1)
    await until(lambda: names(on) == {"q"} and on.condition("pods").failing is None)
    server.put(texts.pod("r"))
    await until(lambda: log.signs == ["-p", "+r"])
    assert on.condition("pods").counters.failures >= 3
    assert on.condition("pods").counters.restarts == 0


@pytest.mark.parametrize(
    "fault", [CutMidJson(), Garbage(), Reset(), Status(503), StatusInside(500), Garbage(b"[1]")]
)
async def test_a_list_that_breaks(server: FakeApiServer, on: RunningSource, fault: Fault) -> None:
    """tomplus/kubernetes_asyncio#235: a broken list removes nothing; the next whole one counts."""
    await watch_pods(server, on)
    rule = server.fail(NS1_PODS, fault, watch=False, times=3)
    server.cut_watches()
    server.remove(texts.pod("p"))
    await until(lambda: rule.hits == 3)
    assert names(on) == {"p", "q"}
    await until(lambda: names(on) == {"q"})


async def test_a_list_cut_between_its_pages_removes_nothing(
    server: FakeApiServer, tmp_path: Path
) -> None:
    """ray-project/ray#34281: a partial read is never taken for the whole."""
    for number in range(25):
        server.put(texts.pod(f"p{number:02}"))
    async with running_source(server.kubeconfig(tmp_path), pace=replace(QUICK, page=10)) as on:
        log = Log()
        watch = on.source.watch(Kind.POD, log, namespace="ns1")
        await on.source.start()
        await watch.wait_synced()
        await until(lambda: server.watches(NS1_PODS) == 1)
        log.changes.clear()
        rule = server.fail(NS1_PODS, Reset(), later_pages=True, times=4)
        server.cut_watches()
        server.remove(texts.pod("p00"))
        await until(lambda: rule.hits == 4 and server.watches(NS1_PODS) == 1)
        assert log.signs == ["-p00"]


async def test_rotated_credentials(server: FakeApiServer, tmp_path: Path) -> None:
    """kubernetes-client/python#1768, nolar/kopf#926: the server refuses the old token; the file
    holds the new one."""
    token = tmp_path / "token"
    token.write_text("old")
    server.tokens = {"old"}
    kubeconfig = server.kubeconfig(tmp_path, token_file=token)
    async with running_source(kubeconfig) as on:
        log = await watch_pods(server, on)
        token.write_text("new")
        server.tokens = {"new"}
        server.cut_watches()
        server.put(texts.pod("r"))
        await until(lambda: log.signs == ["+r"])
        await until(lambda: server.watches(NS1_PODS) == 1)
        assert server.requests[-1].token == "new"


async def test_loops_survive_the_garbage_collector(
    server: FakeApiServer, on: RunningSource
) -> None:
    """keephq/keep#6552: a task without a strong reference would vanish in the middle."""
    # All that other tests left is not searched 20 times; the source's tasks begin after this.
    gc.freeze()
    try:
        log = await watch_pods(server, on)
        server.cut_watches()
        for _ in range(20):
            gc.collect()
            await asyncio.sleep(0)
        server.put(texts.pod("r"))
        await until(lambda: log.signs == ["+r"])
    finally:
        gc.unfreeze()


async def test_watching_before_there_is_a_server(tmp_path: Path) -> None:
    """vllm-project/production-stack#768: sources (of several replicas) that were begun in any order
    agree in the end."""
    async with FakeApiServer.running() as server:
        outage = server.fail("", Reset())
        server.put(texts.pool("a"))
        kubeconfig = server.kubeconfig(tmp_path)
        async with running_source(kubeconfig) as one, running_source(kubeconfig) as two:
            logs = Log(), Log()
            early = one.source.watch(Kind.POOL, logs[0])
            await one.source.start()
            await two.source.start()
            late = two.source.watch(Kind.POOL, logs[1])
            await until(lambda: len(one.source.problems()) == len(two.source.problems()) == 2)
            assert not early.synced()
            outage.remove()
            await early.wait_synced()
            await late.wait_synced()
            assert logs[0].signs == logs[1].signs == ["+a"]
