"""Reads that a real API server authorizes: both reviews, by accounts with exactly the component's
rights, for readers with and without theirs."""

import asyncio
import random
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from prometheus_client import CollectorRegistry

from coordinator.app import Coordinator
from coordinator.assembly import open_parts
from coordinator.web import Web, start_web
from fleet.clock import SystemClock
from fleet.kube import read_access
from fleet.kube.client import KubeClient
from fleet.kube.read_access import Allowed, Forbidden, ReadAccess, Stranger, Unknown
from fleet.read_guard import non_resource_url
from fleet.settings.model import (
    CoordinatorSettings,
    KubernetesSettings,
    RedisSettings,
    SecuritySettings,
    Settings,
)
from tests.control_plane.cluster import Cluster
from tests.control_plane.objects import eventually, service_account_token
from tests.control_plane.plane import ControlPlane
from tests.fake_view import FakeView, empty_map
from tests.kustomize import DEPLOY
from tests.ports import free_port
from tests.review_kube import StillClock
from tests.worker_process import TOKEN, WorkerProcess


def component_rules() -> list[Mapping[str, Any]]:
    """What the component gives."""
    text = (DEPLOY / "components" / "read-authorization" / "rbac.yaml").read_text()
    role = next(each for each in yaml.safe_load_all(text) if each["kind"] == "ClusterRole")
    rules: list[Mapping[str, Any]] = role["rules"]
    return rules


@dataclass
class Place:
    """A coordinator's port; the API server is asked as an account with the component's rights."""

    web: Web
    access: ReadAccess
    kube: KubeClient
    namespace: str
    client: aiohttp.ClientSession

    async def reader(self, *urls: str) -> str:
        """The token of a new service account that may get these nonResourceURLs."""
        rules = [{"nonResourceURLs": list(urls), "verbs": ["get"]}] if urls else []
        name = f"reader-{secrets.token_hex(3)}"
        return await service_account_token(self.kube, self.namespace, name, cluster_rules=rules)

    async def get(self, path: str, token: str) -> tuple[int, str]:
        """Status and text."""
        headers = {"Authorization": f"Bearer {token}"}
        url = f"http://127.0.0.1:{self.web.port}{path}"
        async with self.client.get(url, headers=headers) as answer:
            return answer.status, await answer.text()


@asynccontextmanager
async def placed(
    cluster: Cluster,
    kube: KubeClient,
    namespace: str,
    folder: Path,
    rules: list[Mapping[str, Any]],
) -> AsyncIterator[Place]:
    user = await cluster.limited_user(folder, namespace, "fleet", cluster_rules=rules)
    async with cluster.connected(user) as api, aiohttp.ClientSession() as client:
        access = ReadAccess(api, SystemClock())
        web = await start_web(
            FakeView(map=empty_map(1)),
            host="127.0.0.1",
            port=0,
            token=TOKEN,
            registry=CollectorRegistry(),
            access=access,
        )
        yield Place(web, access, kube, namespace, client)
        await web.close()
        await access.close()


@pytest.fixture
async def place(
    control_plane: Cluster, kube: KubeClient, namespace: str, tmp_path: Path
) -> AsyncIterator[Place]:
    async with placed(control_plane, kube, namespace, tmp_path, component_rules()) as found:
        yield found


async def test_with_and_without_the_right(place: Place) -> None:
    """A scraper gets the metrics alone, by the rule of the sample; who has no rule gets nothing."""
    scraper, nobody = await place.reader("/metrics"), await place.reader()
    assert (await place.get("/metrics", scraper))[0] == 200
    status, text = await place.get("/api/v1/map", scraper)
    assert status == 403
    assert f"system:serviceaccount:{place.namespace}:reader-" in text
    assert 'nonResourceURL \\"/epp-fleet/api/v1/map\\"' in text
    assert (await place.get("/metrics", nobody))[0] == 403
    assert (await place.get("/metrics", TOKEN))[0] == 200
    status, text = await place.get("/metrics", f"{nobody[:-8]}AAAAAAAA")
    assert (status, "not accepted" in text) == (401, True)


async def test_a_rule_with_a_star(place: Place) -> None:
    """`/epp-fleet/api/v1/*` is all of the API and no more; a pool's path can be given by itself."""
    whole = await place.reader("/epp-fleet/api/v1/*")
    assert (await place.get("/api/v1/map", whole))[0] == 200
    assert (await place.get("/api/v1/pools/acme/a", whole))[0] == 404
    assert (await place.get("/metrics", whole))[0] == 403
    tenant = await place.reader("/epp-fleet/api/v1/pools/acme/*")
    assert (await place.get("/api/v1/pools/acme/a", tenant))[0] == 404
    assert (await place.get("/api/v1/pools/other/a", tenant))[0] == 403
    assert (await place.get("/api/v1/pools/acme%2F..%2Fother/a", tenant))[0] == 403


async def test_a_token_for_somebody_else(place: Place) -> None:
    """One whose audience is not the API server is nobody's here."""
    await place.reader()
    accounts = f"/api/v1/namespaces/{place.namespace}/serviceaccounts"
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"audiences": ["vault"], "expirationSeconds": 600},
    }
    made = await place.kube.create(f"{accounts}/default/token", request)
    assert await place.access.decide(made["status"]["token"], "/metrics") == Stranger()


@pytest.mark.parametrize("left", ["tokenreviews", "subjectaccessreviews"])
async def test_each_of_the_two_rights_is_needed(
    control_plane: Cluster,
    kube: KubeClient,
    namespace: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    left: str,
) -> None:
    """Without one nobody is let in, and the log names the rule that lacks."""
    rules = [rule for rule in component_rules() if rule["resources"] == [left]]
    (lacking,) = (rule["resources"][0] for rule in component_rules() if rule not in rules)
    async with placed(control_plane, kube, namespace, tmp_path, rules) as place:
        token = await place.reader("/metrics")
        assert isinstance(await place.access.decide(token, "/metrics"), Unknown)
    (record,) = [r for r in caplog.records if r.getMessage() == "reads cannot be authorized"]
    assert f'RBAC lacks verb "create" on resource "{lacking}"' in vars(record)["problem"]


async def test_no_role_that_everybody_has_lets_in(place: Place) -> None:
    """system:discovery gives every account `/api/*`, which are paths of the API server."""
    nobody = await place.reader()
    assert isinstance(await place.access.decide(nobody, "/api/v1/map"), Allowed)
    for path in ("/metrics", "/api/v1/map", "/api/v1/workers", "/api/v1/pools/acme/a"):
        assert isinstance(await place.access.decide(nobody, non_resource_url(path)), Forbidden)
        assert (await place.get(path, nobody))[0] == 403


async def test_a_worker_as_it_is(
    control_plane: Cluster, kube: KubeClient, namespace: str, tmp_path: Path
) -> None:
    """The program, whose pools are in a folder: it asks the API server for its readers alone."""
    user = await control_plane.limited_user(
        tmp_path, namespace, "fleet", cluster_rules=component_rules()
    )
    settings = {
        "security": {"reads": "kubernetes"},
        "election": {"kind": "kubernetes"},
        "kubernetes": {"kubeconfig": str(user)},
    }
    with WorkerProcess(tmp_path, settings=settings) as worker:
        await reads_are_authorized(worker.address("http"), kube, namespace)


async def test_a_coordinator_as_it_is(
    control_plane: Cluster, kube: KubeClient, namespace: str, tmp_path: Path
) -> None:
    """As the program assembles it."""
    settings = Settings(
        fleet=namespace,
        redis=RedisSettings(url="redis://127.0.0.1:1/0"),
        coordinator=CoordinatorSettings(
            host="127.0.0.1", http_port=free_port(), internal_port=free_port()
        ),
        kubernetes=KubernetesSettings(
            kubeconfig=str(control_plane.kubeconfig), watch_namespaces=namespace
        ),
        security=SecuritySettings(reads="kubernetes"),
    )
    stop = asyncio.Event()
    async with open_parts(settings, clock=SystemClock(), rng=random.Random(1)) as parts:
        running = asyncio.create_task(Coordinator("c", settings, TOKEN, parts).run(stop))
        try:
            address = f"127.0.0.1:{settings.coordinator.http_port}"
            await reads_are_authorized(address, kube, namespace)
        finally:
            stop.set()
            await running


async def reads_are_authorized(address: str, kube: KubeClient, namespace: str) -> None:
    """Metrics for who may, once the port is open."""
    rules = [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
    good = await service_account_token(kube, namespace, "scraper", cluster_rules=rules)
    poor = await service_account_token(kube, namespace, "nobody")
    async with aiohttp.ClientSession() as client:

        async def status(path: str, token: str | None) -> int:
            headers = {} if token is None else {"Authorization": f"Bearer {token}"}
            try:
                async with client.get(f"http://{address}{path}", headers=headers) as answer:
                    return answer.status
            except aiohttp.ClientError:
                return 0

        async def open_for_probes() -> bool:
            return await status("/healthz", None) == 200

        await eventually(open_for_probes, "the port is open")
        found = [await status("/metrics", token) for token in (None, poor, good, TOKEN)]
        assert found == [401, 403, 200, 200]


async def test_a_server_that_hangs(
    place: Place, own_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who was let in before is, after one try; others hear at once that nobody can tell."""
    monkeypatch.setattr(read_access, "REVIEW_SECONDS", 0.5)
    clock = StillClock()
    access = ReadAccess(place.access._api, clock)
    good, new = await place.reader("/metrics"), await place.reader("/metrics")
    assert isinstance(await access.decide(good, "/metrics"), Allowed)
    clock.advance(61.0)
    own_plane.pause()
    try:
        assert isinstance(await access.decide(good, "/metrics"), Allowed)
        assert await access.decide(new, "/metrics") == Unknown(5.0)
    finally:
        own_plane.resume()
    clock.advance(5.0)
    assert isinstance(await access.decide(new, "/metrics"), Allowed)
