"""The HTTP ports of both programs while reads are authorized, asked through loopback."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest
from multidict import CIMultiDictProxy
from prometheus_client import CollectorRegistry
from yarl import URL

from coordinator.web import start_web
from epp_worker.metrics import Figures
from epp_worker.web import web_app
from fleet.errors import KubeUnavailable
from fleet.http_listener import HttpListener, listen_http
from fleet.kube.read_access import ReadAccess
from fleet.model import EpochVersion
from fleet.read_guard import bearer_token
from tests.fake_view import FakeView, empty_map
from tests.review_kube import PROMETHEUS, ReviewKube, StillClock

TOKEN = "the-fleets-token"


@dataclass
class Guarded:
    """A listener of one of the programs, the API server behind it, and a client."""

    web: HttpListener
    kube: ReviewKube
    clock: StillClock
    client: aiohttp.ClientSession

    async def ask(
        self, path: str, token: str | None = None, method: str = "GET"
    ) -> tuple[int, Any, CIMultiDictProxy[str]]:
        """Status, body and headers."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        url = f"http://127.0.0.1:{self.web.port}{path}"
        async with self.client.request(method, url, headers=headers) as answer:
            text = await answer.text()
            body = json.loads(text) if answer.content_type == "application/json" and text else text
            return answer.status, body, answer.headers

    async def status(self, path: str, token: str | None = None, method: str = "GET") -> int:
        """The status alone."""
        return (await self.ask(path, token, method))[0]


@asynccontextmanager
async def guarded(program: str) -> AsyncIterator[Guarded]:
    kube, clock = ReviewKube(), StillClock()
    kube.users = {"prom": PROMETHEUS, "poor": "jane"}
    kube.rights = {(PROMETHEUS, "/metrics"), (PROMETHEUS, "/epp-fleet/api/v1/map")}
    access = ReadAccess(kube, clock)
    if program == "coordinator":
        web = await start_web(
            FakeView(map=empty_map(1)),
            host="127.0.0.1",
            port=0,
            token=TOKEN,
            registry=CollectorRegistry(),
            access=access,
        )
    else:
        web = await listen_http(web_app(FakeWorker(), TOKEN, access), "127.0.0.1", 0)
    async with aiohttp.ClientSession() as client:
        yield Guarded(web, kube, clock, client)
    await web.close()
    await access.close()


class FakeWorker:
    """A worker that is well and has no figures."""

    def figures(self) -> Figures:
        none = EpochVersion(0, 0)
        return Figures([0] * 17, 0, 0, {}, {}, 0, {}, {}, 0.0, 0.0, none, none)

    def unready(self) -> str | None:
        return None

    def unwell(self) -> str | None:
        return None

    def describe(self) -> Mapping[str, Any]:
        return {"holds": 0}


PATHS = {
    "coordinator": [
        "/metrics",
        "/api/v1/map",
        "/api/v1/workers",
        "/api/v1/pools/ns/a",
        "/api/v1/pools/ns/a/endpoints",
        "/api/v1/plan",
        "/api/v1/history",
    ],
    "worker": ["/metrics"],
}


@pytest.fixture(params=sorted(PATHS))
async def port(request: pytest.FixtureRequest) -> AsyncIterator[Guarded]:
    """Both programs."""
    async with guarded(request.param) as found:
        yield found


@pytest.fixture
async def coordinator() -> AsyncIterator[Guarded]:
    async with guarded("coordinator") as found:
        yield found


async def test_the_page_itself_is_open(coordinator: Guarded) -> None:
    """It holds nothing of the fleet, and asks its reader for a token; its events need one."""
    for path in ("/", "/page/app.js", "/page/style.css"):
        assert await coordinator.status(path) == 200
    assert await coordinator.status("/api/v1/events") == 401
    assert coordinator.kube.calls() == []


@pytest.mark.parametrize("program", sorted(PATHS))
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_every_read_needs_a_token(program: str, method: str) -> None:
    """Without one the API server is not even asked."""
    async with guarded(program) as port:
        for path in PATHS[program]:
            status, _, headers = await port.ask(path, method=method)
            assert (status, headers["WWW-Authenticate"]) == (401, 'Bearer realm="epp-fleet"')
        assert port.kube.calls() == []


async def test_probes_are_open(port: Guarded) -> None:
    """Kubelets bear no token."""
    assert await port.status("/healthz") == 200
    assert await port.status("/readyz") == 200
    assert port.kube.calls() == []


async def test_who_may_and_who_may_not(port: Guarded) -> None:
    """200; 403 with the user and what he lacks; 401 for a token that is nobody's."""
    assert await port.status("/metrics", "prom") == 200
    status, body, _ = await port.ask("/metrics", "poor")
    assert status == 403
    assert body["error"] == {
        "code": "forbidden",
        "message": 'user "jane" may not read this: RBAC lacks verb "get" on nonResourceURL '
        '"/metrics"',
    }
    status, body, headers = await port.ask("/metrics", "guess")
    assert (status, body["error"]["code"]) == (401, "unauthorized")
    assert headers["WWW-Authenticate"] == 'Bearer realm="epp-fleet", error="invalid_token"'


async def test_the_fleets_own_token_reads_everything(coordinator: Guarded) -> None:
    """And is shown to nobody, not even to the API server."""
    for path in ("/", "/metrics", "/api/v1/map", "/api/v1/workers"):
        assert await coordinator.status(path, TOKEN) == 200
    assert await coordinator.status("/api/v1/pools/ns/a", TOKEN) == 404
    assert coordinator.kube.calls() == []


async def test_the_right_is_that_of_the_path(coordinator: Guarded) -> None:
    """As it is served, without a query, under a prefix: the bare path means the API server's own,
    which every account of a cluster may get."""
    coordinator.kube.rights.add((PROMETHEUS, "/api/v1/workers"))
    assert await coordinator.status("/api/v1/map?x=/metrics", "prom") == 200
    assert await coordinator.status("/api/v1/workers", "prom") == 403
    coordinator.kube.rights.add((PROMETHEUS, "/epp-fleet/api/v1/pools/ns/a"))
    assert await coordinator.status("/api/v1/pools/n%73/a", "prom") == 404
    assert await coordinator.status("/api/v1/pools/ns/b", "prom") == 403
    coordinator.kube.calls()
    odd = URL(f"http://127.0.0.1:{coordinator.web.port}/api/v1/pools/ns%2F..%2Fb/a", encoded=True)
    async with coordinator.client.get(odd, headers={"Authorization": "Bearer prom"}) as answer:
        assert "/epp-fleet/api/v1/pools/ns%2F..%2Fb/a" in (await answer.json())["error"]["message"]


async def test_what_is_not_there_costs_nothing(coordinator: Guarded) -> None:
    """404 and 405 need no token, and nobody is asked."""
    assert await coordinator.status("/api/v1/nothing", "guess") == 404
    assert await coordinator.status("/metrics", "guess", "DELETE") == 405
    assert coordinator.kube.calls() == []


async def test_commands_are_as_before(coordinator: Guarded) -> None:
    """They take the fleet's token alone."""
    coordinator.kube.rights.add((PROMETHEUS, "/epp-fleet/api/v1/workers/w/drain"))
    assert await coordinator.status("/api/v1/workers/w/drain", "prom", "POST") == 401
    assert await coordinator.status("/api/v1/workers/w/drain", TOKEN, "POST") == 202
    assert coordinator.kube.calls() == []


async def test_holds_take_the_fleets_token_alone() -> None:
    """Also from who may read everything else."""
    async with guarded("worker") as worker:
        worker.kube.rights.add((PROMETHEUS, "/epp-fleet/debug/holds"))
        assert await worker.status("/debug/holds", "prom") == 401
        assert await worker.status("/debug/holds", TOKEN) == 200


async def test_while_the_api_server_is_away(port: Guarded) -> None:
    """Who was let in before still is; others are told when to come again."""
    assert await port.status("/metrics", "prom") == 200
    port.kube.fault = KubeUnavailable("played")
    port.clock.advance(100.0)
    assert await port.status("/metrics", "prom") == 200
    status, body, headers = await port.ask("/metrics", "poor")
    assert (status, body["error"]["code"], headers["Retry-After"]) == (503, "no_authorizer", "5")
    assert await port.status("/metrics", TOKEN) == 200
    assert await port.status("/healthz") == 200


@pytest.mark.parametrize(
    ("header", "token"),
    [
        ("Bearer abc", "abc"),
        ("bearer  abc ", "abc"),
        ("Basic abc", ""),
        ("Bearer", ""),
        ("Bearer a b", ""),
        ("Bearer \udcff", ""),
        ("Bearer t\u00f6", ""),
        ("", ""),
    ],
)
def test_what_is_a_token(header: str, token: str) -> None:
    """One word of printable ASCII; anything else is none, and is not sent on."""
    assert bearer_token(header) == token
