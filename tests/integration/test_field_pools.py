"""Pools and pods that change under a running worker, seen from the gateway's side of the wire."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingResponse

from epp_worker.metrics import MetricsPage
from fleet.model import Hold, Pool
from fleet.settings.model import WorkerSettings
from fleet.sources.contract import Kind
from tests import manifest_texts
from tests.unit import extproc_messages as make
from tests.worker_inprocess import (
    DEADLINE,
    Gateway,
    Running,
    TestLeader,
    endpoint_in,
    picked_on,
    running_worker,
    until,
)

CHAT = b'{"model":"m"}'
AUTHORITY = "pool-a-epp.ns1.svc:9002"


class Folder:
    """A manifests folder whose objects a test replaces as a whole, as a rename does."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.objects: dict[str, manifest_texts.Raw] = {}

    def put(self, **objects: manifest_texts.Raw) -> None:
        self.objects.update(objects)
        self.write()

    def drop(self, *names: str) -> None:
        for name in names:
            del self.objects[name]
        self.write()

    def write(self) -> None:
        new = self._path / ".new"
        new.write_text(manifest_texts.text(*self.objects.values()))
        new.rename(self._path / "all.yaml")


def pool(name: str = "pool-a", *, uid: str = "u1", **spec: object) -> manifest_texts.Raw:
    manifest = manifest_texts.pool(name, **spec)  # type: ignore[arg-type]
    manifest["metadata"]["uid"] = uid
    return manifest


def pod(name: str, ip: object, **labels: str) -> manifest_texts.Raw:
    return manifest_texts.pod(name, ip=ip, labels=labels or {"app": "pool-a"})


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """Two pools, one pod each."""
    folder = Folder(tmp_path)
    folder.put(
        a=pool(),
        b=pool("pool-b"),
        a0=pod("a-0", "10.0.0.1"),
        b0=pod("b-0", "10.0.1.1", app="pool-b"),
    )
    return folder


@pytest.fixture
async def running(folder: Folder, tmp_path: Path) -> AsyncIterator[Running]:
    """A worker that owns both."""
    own = WorkerSettings(
        host="127.0.0.1",
        ext_proc_port=0,
        health_port=0,
        internal_port=0,
        http_port=0,
        stray_hold_seconds=0.5,
    )
    async with running_worker(tmp_path, worker_settings=own) as worker:
        leader = TestLeader(worker.worker.addresses.internal, 1)
        await leader.connect()
        await leader.assign(worker.share(1, pool_a=Hold.OWNER, pool_b=Hold.OWNER))
        yield worker
        await leader.close()


@pytest.fixture
async def gateway(running: Running) -> AsyncIterator[Gateway]:
    """A gateway of pool-a."""
    gateway = Gateway(running.worker.addresses.ext_proc, AUTHORITY)
    yield gateway
    await gateway.close()


async def picks(gateway: Gateway, count: int = 12) -> set[str]:
    return {await gateway.pick() for _ in range(count)}


async def becomes(running: Running, gateway: Gateway, wanted: set[str]) -> None:
    """Wait until the endpoints of pool-a are exactly `wanted`; then each is picked, no other is."""
    await until(lambda: known(running) == wanted, f"the endpoints are {sorted(wanted)}")
    seen: set[str] = set()
    async with asyncio.timeout(DEADLINE):
        while seen != wanted:
            seen |= await picks(gateway)
            assert seen <= wanted
    assert await picks(gateway, 30) <= wanted


def known(running: Running, name: str = "pool-a") -> set[str]:
    """The endpoints of a pool in the worker's metrics."""
    figures = running.worker.figures()
    page = MetricsPage().render(figures).decode()
    prefix = 'epp_fleet_inflight_requests{endpoint="'
    return {
        line.removeprefix(prefix).partition('"')[0]
        for line in page.splitlines()
        if line.startswith(prefix) and f'pool="{name}"' in line
    }


async def test_target_ports_follow_the_pool(
    running: Running, folder: Folder, gateway: Gateway
) -> None:
    """Fewer, other, more, and reordered ports without any pod event: the old ones are gone from
    picks, scrapes and metrics (inference-extension#2306)."""
    for ports in [(8000, 8001), (8000,), (9000,), (9000, 9001), (9001, 9000), tuple(range(1, 9))]:
        scrapes = len(running.scraper.refreshed)
        folder.put(a=pool(ports=ports))
        wanted = {f"10.0.0.1:{port}" for port in ports}
        await becomes(running, gateway, wanted)
        assert known(running) == wanted
        assert len(running.scraper.refreshed) == scrapes + 1
    assert known(running, "pool-b") == {"10.0.1.1:8000"}


async def test_a_relabelled_pod_changes_sides(
    running: Running, folder: Folder, gateway: Gateway
) -> None:
    """From pool A to pool B and back: it is in exactly one of them (inference-extension#696,
    sglang#26842)."""
    folder.put(a1=pod("a-1", "10.0.0.2"))
    await becomes(running, gateway, {"10.0.0.1:8000", "10.0.0.2:8000"})
    folder.put(a1=pod("a-1", "10.0.0.2", app="pool-b"))
    await becomes(running, gateway, {"10.0.0.1:8000"})
    assert known(running, "pool-b") == {"10.0.1.1:8000", "10.0.0.2:8000"}
    folder.put(a1=pod("a-1", "10.0.0.2", app="pool-a", tier="x"))
    await becomes(running, gateway, {"10.0.0.1:8000", "10.0.0.2:8000"})
    assert known(running, "pool-b") == {"10.0.1.1:8000"}


async def test_a_selector_change_is_followed_both_ways(
    running: Running, folder: Folder, gateway: Gateway
) -> None:
    """Narrower, to none, and back, without any pod event (dynamo#9700, dynamo#11072)."""
    folder.put(a1=pod("a-1", "10.0.0.2", app="pool-a", tier="x"))
    both = {"10.0.0.1:8000", "10.0.0.2:8000"}
    await becomes(running, gateway, both)
    folder.put(a=pool(labels={"app": "pool-a", "tier": "x"}))
    await becomes(running, gateway, {"10.0.0.2:8000"})
    folder.put(a=pool(labels={"tier": "x"}))
    await becomes(running, gateway, {"10.0.0.2:8000"})
    folder.put(a=pool(labels={"app": "pool-b"}))
    await becomes(running, gateway, {"10.0.1.1:8000"})
    folder.put(a=pool(labels={}))
    await until(lambda: known(running) == set(), "an empty selector selects nothing")
    folder.put(a=pool())
    await until(lambda: known(running) == both, "the members are back")
    await becomes(running, gateway, both)


@pytest.mark.parametrize(
    "how",
    ["evicted", "failed", "succeeded", "no ip", "empty ip", "bad ip", "not ready", "deleting",
     "gone", "no status"],
)  # fmt: skip
async def test_a_pod_that_ends_in_any_way_is_picked_no_more(
    running: Running, folder: Folder, gateway: Gateway, how: str
) -> None:
    """MODIFIED with phase Failed and no address counts as an end too (production-stack#1091)."""
    folder.put(a1=pod("a-1", "10.0.0.2"))
    await becomes(running, gateway, {"10.0.0.1:8000", "10.0.0.2:8000"})
    sick = pod("a-1", "10.0.0.2")
    status = sick["status"]
    if how == "evicted":
        status.update(podIP=None, phase="Failed", reason="Evicted")
    elif how in ("failed", "succeeded"):
        status["phase"] = how.title()
    elif how.endswith("ip"):
        status["podIP"] = {"no ip": None, "empty ip": "", "bad ip": "10.0.0.256"}[how]
    elif how == "not ready":
        status["conditions"][0]["status"] = "Unknown"
    elif how == "deleting":
        sick["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    elif how == "no status":
        sick["status"] = None
    if how == "gone":
        folder.drop("a1")
    else:
        folder.put(a1=sick)
    await becomes(running, gateway, {"10.0.0.1:8000"})
    assert known(running) == {"10.0.0.1:8000"}


async def test_a_pod_of_another_namespace_is_no_member(
    running: Running, folder: Folder, gateway: Gateway
) -> None:
    """The same labels, or the same pool name, elsewhere (inference-extension#1869)."""
    stranger = manifest_texts.pod("a-0", "team-b", ip="10.9.9.9", labels={"app": "pool-a"})
    twin = manifest_texts.pool("pool-a", "team-b", ports=(7000,))
    folder.put(stranger=stranger, twin=twin, a1=pod("a-1", "10.0.0.2"))
    await becomes(running, gateway, {"10.0.0.1:8000", "10.0.0.2:8000"})
    other = Gateway(running.worker.addresses.ext_proc, "pool-a-epp.team-b.svc:9002")
    call = other.stream()
    async with asyncio.timeout(DEADLINE):  # that one is not held here: never answered by its twin
        assert await call.code() is grpc.StatusCode.UNAVAILABLE
    await other.close()


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


@pytest.mark.parametrize(
    ("pod_ip", "hint", "allowed"),
    [
        ("fd00::10", ["[fd00::10]:8000"], True),
        ("fd00::10", ["fd00::10"], True),
        ("fd00::10", ["fd00:0:0::10"], True),
        ("fd00:0:0:0::10", ["[FD00::0010]:8000"], True),
        ("fd00::10", ["fd00::10:8000"], False),
        ("fd00::10", ["fd00"], False),
        ("fd00::10", ["[fd00::10]:8001"], False),
        ("10.0.0.7", ["::ffff:10.0.0.7"], True),
        ("10.0.0.7", ["[::ffff:10.0.0.7]:8000"], True),
        ("10.0.0.7", ["10.0.0.7:8000", "junk", ""], True),
        ("10.0.0.7", ["10.0.0.8:8000, 10.0.0.7:8000"], True),
        ("10.0.0.7", ["10.0.0.70:8000"], False),
        ("10.0.0.7", [], False),
        ("10.0.0.7", [""], False),
    ],
)
async def test_addresses_are_compared_as_addresses(
    running: Running, folder: Folder, gateway: Gateway, pod_ip: str, hint: list[str], allowed: bool
) -> None:
    """Emitted as `[v6]:port`; a hint in any lawful spelling matches, part of a text never does; an
    empty hint is a restriction too: 503 (dynamo#12063, inference-extension#2117)."""
    folder.put(a0=pod("a-0", pod_ip))
    address = "[fd00::10]:8000" if ":" in pod_ip else f"{pod_ip}:8000"
    await becomes(running, gateway, {address})
    for body in (None, CHAT):
        call = gateway.stream()
        await call.write(make.request_headers(end_of_stream=body is None, subset=hint))
        if body is not None:
            await call.write(make.request_body(body, end_of_stream=True))
        async with asyncio.timeout(DEADLINE):
            data = await call.read()
        if allowed:
            assert endpoint_in(data) == address
        else:
            reply = ProcessingResponse.FromString(data).immediate_response
            assert reply.status.code == 503
            reasons = [o.header.raw_value for o in reply.headers.set_headers]
            assert b"rejected-no-endpoints" in reasons
        call.cancel()


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
