"""Health of a worker process whose API server takes its time: what a kubelet is told, what gateways
get. The API server is a fake one that a test holds up; the leader is played by the test.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fleet.control.messages import Assign
from fleet.model import EpochVersion, Hold, PoolId, PoolRef, Share, ShareEntry
from tests import manifest_texts
from tests.fake_api_server import FakeApiServer
from tests.fake_api_server import Hold as HeldUp
from tests.worker_inprocess import DEADLINE, Gateway, TestLeader, group_of, picked_on
from tests.worker_process import WorkerProcess

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
SERVICE_UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
EXT_PROC = "envoy.service.ext_proc.v3.ExternalProcessor"
POOLS, PODS = "/v1/inferencepools$", "/api/v1/namespaces/ns1/pods$"


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    """An API server without any object."""
    async with FakeApiServer.running() as running:
        yield running


@asynccontextmanager
async def started(server: FakeApiServer, folder: Path) -> AsyncIterator[WorkerProcess]:
    """A worker that reads from it; returns before it is up."""
    kubeconfig = str(server.kubeconfig(folder))
    settings = {"source": {"manifests": ""}, "kubernetes": {"kubeconfig": kubeconfig}}
    with WorkerProcess(folder, settings=settings) as worker:
        yield worker


@asynccontextmanager
async def health(worker: WorkerProcess) -> AsyncIterator[Any]:
    """A client of its health port, once that answers."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    channel = grpc.aio.insecure_channel(worker.address("health"), options=options)
    try:
        async with asyncio.timeout(20):
            await channel.channel_ready()
        yield health_pb2_grpc.HealthStub(channel)
    finally:
        await channel.close(None)


async def check(stub: Any, name: str) -> int:
    answer = await stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=DEADLINE)
    return int(answer.status)


async def becomes(watch: Any, status: int) -> None:
    """The next change that a watch tells is this one."""
    async with asyncio.timeout(20):
        assert (await watch.read()).status == status


async def metric(worker: WorkerProcess, line: str) -> None:
    """Wait until its metrics say so."""
    async with asyncio.timeout(20):
        while line not in (await asyncio.to_thread(worker.get, "/metrics"))[1].splitlines():
            await asyncio.sleep(0.02)


def share(version: int, incarnation: str, *entries: ShareEntry) -> Share:
    return Share("default", "worker-0", incarnation, EpochVersion(1, version), entries)


async def test_a_worker_is_ready_when_it_has_listed_and_was_told_if_only_nothing(
    server: FakeApiServer, tmp_path: Path
) -> None:
    """Not before the pools are listed, however long that takes, nor before a leader spoke; it is
    alive all the time. A cluster without any pool, and a worker that is to hold nothing, are as
    good as others (llm-d/llm-d-router#764, open-telemetry/opentelemetry-operator#2903).
    """
    held = server.fail(POOLS, HeldUp(), watch=False)
    async with started(server, tmp_path) as worker, health(worker) as stub:
        watch = stub.Watch(health_pb2.HealthCheckRequest(service="readiness"))
        await becomes(watch, NOT_SERVING)
        await server.until(lambda: held.hits > 0)
        assert await check(stub, "liveness") == SERVING
        assert await check(stub, "") == await check(stub, "readiness") == NOT_SERVING
        assert await asyncio.to_thread(worker.get, "/healthz") == (200, "ok\n")
        assert (await asyncio.to_thread(worker.get, "/readyz"))[0] == 503
        held.remove()
        await asyncio.to_thread(worker.wait_up)
        assert await check(stub, "readiness") == NOT_SERVING
        leader = TestLeader(worker.address("internal"), 1)
        hello = await leader.connect()
        await leader.assign(share(1, hello.member.incarnation))
        await becomes(watch, SERVING)
        watch.cancel()
        await leader.close()


async def test_a_pool_is_served_only_when_its_pods_are_listed(
    server: FakeApiServer, tmp_path: Path
) -> None:
    """Assigned while the list of its pods hangs: it is not reported as open, its health says so,
    and a request that comes already waits for the list; it is not refused for want of endpoints
    (llm-d/llm-d-router#764)."""
    uid = server.put(manifest_texts.pool())["metadata"]["uid"]
    server.put(manifest_texts.pod("a-0", ip="10.0.0.1"))
    held = server.fail(PODS, HeldUp(), watch=False)
    async with started(server, tmp_path) as worker, health(worker) as stub:
        await asyncio.to_thread(worker.wait_up)
        watch = stub.Watch(health_pb2.HealthCheckRequest(service="ns1/pool-a"))
        await becomes(watch, SERVICE_UNKNOWN)
        leader = TestLeader(worker.address("internal"), 1)
        hello = await leader.connect()
        pools = (PoolId(PoolRef("ns1", "pool-a"), uid),)
        owned = ShareEntry(group_of("pool-a"), Hold.OWNER, pools, "worker-0")
        await leader.say(Assign(share(1, hello.member.incarnation, owned)))
        report = await leader.report_when(lambda report: bool(report.holds))
        assert [each.synced for each in report.holds] == [False]
        await becomes(watch, NOT_SERVING)
        gateway = Gateway(worker.address("ext_proc"), "pool-a-epp.ns1.svc:9002")
        asked = asyncio.create_task(picked_on(gateway.stream()))
        await server.until(lambda: held.hits > 0)
        await metric(worker, "epp_fleet_strays_waiting 1.0")
        held.remove()
        assert await asked == "10.0.0.1:8000"
        await becomes(watch, SERVING)
        watch.cancel()
        await gateway.close()
        await leader.close()


async def test_every_name_that_gateways_and_kubelets_ask_for_is_known(
    server: FakeApiServer, tmp_path: Path
) -> None:
    """Check and Watch alike; a name that nobody knows is unknown, which takes no backend away
    (kubernetes-sigs/gateway-api-inference-extension#786)."""
    names = ("", EXT_PROC, "inference-extension", "liveness", "readiness")
    async with started(server, tmp_path) as worker, health(worker) as stub:
        watches = [stub.Watch(health_pb2.HealthCheckRequest(service=name)) for name in names]
        await asyncio.to_thread(worker.wait_up)
        leader = TestLeader(worker.address("internal"), 1)
        await leader.assign(share(1, (await leader.connect()).member.incarnation))
        for name, watch in zip(names, watches, strict=True):
            async with asyncio.timeout(20):
                while (await watch.read()).status != SERVING:
                    continue
            assert await check(stub, name) == SERVING
        unknown = stub.Watch(health_pb2.HealthCheckRequest(service="nonsense"))
        await becomes(unknown, SERVICE_UNKNOWN)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await check(stub, "nonsense")
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND
        for each in (*watches, unknown):
            each.cancel()
        await leader.close()
