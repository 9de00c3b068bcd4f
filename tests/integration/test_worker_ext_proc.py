"""A worker on real sockets: gateways find the right pool, whatever their authority looks like."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from epp_worker.process import PATH
from fleet.model import Hold
from tests.http2_peer import Client
from tests.unit import extproc_messages
from tests.worker_inprocess import (
    DEADLINE,
    Gateway,
    Running,
    TestLeader,
    endpoint_in,
    running_worker,
    until,
    write_pool,
)

A, B = "10.0.0.1:8000", "10.0.0.2:8000"


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    """A worker over two pools, with nothing assigned."""
    write_pool(tmp_path, "pool-a", "10.0.0.1")
    write_pool(tmp_path, "pool-b", "10.0.0.2")
    async with running_worker(tmp_path) as worker:
        yield worker


@pytest.fixture
async def leader(running: Running) -> AsyncIterator[TestLeader]:
    """A leader of epoch 1 that is connected."""
    leader = TestLeader(running.worker.addresses.internal, 1)
    await leader.connect()
    yield leader
    await leader.close()


@pytest.mark.parametrize(
    "authority",
    [
        "outbound|9002||pool-a-epp.ns1.svc.cluster.local",
        "pool-a-epp.ns1.svc:9002",
        "pool-a-epp.ns1.svc.cluster.local:9002",
        "pool-a-epp.ns1:9002",
        "endpointpicker_pool-a_ns1_ext_proc",
    ],
)
async def test_a_stock_client_gets_its_pools_endpoint(
    running: Running, leader: TestLeader, authority: str
) -> None:
    """Istio, Envoy AI Gateway, kgateway, agentgateway and NGINX Gateway Fabric."""
    await leader.assign(running.share(1, pool_a=Hold.OWNER, pool_b=Hold.OWNER))
    gateway = Gateway(running.worker.addresses.ext_proc, authority)
    assert await gateway.pick() == A
    await gateway.close()
    assert running.worker.gate.counts.served == 0


async def test_two_pools_on_one_connection(running: Running, leader: TestLeader) -> None:
    """agentgateway shares a connection between pools: each stream gets its own pool's endpoint."""
    await leader.assign(running.share(1, pool_a=Hold.OWNER, pool_b=Hold.OWNER))
    host, _, port = running.worker.addresses.ext_proc.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    client = Client()
    streams = {}
    for name in ("pool-a", "pool-b", "pool-a"):
        headers = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", PATH),
            (":authority", f"{name}-epp.ns1.svc.cluster.local:9002"),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
        ]
        stream_id = client.open(headers)
        streams[stream_id] = A if name == "pool-a" else B
        body = extproc_messages.request_body(b'{"model": "m"}', end_of_stream=True)
        client.send(stream_id, extproc_messages.request_headers(), body, end=True)
    writer.write(client.out())
    async with asyncio.timeout(DEADLINE):
        while any(
            stream_id not in client.answers or client.answers[stream_id].status is None
            for stream_id in streams
        ):
            client.receive(await reader.read(65536))
            writer.write(client.out())
    picked = {
        stream_id: endpoint_in(client.answers[stream_id].messages[0]) for stream_id in streams
    }
    assert picked == streams
    assert running.worker.counters.connections_total == 1
    writer.close()
    await writer.wait_closed()


async def test_a_stream_waits_for_the_assignment_that_is_on_its_way(
    running: Running, leader: TestLeader
) -> None:
    """Held, then answered; the client sees nothing but a short delay."""
    gateway = Gateway(running.worker.addresses.ext_proc, "pool-a-epp.ns1.svc:9002")
    waiting = asyncio.create_task(gateway.pick())
    await until(lambda: len(running.worker.gate) == 1, "the stream waits")
    await leader.assign(running.share(1, pool_a=Hold.OWNER))
    assert await waiting == A
    assert running.worker.gate.counts.held == 1
    await gateway.close()


async def test_an_authority_that_names_nothing_is_unavailable(running: Running) -> None:
    """At once, with the text received."""
    gateway = Gateway(running.worker.addresses.ext_proc, "10.9.9.9:9002")
    call = gateway.stream()
    async with asyncio.timeout(DEADLINE):
        assert await call.code() is grpc.StatusCode.UNAVAILABLE
        assert "10.9.9.9" in await call.details()
    await gateway.close()


async def test_a_new_pod_is_picked_without_any_coordinator(
    running: Running, leader: TestLeader, tmp_path: Path
) -> None:
    """The manifest changes, the next pick follows; no leader is connected any more."""
    await leader.assign(running.share(1, pool_a=Hold.OWNER))
    await leader.close()
    write_pool(tmp_path, "pool-a", "10.0.0.77")
    gateway = Gateway(running.worker.addresses.ext_proc, "pool-a-epp.ns1.svc:9002")
    async with asyncio.timeout(DEADLINE):
        while await gateway.pick() != "10.0.0.77:8000":
            await asyncio.sleep(0.02)
    await gateway.close()


async def test_in_flight_requests_are_counted_and_released(
    running: Running, leader: TestLeader
) -> None:
    """Up with the pick, down when the gateway resets the stream."""
    await leader.assign(running.share(1, pool_a=Hold.OWNER))
    gateway = Gateway(running.worker.addresses.ext_proc, "pool-a-epp.ns1.svc:9002")
    call = gateway.stream()
    await call.write(extproc_messages.request_headers(end_of_stream=True))
    async with asyncio.timeout(DEADLINE):
        assert endpoint_in(await call.read()) == A

    def inflight() -> int:
        return sum(sum(one.values()) for one in running.worker.figures().inflight.values())

    assert inflight() == 1
    call.cancel()
    await until(lambda: inflight() == 0, "the pick is released")
    await gateway.close()


async def test_a_lost_groups_connection_is_sent_away_and_loses_nothing(
    running: Running, leader: TestLeader
) -> None:
    """After the propagation time; picks go on over the connection that replaces it."""
    await leader.assign(running.share(1, pool_a=Hold.OWNER))
    gateway = Gateway(running.worker.addresses.ext_proc, "pool-a-epp.ns1.svc:9002")
    assert await gateway.pick() == A
    await leader.assign(running.share(2, pool_a=Hold.DRAINING))
    counters = running.worker.counters
    async with asyncio.timeout(DEADLINE):
        while counters.connections_total == 1:
            assert await gateway.pick() == A
            await asyncio.sleep(0.02)
    assert running.worker.gate.counts.served > 1
    await gateway.close()
