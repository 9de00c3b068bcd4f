"""Coordinators ask a worker for a pool's endpoints, over real gRPC."""

import asyncio
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from coordinator import endpoints as endpoints_module
from coordinator.endpoints import EndpointQuestions
from coordinator.view import EndpointsUnknown, UnknownPool
from epp_worker import endpoints as service_module
from fleet.certificates import Certificates, Role
from fleet.control.endpoint_messages import (
    ENDPOINTS,
    MAX_ENDPOINTS,
    AskEndpoints,
    EndpointRow,
)
from fleet.control.messages import Assign
from fleet.model import (
    Addresses,
    EpochVersion,
    Hold,
    LeaderInfo,
    MemberState,
    MemberStatus,
    Phase,
    Placement,
    PoolId,
    PoolRef,
    Reason,
    ShardMap,
)
from tests import manifest_texts
from tests.ports import free_port
from tests.tls_files import certificates, new_ca
from tests.worker_inprocess import (
    TOKEN,
    Running,
    TestLeader,
    group_of,
    running_worker,
    until,
    write_pool,
)

POOL = PoolRef("ns1", "pool-a")
GROUP = group_of("pool-a")


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    """A worker that owns pool a: a ready pod, one that is not, and one without an IP."""
    write_pool(tmp_path, "pool-a", "10.0.0.1")
    labels = {"app": "pool-a"}
    late = manifest_texts.pod("late", labels=labels, ip="10.0.0.2", ready="False")
    early = manifest_texts.pod("early", labels=labels, ip="", ready="False")
    (tmp_path / "more.yaml").write_text(manifest_texts.text(late, early))
    async with running_worker(tmp_path) as worker:
        leader = TestLeader(worker.worker.addresses.internal, 1)
        await leader.connect()
        await leader.say(Assign(worker.share(1, pool_a=Hold.OWNER)))
        await until(lambda: worker.worker.holdings.holds() == {GROUP: Hold.OWNER}, "the group")
        reports = worker.worker.holdings.reports
        await until(lambda: all(report.synced for report in reports()), "its pods")
        yield worker
        await leader.close()


def placed(*owners: str) -> ShardMap:
    """A map with pool a alone."""
    phase = Phase.OWNED if owners else Phase.UNOWNED
    placement = Placement(GROUP, (PoolId(POOL, "u"),), phase, owners, None, Reason.INITIAL, 0.0)
    return ShardMap(
        "default", EpochVersion(1, 1), 0.0, LeaderInfo("c", "h:1", "h:2"), {GROUP: placement}
    )


def status_of(running: Running, internal: str = "") -> MemberStatus:
    member = running.worker.member()
    if internal:
        member = replace(member, addresses=Addresses("h:1", "h:2", internal, "h:4"))
    return MemberStatus(member, MemberState.ALIVE, None, 1, 0)


def questions(token: str = TOKEN, fleet: str = "default") -> EndpointQuestions:
    return EndpointQuestions(fleet, token, None)


async def test_the_owner_tells_of_every_endpoint(running: Running) -> None:
    """Ready ones with their metrics and their age, then those that are not ready."""
    (group,) = running.worker.holdings
    (state,) = group.states[POOL].endpoints()
    now = asyncio.get_running_loop().time()
    state.scraped(waiting=2.0, running=5.0, kv=0.25, at=now - 1.5, inflight=0)
    told = await questions().ask(POOL, placed("worker-0"), [status_of(running)])
    assert (told.worker, told.hold, told.total, told.ready) == ("worker-0", Hold.OWNER, 3, 1)
    ready, early, late = told.endpoints
    assert ready.age_ms is not None
    assert 1500 <= ready.age_ms < 60_000
    assert replace_age(ready) == EndpointRow(
        "pool-a-0", "10.0.0.1:8000", True, running=5.0, waiting=2.0, kv=0.25
    )
    assert early == EndpointRow("early", "", False)
    assert late == EndpointRow("late", "10.0.0.2:8000", False)


def replace_age(row: EndpointRow) -> EndpointRow:
    return EndpointRow(
        row.pod, row.address, row.ready, row.running, row.waiting, row.kv, None, row.inflight
    )


async def test_an_answer_is_bounded(tmp_path: Path) -> None:
    """A pool of 1,003 pods: 1,000 rows, and the true number."""
    write_pool(tmp_path, "pool-a", "10.0.0.1")
    labels = {"app": "pool-a"}
    pods = [
        manifest_texts.pod(f"p{n}", labels=labels, ip=f"10.1.{n // 250}.{n % 250 + 1}")
        for n in range(MAX_ENDPOINTS + 2)
    ]
    (tmp_path / "more.yaml").write_text(manifest_texts.text(*pods))
    async with running_worker(tmp_path) as worker:
        leader = TestLeader(worker.worker.addresses.internal, 1)
        await leader.connect()
        await leader.say(Assign(worker.share(1, pool_a=Hold.OWNER)))
        reports = worker.worker.holdings.reports
        await until(lambda: any(report.synced for report in reports()), "its pods")
        told = await questions().ask(POOL, placed("worker-0"), [status_of(worker)])
        assert (len(told.endpoints), told.total) == (MAX_ENDPOINTS, MAX_ENDPOINTS + 3)
        await leader.close()


async def test_people_who_look_at_one_pool_share_an_answer(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it is under way, and for a moment afterwards; who is one too many is turned away."""
    asked = questions()
    where = (POOL, placed("worker-0"), [status_of(running)])
    first, second = await asyncio.gather(asked.ask(*where), asked.ask(*where))
    assert first is second
    assert await asked.ask(*where) is first
    monkeypatch.setattr(endpoints_module, "FRESH_SECONDS", 0.0)
    assert await asked.ask(*where) is not first
    monkeypatch.setattr(endpoints_module, "AT_ONCE", 0)
    with pytest.raises(EndpointsUnknown, match="0 such questions are under way here"):
        await asked.ask(*where)


async def test_a_worker_answers_only_so_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever may read may make coordinators ask; picks come first."""
    monkeypatch.setattr(endpoints_module, "FRESH_SECONDS", 0.0)
    monkeypatch.setattr(service_module, "BOUNDS", replace(service_module.BOUNDS, a_second=0.5))
    write_pool(tmp_path, "pool-a", "10.0.0.1")
    async with running_worker(tmp_path) as worker:
        with pytest.raises(EndpointsUnknown, match="RESOURCE_EXHAUSTED: too many ask this worker"):
            await questions().ask(POOL, placed("worker-0"), [status_of(worker)])


async def test_what_cannot_be_told_says_why(running: Running) -> None:
    """Each of the ways in which there is no answer."""
    ask = questions().ask
    with pytest.raises(UnknownPool, match=r"no pool ns1/nobody's"):
        await ask(PoolRef("ns1", "nobody's"), placed("worker-0"), [])
    with pytest.raises(EndpointsUnknown, match=r"nobody owns ns1/pool-a"):
        await ask(POOL, placed(), [])
    with pytest.raises(EndpointsUnknown, match=r"worker-7, the owner, is not known to be alive"):
        await ask(POOL, placed("worker-7"), [status_of(running)])
    dead = replace(status_of(running), state=MemberState.DEAD)
    with pytest.raises(EndpointsUnknown, match="not known to be alive"):
        await ask(POOL, placed("worker-0"), [dead])
    with pytest.raises(EndpointsUnknown, match="UNAUTHENTICATED"):
        await questions("wrong").ask(POOL, placed("worker-0"), [status_of(running)])
    with pytest.raises(EndpointsUnknown, match="this worker is of fleet 'default'"):
        await questions(fleet="other").ask(POOL, placed("worker-0"), [status_of(running)])


async def test_a_worker_without_the_pool_says_so(tmp_path: Path) -> None:
    """The map is ahead of it."""
    write_pool(tmp_path, "pool-a", "10.0.0.1")
    async with running_worker(tmp_path) as worker:
        with pytest.raises(EndpointsUnknown, match="has not taken the pool up yet"):
            await questions().ask(POOL, placed("worker-0"), [status_of(worker)])


async def test_an_older_worker_cannot_tell(running: Running) -> None:
    """It has no such method, and that is said."""
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    with pytest.raises(EndpointsUnknown, match="its version does not tell of endpoints"):
        where = status_of(running, f"127.0.0.1:{port}")
        await questions().ask(POOL, placed("worker-0"), [where])
    await server.stop(None)


async def test_only_a_coordinator_of_the_fleet_is_told(tmp_path: Path) -> None:
    """By its certificate, where there are any: not another worker, and no stranger."""
    ca = new_ca()
    made = {role: certificates(tmp_path / role.value, ca, role) for role in Role}
    strange = certificates(tmp_path / "strange", new_ca(), Role.COORDINATOR)
    pools = tmp_path / "pools"
    pools.mkdir()
    write_pool(pools, "pool-a", "10.0.0.1")
    async with running_worker(pools, certificates=made[Role.WORKER]) as worker:

        async def told(own: Certificates) -> str:
            asked = EndpointQuestions("default", TOKEN, own)
            with pytest.raises(EndpointsUnknown) as raised:
                await asked.ask(POOL, placed("worker-0"), [status_of(worker)])
            return str(raised.value)

        assert "has not taken the pool up yet" in await told(made[Role.COORDINATOR])
        assert "PERMISSION_DENIED" in await told(made[Role.WORKER])
        assert "cannot be reached" in await told(strange)


async def test_an_owner_that_hangs_is_not_waited_for(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It accepts and says nothing; one that is gone refuses."""
    monkeypatch.setattr(endpoints_module, "ANSWER_SECONDS", 0.2)
    port = free_port()
    address = f"127.0.0.1:{port}"
    with (
        socket.create_server(("127.0.0.1", port)),
        pytest.raises(EndpointsUnknown, match=r"no answer within 0\.2 s"),
    ):
        await questions().ask(POOL, placed("worker-0"), [status_of(running, address)])
    with pytest.raises(EndpointsUnknown, match=r"cannot be reached|no answer"):
        await questions().ask(POOL, placed("worker-0"), [status_of(running, address)])


async def test_bad_questions_are_refused(running: Running) -> None:
    """Rubbish, and a newer format; the worker answers on."""
    address = running.worker.addresses.internal
    metadata = (("authorization", f"Bearer {TOKEN}"),)
    async with grpc.aio.insecure_channel(address) as channel:
        untyped: Any = channel
        call = untyped.unary_unary(ENDPOINTS.path)

        async def ask(data: bytes) -> grpc.StatusCode:
            try:
                await call(data, metadata=metadata, timeout=20)
            except grpc.aio.AioRpcError as error:
                return error.code()
            return grpc.StatusCode.OK

        good = ENDPOINTS.encode(AskEndpoints("default", *POOL))
        assert await ask(b"\xff\x00") is grpc.StatusCode.INVALID_ARGUMENT
        newer = ENDPOINTS.encode(AskEndpoints("default", *POOL, format=9))
        assert await ask(newer) is grpc.StatusCode.INVALID_ARGUMENT
        assert await ask(good) is grpc.StatusCode.OK
        answer = ENDPOINTS.answer(await call(good, metadata=metadata, timeout=20))
        assert answer.total == 3
