"""Pools and pods that change under a running worker, seen from the gateway's side of the wire."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from fleet.model import Hold, Pool
from fleet.sources.contract import Kind
from tests.field_pools import (
    AUTHORITY,
    Folder,
    becomes,
    known,
    owner_of_both,
    picks,
    pod,
    pool,
    two_pools,
)
from tests.unit import extproc_messages as make
from tests.worker_inprocess import (
    DEADLINE,
    Gateway,
    Running,
    TestLeader,
    endpoint_in,
    picked_on,
    until,
)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return two_pools(tmp_path)


@pytest.fixture
async def running(folder: Folder) -> AsyncIterator[Running]:
    async with owner_of_both(folder.path) as worker:
        yield worker


@pytest.fixture
async def gateway(running: Running) -> AsyncIterator[Gateway]:
    """A gateway of pool-a."""
    gateway = Gateway(running.worker.addresses.ext_proc, AUTHORITY)
    yield gateway
    await gateway.close()


async def test_a_recreated_pool_starts_anew(
    running: Running, folder: Folder, gateway: Gateway
) -> None:
    """Another uid and selector under the same name, the deletion never seen: counters, metrics and
    members of the old one are gone; a stream open across it ends cleanly
    (inference-extension#350, #268, #393)."""
    call = gateway.stream()
    assert await picked_on(call) == "10.0.0.1:8000"
    folder.put(a=pool(uid="u2", labels={"app": "pool-b"}))
    await becomes(running, gateway, {"10.0.1.1:8000"})
    figures = running.worker.figures().inflight
    assert {ref.name: dict(each) for ref, each in figures.items()} == {
        "pool-a": {"10.0.1.1:8000": 0},
        "pool-b": {"10.0.1.1:8000": 0},
    }
    assert "pool-a/u1" not in running.scraper.scraped
    assert running.scraper.scraped.count("pool-a/u2") == 1
    await call.done_writing()
    async with asyncio.timeout(DEADLINE):
        while isinstance(await call.read(), bytes):
            continue
        assert await call.code() is grpc.StatusCode.OK
    assert sum(sum(each.values()) for each in running.worker.figures().inflight.values()) == 0


async def test_two_pools_behind_one_rule_never_mix(running: Running, gateway: Gateway) -> None:
    """Hints that list the pods of both: each picker keeps to its own pool; a pool that nobody knows
    is UNAVAILABLE, which is no answer of another one's (istio/istio#61594)."""
    other = Gateway(running.worker.addresses.ext_proc, "pool-b-epp.ns1.svc:9002")
    unknown = Gateway(running.worker.addresses.ext_proc, "pool-z-epp.ns1.svc:9002")
    union = ["10.0.0.1:8000", "10.0.1.1:8000"]
    for each, own in ((gateway, "10.0.0.1:8000"), (other, "10.0.1.1:8000")):
        for _ in range(10):
            call = each.stream()
            await call.write(make.request_headers(end_of_stream=True, subset=union))
            async with asyncio.timeout(DEADLINE):
                assert endpoint_in(await call.read()) == own
            call.cancel()
    call = unknown.stream()
    await call.write(make.request_headers(end_of_stream=True, subset=union))
    async with asyncio.timeout(DEADLINE):
        assert await call.code() is grpc.StatusCode.UNAVAILABLE
    await other.close()
    await unknown.close()


async def test_a_deleted_pool_is_waited_for_and_then_unavailable(
    running: Running, folder: Folder, gateway: Gateway
) -> None:
    """While it is absent: held, then UNAVAILABLE, never an immediate response; and if it comes
    back in time, answered (inference-extension#350)."""
    assert await picks(gateway) == {"10.0.0.1:8000"}
    mine = folder.objects["a"]
    folder.drop("a")
    await until(lambda: known(running) == set(), "the pool is gone")
    call = gateway.stream()
    await call.write(make.request_headers(end_of_stream=True))
    async with asyncio.timeout(DEADLINE):
        assert await call.code() is grpc.StatusCode.UNAVAILABLE
    assert running.worker.gate.counts.failed == 1
    waiting = asyncio.create_task(gateway.pick())
    await until(lambda: len(running.worker.gate) == 1, "the stream waits")
    folder.put(a=mine)
    assert await waiting == "10.0.0.1:8000"
    assert (
        sum(running.worker.picks.by_outcome.values()) == running.worker.picks.by_outcome["picked"]
    )


async def test_pods_older_than_their_pool_are_found(running: Running, folder: Folder) -> None:
    """Pods first, pool later, in a namespace that is watched already (inference-extension#393)."""
    folder.put(c0=pod("c-0", "10.0.2.1", app="pool-c"))
    await until(
        lambda: any("c-0" in str(key) for key in running.source.objects(Kind.POD)),
        "the pod is known",
    )
    folder.put(c=pool("pool-c"))
    await until(
        lambda: any("pool-c" in str(key) for key in running.source.objects(Kind.POOL)),
        "the pool is",
    )
    leader = TestLeader(running.worker.addresses.internal, 2)
    await leader.connect()
    share = running.share(1, 2, pool_a=Hold.OWNER, pool_b=Hold.OWNER, pool_c=Hold.OWNER)
    await leader.assign(share)
    gateway = Gateway(running.worker.addresses.ext_proc, "pool-c-epp.ns1.svc:9002")
    assert await gateway.pick() == "10.0.2.1:8000"
    await gateway.close()
    await leader.close()


async def test_broken_objects_leave_the_last_good_ones(
    running: Running, folder: Folder, gateway: Gateway
) -> None:
    """`spec: null`, no ports, nine ports, port 0 and 70000, half a document: the pool serves on,
    the fault is shown, and the repair is taken (agentgateway#1719, dynamo#11072)."""
    nine = tuple(range(8000, 8009))
    for broken in (
        {**pool(), "spec": None},
        pool(ports=()),
        pool(ports=nine),
        pool(ports=(0,)),
        pool(ports=(70000,)),
        pool(ports=("http",)),
        pool(endpointPickerRef={"name": "x"}),
    ):
        folder.put(a=broken)
        await until(lambda: bool(running.source.problems()), "the fault is reported")
        assert await picks(gateway) == {"10.0.0.1:8000"}
        folder.put(a=pool())
        await until(lambda: not running.source.problems(), "the repair is seen")
    assert not running.fatal


async def test_a_connection_kept_after_the_loss_is_still_answered(
    running: Running, folder: Folder, gateway: Gateway
) -> None:
    """The ex-owner serves on from its own, still fed knowledge: a pod that comes after the loss is
    picked too; nothing is refused (llm-d-router#1884)."""
    assert await picks(gateway) == {"10.0.0.1:8000"}
    leader = TestLeader(running.worker.addresses.internal, 2)
    await leader.connect()
    await leader.assign(running.share(1, 2, pool_a=Hold.DRAINING, pool_b=Hold.OWNER))
    folder.put(a0=pod("a-0", "10.0.0.77"))
    await becomes(running, gateway, {"10.0.0.77:8000"})
    assert running.worker.gate.counts.failed == 0
    assert running.worker.gate.counts.served >= 30
    await leader.close()


async def test_label_edits_change_nothing(
    running: Running, folder: Folder, gateway: Gateway
) -> None:
    """100 edits of labels, annotations and status of a pool: no endpoint state is lost, no scrape
    started anew (opentelemetry-operator#2280)."""
    call = gateway.stream()
    assert await picked_on(call) == "10.0.0.1:8000"
    before = list(running.scraper.scraped), list(running.scraper.refreshed)
    for number in range(100):
        edited = pool()
        edited["metadata"]["labels"] = {"edit": str(number)}
        edited["metadata"]["annotations"] = {"edit": str(number)}
        edited["status"] = {"parents": [{"edit": number}]}
        folder.put(a=edited)
        if number % 20 == 0:
            assert await picks(gateway, 3) == {"10.0.0.1:8000"}
    await until(
        lambda: any(
            one.annotations.get("edit") == "99"
            for one in running.source.objects(Kind.POOL).values()
            if isinstance(one, Pool)
        ),
        "the last edit is seen",
    )
    assert (running.scraper.scraped, running.scraper.refreshed) == before
    inflight = running.worker.figures().inflight
    assert sum(sum(each.values()) for each in inflight.values()) == 1
    call.cancel()
