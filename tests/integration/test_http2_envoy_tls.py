"""A real Envoy that dials the worker by TLS: as gateways do that verify, and that do not."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fleet.certificates import ServingTls
from fleet.clock import SystemClock
from fleet.model import Hold
from fleet.settings import WorkerSettings
from tests.envoy import Envoy
from tests.ext_proc_gateway import TYPE, resources
from tests.http2_tls import NAME, Authority
from tests.integration.test_forwarding_envoy import EVENTS, model
from tests.worker_inprocess import Running, TestLeader, running_worker, until, write_pool

AUTHORITY = "pool-a-epp.ns1.svc.cluster.local:9002"


def secured(config: dict[str, Any], ca_file: str = "", san: str = "") -> dict[str, Any]:
    """The picker's cluster speaks TLS; it verifies if there is a CA."""
    common: dict[str, Any] = {"alpn_protocols": ["h2"]}
    if ca_file:
        matcher = {"san_type": "DNS", "matcher": {"exact": san}}
        common["validation_context"] = {
            "trusted_ca": {"filename": ca_file},
            "match_typed_subject_alt_names": [matcher],
        }
    config["clusters"][0]["transport_socket"] = {
        "name": "envoy.transport_sockets.tls",
        "typed_config": {
            "@type": TYPE + "extensions.transport_sockets.tls.v3.UpstreamTlsContext",
            "common_tls_context": common,
        },
    }
    return config


@asynccontextmanager
async def scene(
    folder: Path, tls: ServingTls, ca_file: str = "", san: str = "", timeout: str = ""
) -> AsyncIterator[tuple[Running, aiohttp.ClientSession, str]]:
    """Envoy before a worker that owns pool-a."""
    manifests = folder / "manifests"
    manifests.mkdir()
    async with model() as served:
        host, _, port = served.address.rpartition(":")
        write_pool(manifests, "pool-a", host, port=int(port))
        async with running_worker(manifests, tls=tls) as running:
            leader = TestLeader(running.worker.addresses.internal, 1)
            await leader.connect()
            await leader.assign(running.share(1, pool_a=Hold.OWNER))
            config = secured(resources(running.worker.addresses.ext_proc, AUTHORITY), ca_file, san)
            if timeout:
                (ext_proc,) = config["listeners"][0]["filter_chains"][0]["filters"][0][
                    "typed_config"
                ]["http_filters"][:1]
                ext_proc["typed_config"]["grpc_service"]["timeout"] = timeout
            async with Envoy(folder, config) as envoy, aiohttp.ClientSession() as client:
                url = f"http://{await envoy.listener('gateway')}/v1/chat/completions"
                yield running, client, url
            await leader.close()


async def status(client: aiohttp.ClientSession, url: str) -> int:
    """Of one request."""
    async with client.post(url, data=b'{"model": "m"}') as answer:
        await answer.read()
        return answer.status


async def test_a_gateway_that_does_not_verify(tmp_path: Path) -> None:
    """kgateway/kgateway, envoyproxy/ai-gateway: TLS to the picker, its certificate looked at by
    nobody: a worker without any files serves it."""
    tls = ServingTls(WorkerSettings(), ["localhost"], SystemClock())
    async with scene(tmp_path, tls) as (running, client, url):
        assert await status(client, url) == 200
        assert running.worker.counters.tls_handshakes >= 1
        figures = running.worker.figures()
        assert figures.tls_handshakes["good"] >= 1
        assert figures.tls_expiry_seconds == pytest.approx(365 * 86_400, abs=100)


async def test_a_gateway_that_verifies_ca_and_name(tmp_path: Path) -> None:
    """kubernetes-sigs/gateway-api-inference-extension#582: mounted files of a CA, with the name
    that the gateway is told to look for."""
    authority = Authority(tmp_path / "tls")
    async with scene(tmp_path, authority.tls("require"), authority.files.ca_file, NAME) as made:
        running, client, url = made
        assert await status(client, url) == 200
        assert running.worker.counters.plaintext_refused == 0


async def test_a_gateway_that_looks_for_another_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """nginx/nginx-gateway-fabric#3841: fails at once, and the worker says why in one line."""
    authority = Authority(tmp_path / "tls")
    with caplog.at_level(logging.WARNING, "epp_worker.http2"):
        async with scene(tmp_path, authority.tls(), authority.files.ca_file, "epp.other.svc") as (
            running,
            client,
            url,
        ):
            assert await status(client, url) >= 500
            counters = running.worker.counters
            await until(lambda: bool(counters.tls_failed), "the failed handshake")
    assert "TLS handshake failed" in caplog.text


async def test_a_timeout_of_the_grpc_service_cuts_no_response(tmp_path: Path) -> None:
    """Envoy does not send it as `grpc-timeout` of the stream, which lives as long as the response
    does: a response of 3 s comes whole where 0.5 s are configured."""
    tls = ServingTls(WorkerSettings(), ["localhost"], SystemClock())
    async with (
        scene(tmp_path, tls, timeout="0.5s") as (_, client, url),
        client.post(url, data=b'{"model": "m"}', headers={"x-slow": "1"}) as answer,
    ):
        assert answer.status == 200
        assert (await answer.text()).count("data: ") == EVENTS
