"""Which pods are a pool's endpoints while pods and the pool's selector change."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingResponse

from tests import manifest_texts
from tests.field_pools import (
    AUTHORITY,
    CHAT,
    Folder,
    becomes,
    known,
    owner_of_both,
    pod,
    pool,
    two_pools,
)
from tests.unit import extproc_messages as make
from tests.worker_inprocess import DEADLINE, Gateway, Running, endpoint_in, until


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
