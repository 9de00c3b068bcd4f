"""A fleet whose first owners are asked before they know anything: nothing is refused for that."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from fleet.control.messages import Assign
from fleet.model import Hold
from fleet.settings.model import WorkerSettings
from tests import manifest_texts
from tests.fake_api_faults import Hold as HeldRequest
from tests.fake_api_server import FakeApiServer
from tests.kube_sources import running_source
from tests.unit import extproc_messages as make
from tests.worker_inprocess import Gateway, Running, TestLeader, running_worker, until

POOLS = 20
HOLD_SECONDS = 0.2
OWN = WorkerSettings(
    host="127.0.0.1",
    ext_proc_port=0,
    health_port=0,
    internal_port=0,
    http_port=0,
    stray_hold_seconds=HOLD_SECONDS,
)


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    """Twenty pools of one pod each, in one namespace whose pods are not listed until told."""
    async with FakeApiServer.running() as running:
        for number in range(POOLS):
            running.put(manifest_texts.pool(f"p{number}"))
            labels = {"app": f"p{number}"}
            running.put(manifest_texts.pod(f"p{number}-0", labels=labels, ip=f"10.0.0.{number}"))
        yield running


async def first_owner(running: Running) -> TestLeader:
    """Assign all pools, and return once the worker has taken that up."""
    leader = TestLeader(running.worker.addresses.internal, 1)
    await leader.connect()
    owned: dict[str, Hold] = {f"p{number}": Hold.OWNER for number in range(POOLS)}
    share = running.share(1, epoch=1, **owned)
    await leader.say(Assign(share))
    await leader.report_when(lambda report: len(report.holds) == POOLS)
    return leader


async def test_nothing_is_refused_while_the_pods_are_being_listed(
    server: FakeApiServer, tmp_path: Path
) -> None:
    """A first owner is asked for all its pools at once; the list takes many times longer than a
    stray may wait. Each request is answered when it comes (fluent#5)."""
    slow = HeldRequest()
    server.fail("/namespaces/ns1/pods", slow, watch=False)
    async with (
        running_source(server.kubeconfig(tmp_path)) as kube,
        running_worker(tmp_path, worker_settings=OWN, source=kube.source) as running,
    ):
        leader = await first_owner(running)
        gateways = [
            Gateway(running.worker.addresses.ext_proc, f"p{number}-epp.ns1.svc:9002")
            for number in range(POOLS)
        ]
        picks = [asyncio.create_task(gateway.pick()) for gateway in gateways]
        gate = running.worker.gate
        await until(lambda: len(gate) == POOLS, "all wait")
        await asyncio.sleep(4 * HOLD_SECONDS)
        assert (len(gate), gate.counts.failed) == (POOLS, 0)
        slow.release()
        assert await asyncio.gather(*picks) == [f"10.0.0.{number}:8000" for number in range(POOLS)]
        assert (gate.counts.held, gate.counts.failed) == (POOLS, 0)
        for gateway in gateways:
            await gateway.close()
        await leader.close()


async def test_a_list_that_never_comes_is_not_waited_for_without_end(
    server: FakeApiServer, tmp_path: Path
) -> None:
    """The longer limit holds; then the gateway's failure mode applies."""
    never = HeldRequest()
    server.fail("/namespaces/ns1/pods", never, watch=False)
    own = replace(OWN, opening_hold_seconds=2 * HOLD_SECONDS)
    async with (
        running_source(server.kubeconfig(tmp_path)) as kube,
        running_worker(tmp_path, worker_settings=own, source=kube.source) as running,
    ):
        leader = await first_owner(running)
        gateway = Gateway(running.worker.addresses.ext_proc, "p0-epp.ns1.svc:9002")
        call = gateway.stream()
        await call.write(make.request_headers())
        async with asyncio.timeout(20):
            assert await call.code() is grpc.StatusCode.UNAVAILABLE
        assert "not listed in time" in await call.details()
        await gateway.close()
        await leader.close()
        never.release()
