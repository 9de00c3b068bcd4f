"""Certificates as Secrets on a real API server, written with the rights of `deploy/` alone."""

import asyncio
import base64
from pathlib import Path

import pytest

from fleet.certificates import Role
from fleet.certificates.authority import Pair, is_due
from fleet.cli.main import main
from fleet.clock import SystemClock
from fleet.errors import KubeForbidden, KubeNotFound
from fleet.kube.certificate_secrets import keep_secrets
from fleet.kube.client import KubeClient
from tests.control_plane.cluster import Cluster
from tests.deployed import installed
from tests.kustomize import NoKustomize

ACCOUNT = "epp-fleet-certificates"
DAY = 86_400.0


async def secret(api: KubeClient, namespace: str, name: str) -> dict[str, bytes]:
    found = await api.get(f"/api/v1/namespaces/{namespace}/secrets/{name}")
    return {key: base64.b64decode(value) for key, value in found["data"].items()}


async def test_the_command_in_a_cluster(
    control_plane: Cluster,
    kube: KubeClient,
    namespace: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It names what it wrote; the second time nothing was due."""
    try:
        async with installed(control_plane, kube, namespace, fleet="default") as found:
            config = await found.kubeconfig(kube, tmp_path, ACCOUNT)
            async with control_plane.connected(config) as api:
                await in_force(api, f"/api/v1/namespaces/{namespace}/secrets/epp-fleet-ca")
            monkeypatch.setenv("EPP_FLEET_KUBERNETES__KUBECONFIG", str(config))
            argv = ["ca", "init", "--secret", "epp-fleet"]
            assert await asyncio.to_thread(main, argv) == 0
            assert capsys.readouterr().out.split() == [
                "secret/epp-fleet-ca",
                "secret/epp-fleet-coordinator-tls",
                "secret/epp-fleet-worker-tls",
            ]
            assert await asyncio.to_thread(main, argv) == 0
            assert capsys.readouterr().out == "nothing was due\n"
    except NoKustomize as missing:
        pytest.skip(str(missing))


async def in_force(api: KubeClient, path: str) -> None:
    """Wait until the API server knows the rules."""
    async with asyncio.timeout(30):
        while True:
            try:
                await api.get(path)
            except KubeNotFound:
                return
            except KubeForbidden:
                await asyncio.sleep(0.05)


async def test_the_job_makes_and_renews_what_pods_mount(
    control_plane: Cluster, kube: KubeClient, namespace: str, tmp_path: Path
) -> None:
    """Made once, left alone, renewed when due; no other Secret can be read with these rights."""
    now = SystemClock().wall()
    names = tuple(f"epp-fleet-{name}" for name in ("ca", "coordinator-tls", "worker-tls"))
    try:
        async with installed(control_plane, kube, namespace, fleet="f") as found:
            config = await found.kubeconfig(kube, tmp_path, ACCOUNT)
            async with control_plane.connected(config) as api:
                await in_force(api, f"/api/v1/namespaces/{namespace}/secrets/{names[0]}")
                assert await keep_secrets(api, "epp-fleet", "f", now) == names
                assert await keep_secrets(api, "epp-fleet", "f", now + DAY) == ()
                renewed = await keep_secrets(api, "epp-fleet", "f", now + 61 * DAY)
                assert renewed == names[1:]
                with pytest.raises(KubeForbidden):
                    await api.get(f"/api/v1/namespaces/{namespace}/secrets/epp-fleet-secrets")
    except NoKustomize as missing:
        pytest.skip(str(missing))
    ca = await secret(kube, namespace, names[0])
    for role, name in zip((Role.COORDINATOR, Role.WORKER), names[1:], strict=True):
        mounted = await secret(kube, namespace, name)
        assert mounted.keys() == {"ca.crt", "tls.crt", "tls.key"}
        pair = Pair(mounted["tls.crt"], mounted["tls.key"])
        assert not is_due(pair, Pair(ca["ca.crt"], ca["ca.key"]), role, "f", now + 100 * DAY)
