"""Ports beside ext_proc's: through them nobody takes the gateways' files, or a probe's answer."""

import asyncio
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2

from epp_worker import health
from epp_worker.listeners import gateway_connections


class Aborted(Exception):
    """A call was refused."""


class FakeContext:
    """Keeps what a watcher is told."""

    def __init__(self) -> None:
        self.told: list[int] = []

    async def write(self, answer: Any) -> None:
        """Note it."""
        self.told.append(answer.status)

    async def abort(self, code: grpc.StatusCode, _: str) -> None:
        """End the call."""
        raise Aborted(code)


async def test_watchers_are_bounded_and_never_keep_a_check_from_its_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A kubelet that gets no answer restarts the worker; 1,024 watchers were enough for that."""
    monkeypatch.setattr(health, "MAX_WATCHES", 2)
    service = health.HealthService()
    service.publish({"": True})
    request = health_pb2.HealthCheckRequest(service="")
    watching = [asyncio.create_task(service.Watch(request, FakeContext())) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(Aborted, match="RESOURCE_EXHAUSTED"):
        await service.Watch(request, FakeContext())
    answer = await service.Check(request, FakeContext())
    assert answer.status == health_pb2.HealthCheckResponse.SERVING
    watching[0].cancel()
    await asyncio.wait(watching[:1])
    late = FakeContext()
    watching.append(asyncio.create_task(service.Watch(request, late)))
    await asyncio.sleep(0)
    assert late.told == [health_pb2.HealthCheckResponse.SERVING]
    for watch in watching:
        watch.cancel()
    await asyncio.wait(watching)
    assert health.MAX_CALLS > 1024


@pytest.mark.parametrize(
    ("files", "connections"), [(256, 48), (1024, 624), (20_000, 18_656), (1_048_576, 1_047_232)]
)
def test_every_port_has_files_of_its_own(files: int, connections: int) -> None:
    """192 for ourselves; of the rest at most 1,152, and at most a quarter, for the other ports."""
    assert gateway_connections(files) == connections
