"""A worker process under loads that killed others in the field: lag, leaks, and a roll-out."""

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fleet.model import EpochVersion, Hold, PoolId, PoolRef, Share, ShareEntry
from tests.unit import extproc_messages as make
from tests.worker_inprocess import (
    DEADLINE,
    Gateway,
    TestLeader,
    endpoint_in,
    group_of,
    picked_on,
    write_pool,
)
from tests.worker_process import WorkerProcess

UID = "uid-of-pool-a"
ADDRESS = "10.0.0.1:8000"
MIB = 1024 * 1024
QUICK: dict[str, dict[str, object]] = {
    "worker": {"quiet_seconds": 1.0, "propagation_seconds": 0.2, "stream_drain_seconds": 60},
    # However slow the machine, the bodies that are sent at once are held.
    "bounds": {"max_buffered_bytes_per_pool": 250 * MIB},
}


def share(version: int, hold: Hold, incarnation: str) -> Share:
    pools = (PoolId(PoolRef("ns1", "pool-a"), UID),)
    entry = ShareEntry(group_of("pool-a"), hold, pools, "worker-0")
    return Share("default", "worker-0", incarnation, EpochVersion(1, version), (entry,))


class Owner:
    """A worker process that owns pool-a; there is no store at all."""

    def __init__(self, worker: WorkerProcess, leader: TestLeader, incarnation: str) -> None:
        self.worker = worker
        self.leader = leader
        self.incarnation = incarnation
        self.gateway = Gateway(worker.address("ext_proc"), "pool-a-epp.ns1.svc:9002")

    async def figure(self, name: str) -> float:
        """One sample of its metrics."""
        _, page = await asyncio.to_thread(self.worker.get, "/metrics")
        (line,) = [line for line in page.splitlines() if line.startswith(f"{name} ")]
        return float(line.rpartition(" ")[2])

    def resident(self) -> float:
        """MiB of memory."""
        fields = Path(f"/proc/{self.worker.process.pid}/statm").read_text().split()
        return int(fields[1]) * 4096 / MIB


@pytest.fixture
async def owner(tmp_path: Path) -> AsyncIterator[Owner]:
    """See `Owner`."""
    with WorkerProcess(tmp_path, settings=QUICK) as worker:
        write_pool(worker.manifests, "pool-a", "10.0.0.1", uid=UID)
        await asyncio.to_thread(worker.wait_up)
        leader = TestLeader(worker.address("internal"), 1)
        hello = await leader.connect()
        await leader.assign(share(1, Hold.OWNER, hello.member.incarnation))
        owner = Owner(worker, leader, hello.member.incarnation)
        yield owner
        await owner.gateway.close()
        await leader.close()


async def test_probes_are_answered_while_large_bodies_are_parsed(owner: Owner) -> None:
    """20 bodies of 10 MiB at once, of the kinds that are slow to read: long strings, a million
    small values, deep nesting, and no JSON at all. Health answers all the while, the loop never
    stands for long, and each stream has its answer (production-stack#1016, sglang#30770,
    litellm#31497)."""
    size = 10 * MIB
    bodies = [
        b'{"model":"m","prompt":"%s"}' % (b"x" * size),
        b'{"model":"m","prompt":[%s1]}' % (b"123456," * (size // 7)),
        b'{"model":"m","x":%s%s}' % (b'{"a":[' * 400, b"]}" * 400) + b" " * size,
        b"[1,2," * (size // 5),
        b'{"prompt":"' + b"\\u4f60" * (size // 6) + b'","model":"m"}',
    ]
    channel = grpc.aio.insecure_channel(owner.worker.address("health"))
    stub = health_pb2_grpc.HealthStub(channel)
    slowest = 0.0
    answered = 0

    async def probe() -> None:
        nonlocal slowest, answered
        while True:
            began = time.monotonic()
            await stub.Check(health_pb2.HealthCheckRequest(service="liveness"), timeout=10)
            slowest = max(slowest, time.monotonic() - began)
            answered += 1
            await asyncio.sleep(0.05)

    async def request(number: int, body: bytes) -> str:
        call = gateways[number % 5].stream()
        await call.write(make.request_headers())
        # Who is refused before all is sent has the answer only if a read was waiting for it: grpcio
        # ends the call by itself when a write comes too late.
        answer = asyncio.create_task(call.read())
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            for start in range(0, len(body), 64 * 1024):
                piece = body[start : start + 64 * 1024]
                end = start + len(piece) == len(body)
                await call.write(make.request_body(piece, end_of_stream=end))
        async with asyncio.timeout(60):
            data = await answer
        call.cancel()
        return endpoint_in(data) if data[:1] == b"\x0a" else "refused"

    probing = asyncio.create_task(probe())
    gateways = [
        Gateway(owner.worker.address("ext_proc"), "pool-a-epp.ns1.svc:9002") for _ in range(5)
    ]
    answers = await asyncio.gather(*(request(*each) for each in enumerate(bodies * 4)))
    for gateway in gateways:
        await gateway.close()
    probing.cancel()
    assert answers == [ADDRESS, ADDRESS, ADDRESS, "refused", ADDRESS] * 4
    assert answered >= 5
    assert slowest < 3.0
    assert await owner.figure("epp_fleet_loop_lag_seconds") < 1.0
    await channel.close(None)


async def test_cancelled_streams_leave_no_memory_behind(owner: Owner) -> None:
    """9,000 streams, reset after the headers, after the pick or in the middle of a response: memory
    stands still after the first 3,000 (grpc#43360, grpc#25449, grpc#38499)."""

    async def one(kind: int) -> None:
        call = owner.gateway.stream()
        if kind == 0:
            await call.write(make.request_headers())
        else:
            assert await picked_on(call) == ADDRESS
        if kind == 2:
            await call.write(make.response_headers({":status": "200"}))
            await call.write(make.response_body(b"data: {}\n\n"))
        call.cancel()

    async def batch() -> float:
        for _ in range(30):
            await asyncio.gather(*(one(n % 3) for n in range(100)))
        async with asyncio.timeout(DEADLINE):
            while await owner.figure("epp_fleet_streams_open"):
                await asyncio.sleep(0.02)
        return owner.resident()

    await batch()
    before = await batch()
    assert await batch() - before < 3.0


async def test_a_roll_out_ends_no_request(owner: Owner) -> None:
    """SIGTERM with 40 streams in the middle of their answers while new requests keep coming: not
    ready but alive, every new one picked until it leaves, every open one ended well, exit 0
    (inference-extension#548, llm-d-router#1885, grpc#37239)."""
    calls: list[Any] = []
    for _ in range(40):
        call = owner.gateway.stream()
        assert await picked_on(call) == ADDRESS
        await call.write(make.response_headers({":status": "200"}))
        calls.append(call)
    owner.worker.signal(signal.SIGTERM)
    await owner.leader.report_when(lambda report: report.draining)
    for _ in range(20):
        assert await owner.gateway.pick() == ADDRESS
    assert owner.worker.get("/readyz")[0] == 503
    assert owner.worker.get("/healthz")[0] == 200
    await owner.leader.assign(share(2, Hold.DRAINING, owner.incarnation))
    for _ in range(20):
        assert await owner.gateway.pick() == ADDRESS
    for call in calls:
        await call.write(make.response_body(b"data: [DONE]\n\n", end_of_stream=True))
    for call in calls:
        await call.done_writing()
        async with asyncio.timeout(DEADLINE):
            while isinstance(await call.read(), bytes):
                continue
            assert await call.code() is grpc.StatusCode.OK
    assert await asyncio.to_thread(owner.worker.wait) == 0
    assert "Traceback" not in owner.worker.log()
    assert "was destroyed" not in owner.worker.log()
