"""Whoever fills the health port keeps no probe from its answer: a kubelet restarts a worker whose
probes fail (llm-d and vLLM routers: vllm-project/production-stack#1016)."""

import asyncio
from pathlib import Path

import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from epp_worker.health import LIVENESS
from epp_worker.listeners import HEALTH_CONNECTIONS
from tests.attack_scene import attacked_worker
from tests.attackers import HELLO, Attacker, data, literals
from tests.http2_peer import grpc as framed
from tests.http2_peer import raw, request_headers


async def probe(address: str) -> int:
    """As a kubelet asks: a connection, a Check, and gone."""
    async with grpc.aio.insecure_channel(
        address, options=[("grpc.use_local_subchannel_pool", 1)]
    ) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        request = health_pb2.HealthCheckRequest(service=LIVENESS)
        answer = await stub.Check(request, timeout=3)
    return int(answer.status)


async def test_a_full_health_port_answers_probes(tmp_path: Path) -> None:
    """As many connections as there may be, each with a Watch that never ends: the oldest give way,
    one for each probe, and the gateways' port notices nothing."""
    path = "/grpc.health.v1.Health/Watch"
    watch = raw(1, 4, 1, literals(request_headers(path=path))) + data(1, framed(b""))
    async with attacked_worker(tmp_path) as scene:
        address = scene.running.worker.addresses.health
        held = []
        for _ in range(HEALTH_CONNECTIONS):
            held.append(await Attacker.connect(address))
            await held[-1].send(HELLO + watch)
        async with asyncio.timeout(10):
            for attacker in held:
                await attacker.reader.readexactly(9)  # it was accepted, and is served
        for _ in range(3):
            assert await probe(address) == health_pb2.HealthCheckResponse.SERVING
        assert held[0].reader.at_eof() or await held[0].goaway() in (0, None)
        assert await scene.picks(10)
        for attacker in held:
            attacker.close()
