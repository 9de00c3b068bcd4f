"""Local mode's configuration against a real Envoy and a small ext_proc server."""

import asyncio
import json
import os
import random
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest_asyncio
from envoy.service.ext_proc.v3.external_processor_pb2 import (
    ProcessingRequest,
    ProcessingResponse,
)

from fleet.clock import SystemClock
from fleet.local.binaries import envoy_binary
from fleet.local.children import Children
from fleet.local.envoy_admin import AdminUnavailable, EnvoyAdmin
from fleet.local.envoy_config import eds_file_name, picker_of, pods_file_name
from fleet.local.envoy_files import EnvoyFiles, Folders
from fleet.local.gateway import GatewayFollower, envoy_spec
from fleet.local.model_config import ModelServer, ModelServersConfig
from fleet.local.model_engine import Speed
from fleet.local.model_server import ModelServers
from fleet.local.ports import Ports
from fleet.model import FailureMode, GroupKey, Pod, Pool, PoolRef

DEADLINE = 20.0
KEY = "x-gateway-destination-endpoint"


@dataclass
class _Picker:
    """Sends every request to `target`; remembers authorities and the gateway's body modes."""

    target: str = ""
    authorities: list[str] = field(default_factory=list)
    served: list[str] = field(default_factory=list)
    phases: set[str] = field(default_factory=set)

    def process(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:
        self.authorities.append(context._rpc_event.call_details.host.decode())
        picked = False
        for request in requests:
            phase = request.WhichOneof("request")
            self.phases.add(phase)
            if phase == "request_headers" and request.request_headers.end_of_stream:
                yield self._pick()
            elif phase == "request_body":
                if not picked:  # the reply to the headers must come before any of the body
                    picked = True
                    yield self._pick()
                yield self._echo("request_body", request.request_body)
            elif phase == "response_headers":
                lb = request.metadata_context.filter_metadata["envoy.lb"]
                self.served.append(lb[f"{KEY}-served"])
                yield ProcessingResponse(response_headers={})
            elif phase == "response_body":
                yield self._echo("response_body", request.response_body)
            elif phase in ("request_trailers", "response_trailers"):
                yield ProcessingResponse(**{phase: {}})

    def _pick(self) -> Any:
        reply = ProcessingResponse()
        common = reply.request_headers.response
        common.clear_route_cache = True
        option = common.header_mutation.set_headers.add()
        option.header.key, option.header.raw_value = KEY, self.target.encode()
        reply.dynamic_metadata.update({"envoy.lb": {KEY: self.target}})
        return reply

    @staticmethod
    def _echo(kind: str, message: Any) -> Any:
        reply = ProcessingResponse()
        streamed = getattr(reply, kind).response.body_mutation.streamed_response
        streamed.body, streamed.end_of_stream = message.body, message.end_of_stream
        return reply


def _serve(picker: _Picker) -> tuple[grpc.Server, str]:
    handler = grpc.stream_stream_rpc_method_handler(
        picker.process,
        request_deserializer=ProcessingRequest.FromString,
        response_serializer=ProcessingResponse.SerializeToString,
    )
    server = grpc.server(ThreadPoolExecutor(8))
    service = "envoy.service.ext_proc.v3.ExternalProcessor"
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(service, {"Process": handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, f"127.0.0.1:{port}"


def _pool(name: str, port: int, failure_mode: FailureMode = FailureMode.CLOSE) -> Pool:
    group = GroupKey("shop", f"{name}-epp", 9002)
    ref = PoolRef("shop", name)
    return Pool(ref, f"uid-{name}", {"app": name}, (port,), group, failure_mode)


def _pod(pool: str, number: int, ip: str) -> Pod:
    name = f"{pool}-{number}"
    return Pod("shop", name, f"uid-{name}", {"app": pool}, ip, True)


def _two_styles() -> tuple[str, str]:
    """A pool whose picker is named as Istio does, and one as AI Gateway does."""
    names = [f"pool-{number}" for number in range(20)]
    groups = {name: GroupKey("shop", f"{name}-epp", 9002) for name in names}
    istio = [n for n in names if picker_of(PoolRef("shop", n), groups[n]).authority is None]
    return istio[0], next(name for name in names if name not in istio)


class _Gateway:
    """Envoy with files in `folder`, two pools of two pods, one picker for both."""

    def __init__(self, folder: Path, http: aiohttp.ClientSession, address: str) -> None:
        self.folders = Folders(folder)
        self.http = http
        self.base = f"http://{address}"
        self.picker = _Picker()
        self.server, self.picker_address = _serve(self.picker)
        self.pools: list[Pool] = []
        self.pods: list[Pod] = []
        self.follower: GatewayFollower

    def write_eds(self, group: GroupKey, *addresses: str) -> None:
        """As the leader does: whole, by rename, named `ns/svc:port`."""
        hosts = []
        for address in addresses:
            host, _, port = address.rpartition(":")
            where = {"socket_address": {"address": host, "port_value": int(port)}}
            hosts.append({"endpoint": {"address": where}})
        resource = {
            "@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            "cluster_name": str(group),
            "endpoints": [{"lb_endpoints": hosts}] if hosts else [],
        }
        path = self.folders.eds / eds_file_name(group)
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps({"version_info": "1.1", "resources": [resource]}))
        temporary.replace(path)

    async def until_routed(self) -> None:
        async with asyncio.timeout(DEADLINE):
            while True:
                self.follower.poke()
                await asyncio.sleep(0.05)
                try:
                    if await self.follower.routed():
                        return
                except AdminUnavailable:
                    continue

    async def chat(self, pool: str, *, stream: bool = False) -> tuple[int, str, str]:
        """Status, serving pod and text of one request."""
        ask = {"model": "m", "messages": [], "stream": stream, "max_tokens": 3}
        url = f"{self.base}/shop/{pool}/v1/chat/completions"
        async with self.http.post(url, json=ask) as answer:
            return answer.status, answer.headers.get("x-served-by", ""), await answer.text()


@pytest_asyncio.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[_Gateway]:
    deaths: list[str] = []
    children = Children(tmp_path, os.environ, lambda child: deaths.append(child.name))
    with Ports(random.Random()) as ports:
        hosts = ("127.0.0.2", "127.0.0.3")
        model_port = ports.take(also_on=hosts)
        gateway_port, admin_port = ports.take(), ports.take()
        pods = [ModelServer(f"{host}:{model_port}", f"shop/at-{host}", ("m",)) for host in hosts]
        fast = Speed(prompt_token_seconds=0.0, token_seconds=0.0)
        models = ModelServers(ModelServersConfig(tuple(pods), fast), SystemClock())
        async with aiohttp.ClientSession() as http:
            made = _Gateway(tmp_path, http, f"127.0.0.1:{gateway_port}")
            made.pools = [_pool(name, model_port) for name in _two_styles()]
            made.pods = [
                _pod(pool.ref.name, number, host)
                for pool in made.pools
                for number, host in enumerate(hosts)
            ]
            admin = EnvoyAdmin(http, f"127.0.0.1:{admin_port}")
            files = EnvoyFiles(made.folders, admin.clusters)
            files.prepare()
            made.follower = GatewayFollower(
                files, admin.routes_version, lambda: (made.pools, made.pods)
            )
            following = asyncio.create_task(made.follower.run())
            try:
                await models.start()
                await children.start(
                    envoy_spec(
                        envoy_binary(), files, gateway_port=gateway_port, admin_port=admin_port
                    )
                )
                made.picker.target = f"127.0.0.3:{model_port}"
                yield made
            finally:
                following.cancel()
                await children.close([("gateway", 3.0)])
                await models.close()
                made.server.stop(0).wait()
    assert deaths == []


async def test_the_pick_decides_in_both_styles(gateway: _Gateway) -> None:
    """Both pools answer from the picked pod; the picker sees each style's authority and phases."""
    istio, ai_gateway = gateway.pools
    for pool in gateway.pools:
        assert pool.group is not None
        gateway.write_eds(pool.group, gateway.picker_address)
    await gateway.until_routed()
    for pool in gateway.pools:
        for stream in (False, True):
            for _ in range(3):  # round robin would alternate
                status, pod, text = await gateway.chat(pool.ref.name, stream=stream)
                assert (status, pod) == (200, "shop/at-127.0.0.3"), text
        assert "[DONE]" in text
    assert set(gateway.picker.authorities) == {
        f"outbound|9002||{istio.ref.name}-epp.shop.svc.cluster.local",
        f"{ai_gateway.ref.name}-epp.shop.svc:9002",
    }
    assert set(gateway.picker.served) == {gateway.picker.target}
    assert {"request_headers", "request_body", "response_headers", "response_body"} <= (
        gateway.picker.phases
    )


async def test_unknown_paths_are_404(gateway: _Gateway) -> None:
    """No pool in the path: Envoy answers 404 itself and no picker is asked."""
    for pool in gateway.pools:
        assert pool.group is not None
        gateway.write_eds(pool.group, gateway.picker_address)
    await gateway.until_routed()
    for path in ("/", "/shop", "/shop/nowhere/v1/models", "/v1/models"):
        async with gateway.http.get(gateway.base + path) as answer:
            assert answer.status == 404
    assert gateway.picker.authorities == []


async def test_pools_come_and_go(gateway: _Gateway) -> None:
    """A pool without the leader's file has no route and hinders no other; one that goes is 404."""
    first, second = gateway.pools
    assert first.group is not None
    assert second.group is not None
    gateway.pools = [first]
    gateway.write_eds(first.group, gateway.picker_address)
    await gateway.until_routed()
    gateway.pools = [first, second]
    gateway.follower.poke()
    async with asyncio.timeout(DEADLINE):
        while not (gateway.folders.pods / pods_file_name(second.ref)).exists():
            await asyncio.sleep(0.02)
    assert (await gateway.chat(second.ref.name))[0] == 404
    assert (await gateway.chat(first.ref.name))[0] == 200
    gateway.write_eds(second.group, gateway.picker_address)
    await gateway.until_routed()
    assert (await gateway.chat(second.ref.name))[0] == 200
    gateway.pools = [second]
    await gateway.until_routed()
    assert (await gateway.chat(first.ref.name))[0] == 404
    assert (await gateway.chat(second.ref.name))[0] == 200


async def test_failure_mode_of_the_pool_is_honoured(gateway: _Gateway) -> None:
    """Nobody owns the group: FailClose answers 500, FailOpen goes to any pod of the pool."""
    first, second = gateway.pools
    gateway.pools = [first, replace(second, failure_mode=FailureMode.OPEN)]
    for pool in gateway.pools:
        assert pool.group is not None
        gateway.write_eds(pool.group)
    await gateway.until_routed()
    assert (await gateway.chat(first.ref.name))[0] == 500
    status, pod, _ = await gateway.chat(second.ref.name)
    assert status == 200
    assert pod.startswith("shop/at-")


async def test_pod_churn_is_followed(gateway: _Gateway) -> None:
    """A pod that goes is no longer picked by Envoy's fallback; no cluster is replaced."""
    first, _ = gateway.pools
    gateway.pools = [replace(first, failure_mode=FailureMode.OPEN)]
    assert first.group is not None
    gateway.write_eds(first.group)
    await gateway.until_routed()
    before = gateway.folders.clusters.read_text()
    gateway.pods = [pod for pod in gateway.pods if pod.ip == "127.0.0.2"]
    gateway.follower.poke()
    good = 0
    async with asyncio.timeout(DEADLINE):
        while good < 6:
            _, pod, _ = await gateway.chat(first.ref.name)
            good = good + 1 if pod == "shop/at-127.0.0.2" else 0
    assert gateway.folders.clusters.read_text() == before
