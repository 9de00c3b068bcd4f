"""The runtime layer of the Envoy AI Gateway sample lifts Envoy's limit on streams to a picker."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.envoy import Envoy
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
