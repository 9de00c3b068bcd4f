"""What the conformance tests of the Gateway API inference extension want of an endpoint picker.

The worker has the configuration that such a run gives it, and a stock gRPC client plays the
gateway. Namespaces, ports and headers are those of the tests.
"""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingResponse

from epp_worker.scheduling.plugins.verifiers import SERVED_HEADER, UNTOLD
from fleet.model import Hold
from fleet.settings.picking import PickingSettings
from tests import manifest_texts
from tests.unit import extproc_messages as make
from tests.worker_inprocess import DEADLINE, Gateway, Running, TestLeader, running_worker

CONFIG = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
  - type: header-based-testing-filter
  - type: random-picker
  - type: destination-endpoint-served-verifier
"""
SELECTION = "test-epp-endpoint-selection"
PICK = "x-gateway-destination-endpoint"
PRIMARY = ("10.1.0.1", "10.1.0.2", "10.1.0.3")
SECONDARY = ("10.2.0.1", "10.2.0.2", "10.2.0.3")
POOLS = {"primary": PRIMARY, "secondary": SECONDARY}


def pick_of(response: ProcessingResponse) -> str | int:
    """The endpoint that an answer names, or the status of a refusal."""
    if response.HasField("immediate_response"):
        return int(response.immediate_response.status.code)
    headers = response.request_headers.response.header_mutation.set_headers
    return str(next(h.header.raw_value.decode() for h in headers if h.header.key == PICK))


class Route:
    """A gateway's way to one pool."""

    def __init__(self, running: Running, pool: str) -> None:
        self._gateway = Gateway(running.worker.addresses.ext_proc, f"{pool}-epp.ns1.svc:9002")

    async def get(self, headers: Mapping[str, str] | None = None) -> str | int:
        """A GET without a body; what was picked, or the status of the refusal."""
        call = self._gateway.stream()
        given = {":method": "GET", ":path": "/primary", **(headers or {})}
        await call.write(make.request_headers(given, end_of_stream=True))
        return await self._answer(call)

    async def post(self, selection: str, subset: Sequence[str] | None = None) -> str | int:
        """A POST as the tests send it; what was picked, or the status of the refusal."""
        call = self._gateway.stream()
        await self._send(call, selection, subset)
        return await self._answer(call)

    async def served(self, selection: str, served: str | None) -> str:
        """A whole exchange, answered by the endpoint that the gateway says; the test's header."""
        call = self._gateway.stream()
        await self._send(call, selection, None)
        async with asyncio.timeout(DEADLINE):
            await call.read()
            await call.read()  # the body goes on
            await call.write(make.response_headers(end_of_stream=True, served=served))
            answer = ProcessingResponse.FromString(await call.read())
        call.cancel()
        headers = answer.response_headers.response.header_mutation.set_headers
        (value,) = [h.header.raw_value.decode() for h in headers if h.header.key == SERVED_HEADER]
        return str(value)

    async def close(self) -> None:
        await self._gateway.close()

    @staticmethod
    async def _send(call: Any, selection: str, subset: Sequence[str] | None) -> None:
        headers = {":method": "POST", ":path": "/", "content-type": "application/json"}
        if selection:
            headers[SELECTION] = selection
        await call.write(make.request_headers(headers, subset=subset))
        body = json.dumps({"model": "conformance-fake-model", "prompt": "Write as if you were"})
        await call.write(make.request_body(body.encode(), end_of_stream=True))

    @staticmethod
    async def _answer(call: Any) -> str | int:
        async with asyncio.timeout(DEADLINE):
            answer = pick_of(ProcessingResponse.FromString(await call.read()))
        call.cancel()
        return answer


@asynccontextmanager
async def routes(
    folder: Path, *, ports: tuple[int, ...] = (3000,), config: str = CONFIG
) -> AsyncIterator[dict[str, Route]]:
    """The base pools with three pods each, owned by one worker."""
    manifests, configs = folder / "manifests", folder / "configs"
    manifests.mkdir()
    configs.mkdir()
    if config:
        (configs / "default.yaml").write_text(config)
    for name, ips in POOLS.items():
        objects = [manifest_texts.pool(name, ports=ports)]
        for number, ip in enumerate(ips):
            objects.append(manifest_texts.pod(f"{name}-{number}", labels={"app": name}, ip=ip))
        (manifests / f"{name}.yaml").write_text(manifest_texts.text(*objects))
    picking = PickingSettings(configs_folder=str(configs), poll_seconds=0.05)
    async with running_worker(manifests, picking=picking) as running:
        leader = TestLeader(running.worker.addresses.internal, 1)
        await leader.connect()
        await leader.assign(running.share(1, primary=Hold.OWNER, secondary=Hold.OWNER))
        found = {name: Route(running, name) for name in POOLS}
        yield found
        for route in found.values():
            await route.close()
        await leader.close()


@pytest.mark.parametrize("config", [CONFIG, ""])
async def test_http_route_multiple_rules_different_pools(tmp_path: Path, config: str) -> None:
    """GETs with neither body nor test header go to any pod of the pool of their rule."""
    async with routes(tmp_path, config=config) as to:
        for name, ips in POOLS.items():
            own = {f"{ip}:3000" for ip in ips}
            assert {await to[name].get() for _ in range(20)} <= own


async def test_gateway_following_epp_routing(tmp_path: Path) -> None:
    """Listed pods alone: one, or any of several, 100 requests 10 at a time; no header, nobody."""
    async with routes(tmp_path) as to:
        assert await to["primary"].post(PRIMARY[1]) == f"{PRIMARY[1]}:3000"
        listed = ",".join(PRIMARY[1:])
        picked: set[str | int] = set()
        for _ in range(10):
            picked.update(await asyncio.gather(*(to["primary"].post(listed) for _ in range(10))))
        assert picked == {f"{ip}:3000" for ip in PRIMARY[1:]}
        assert await to["primary"].post("") == 429


async def test_gateway_following_epp_routing_with_data_parallelism(tmp_path: Path) -> None:
    """A bare IP is one of its ranks, with a port exactly that one; several of one IP too."""
    ports = (3000, 3002, 3004)
    async with routes(tmp_path, ports=ports) as to:
        route, ip = to["primary"], PRIMARY[0]
        assert await route.post(ip) in {f"{ip}:{port}" for port in ports}
        for port in ports:
            assert await route.post(f"{ip}:{port}") == f"{ip}:{port}"
        listed = [f"{ip}:3002", f"{ip}:3004", f"{PRIMARY[1]}:3000"]
        assert {await route.post(",".join(listed)) for _ in range(20)} <= set(listed)
        assert await route.post(f"{ip}:3001") == 429


async def test_gateway_weighted_across_two_inference_pools(tmp_path: Path) -> None:
    """The header lists the pods of both pools; each pool takes its own. What lists foreign ones
    alone is refused, not sent to somebody else."""
    union = ",".join(PRIMARY + SECONDARY)
    rng = random.Random(7)
    async with routes(tmp_path) as to:
        for _ in range(60):
            name = rng.choices(("primary", "secondary"), (70, 30))[0]
            assert await to[name].post(union) in {f"{ip}:3000" for ip in POOLS[name]}
        assert await to["secondary"].post(PRIMARY[0]) == 429


async def test_a_subset_hint_across_two_pools(tmp_path: Path) -> None:
    """The same by the protocol's own hint: foreign pods are dropped, and when none is left nobody
    is picked."""
    union = [f"{ip}:3000" for ip in PRIMARY + SECONDARY]
    async with routes(tmp_path, config="") as to:
        for name, ips in POOLS.items():
            own = {f"{ip}:3000" for ip in ips}
            assert {await to[name].post("", union) for _ in range(10)} <= own
        assert await to["secondary"].post("", union[: len(PRIMARY)]) == 503


async def test_gateway_destination_endpoint_served(tmp_path: Path) -> None:
    """The response tells who served it by the gateway's word, and that it gave none."""
    async with routes(tmp_path) as to:
        for ip in PRIMARY:
            assert await to["primary"].served(ip, f"{ip}:3000") == f"{ip}:3000"
        other = f"{PRIMARY[2]}:3000"
        assert await to["primary"].served(PRIMARY[0], other) == other
        assert await to["primary"].served(PRIMARY[0], None) == UNTOLD
        assert await to["primary"].served(PRIMARY[0], "x\r\ny") == UNTOLD
