"""The runtime layer of the Envoy AI Gateway sample lifts Envoy's limit on streams to a picker."""

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from aiohttp import web

from tests.envoy import Envoy, http_listener
from tests.kustomize import DEPLOY

SAMPLE = DEPLOY / "samples" / "gateways" / "envoy-ai-gateway" / "gateway.yaml"
LAYER_0 = {"name": "global_config", "static_layer": {"re2.max_program_size.warn_level": 1000}}
"""What Envoy Gateway's own bootstrap has there."""

Limits = dict[tuple[str, str], int]


def patched_layers() -> list[dict[str, Any]]:
    """Envoy Gateway's layers with the sample's patch."""
    for each in yaml.safe_load_all(SAMPLE.read_text()):
        if each["kind"] == "EnvoyProxy":
            (patch,) = each["spec"]["bootstrap"]["jsonPatches"]
            assert (patch["op"], patch["path"]) == ("add", "/layered_runtime/layers/-")
            return [LAYER_0, patch["value"]]
    raise AssertionError("no EnvoyProxy in the sample")


def cluster(pool: str) -> dict[str, Any]:
    """The picker's cluster as the AI gateway makes it: without circuit breakers."""
    name = f"envoy.clusters.endpointpicker_{pool}_acme_ext_proc"
    return {
        "name": name,
        "type": "STATIC",
        "connect_timeout": "10s",
        "load_assignment": {"cluster_name": name},
    }


async def limits(envoy: Envoy) -> Limits:
    """By pool and limit, as Envoy goes by them."""
    found = {}
    for line in (await envoy.ask("/clusters")).splitlines():
        name, *path = line.split("::")
        if path[0] == "default_priority":
            found[name.split("_")[1], path[1]] = int(path[2])
    return found


@pytest.mark.parametrize("patched", [False, True], ids=["as-shipped", "with-the-sample"])
async def test_the_sample_lifts_the_limit(tmp_path: Path, patched: bool) -> None:
    """10,000 streams and as many waiting for the sample's pools; 1,024 without a line."""
    static = {"clusters": [cluster(pool) for pool in ("llama-8b", "mistral-7b", "other")]}
    layers = patched_layers() if patched else [LAYER_0]
    async with Envoy(tmp_path, static, runtime_layers=layers) as envoy:
        found = await limits(envoy)
    high = 10_000 if patched else 1024
    for pool, limit in (("llama-8b", high), ("mistral-7b", high), ("other", 1024)):
        assert found[pool, "max_requests"] == limit
        assert found[pool, "max_pending_requests"] == limit


class Held:
    """A server whose requests wait until it lets them go."""

    def __init__(self) -> None:
        self.asked = 0
        self.go = asyncio.Event()

    async def answer(self, _: web.Request) -> web.Response:
        self.asked += 1
        await self.go.wait()
        return web.Response(text="good")


async def test_envoy_goes_by_the_runtime(tmp_path: Path) -> None:
    """Not only in what it shows: with a limit of 2 in a layer, 3 of 5 requests at once overflow."""
    held = Held()
    app = web.Application()
    app.router.add_get("/", held.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made = cluster("llama-8b")
    host, port = runner.addresses[0]
    socket = {"socket_address": {"address": host, "port_value": port}}
    lb_endpoints = [{"endpoint": {"address": socket}}]
    made["load_assignment"]["endpoints"] = [{"lb_endpoints": lb_endpoints}]
    limit = f"circuit_breakers.{made['name']}.default.max_requests"
    layers = [LAYER_0, {"name": "picker_limits", "static_layer": {limit: 2}}]
    static = {"clusters": [made], "listeners": [http_listener("gateway", made["name"])]}
    try:
        async with (
            Envoy(tmp_path, static, runtime_layers=layers) as envoy,
            aiohttp.ClientSession() as http,
        ):
            url = f"http://{await envoy.listener('gateway')}/"
            asking = [asyncio.create_task(http.get(url)) for _ in range(5)]
            async with asyncio.timeout(10):
                while held.asked < 2 or sum(each.done() for each in asking) < 3:
                    await asyncio.sleep(0.02)
            held.go.set()
            statuses = sorted([(await each).status for each in asking])
    finally:
        await runner.cleanup()
    assert statuses == [200, 200, 503, 503, 503]
    assert held.asked == 2
