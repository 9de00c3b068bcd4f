"""What every source promises, on a real API server."""

import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from fleet.kube.client import KubeClient
from tests.contract import test_source as suite
from tests.contract.kube_worlds import RealApiWorld
from tests.contract.source_worlds import World
from tests.control_plane.cluster import Cluster
from tests.control_plane.objects import ensure, eventually, exists
from tests.control_plane.plane import ControlPlane
from tests.kube_sources import running_source
from tests.tcp_proxy import TcpProxy

NAMESPACES = ("ns1", "ns2")
"""Those of the suite; it sees nothing of what other tests do elsewhere in the cluster."""


async def _make_namespaces(kube: KubeClient) -> None:
    for name in NAMESPACES:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        await ensure(kube, "/api/v1/namespaces", body)
        account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        await eventually(partial(exists, kube, account), account)


@pytest.fixture
async def world(
    control_plane: Cluster, own_plane: ControlPlane, kube: KubeClient, tmp_path: Path
) -> AsyncIterator[World]:
    await _make_namespaces(kube)
    config = yaml.safe_load(control_plane.kubeconfig.read_text())
    (cluster,) = (each["cluster"] for each in config["clusters"])
    server = urlsplit(cluster["server"])
    async with TcpProxy.before(server.hostname or "", server.port or 443) as proxy:
        cluster["server"] = f"https://127.0.0.1:{proxy.port}"
        kubeconfig = control_plane.kubeconfig.with_name("proxied.kubeconfig")
        kubeconfig.write_text(json.dumps(config))
        async with running_source(kubeconfig, watch_namespaces=",".join(NAMESPACES)) as on:
            made = RealApiWorld(kube, proxy, on)
            try:
                yield made
            finally:
                await made.clean()


lax_world = suite.lax_world

# The same functions, found here by pytest with the world of this module.
for _name, _test in vars(suite).items():
    if _name.startswith("test_"):
        globals()[_name] = _test
