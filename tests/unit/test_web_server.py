"""The coordinator's HTTP side over a View in memory, asked through loopback."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import aiohttp
import pytest
from multidict import CIMultiDictProxy
from prometheus_client import CollectorRegistry, Gauge

from coordinator.explain import Explained
from coordinator.ownership import Refused
from coordinator.view import (
    DrainConflict,
    EndpointsUnknown,
    NotLeading,
    UnknownPool,
    UnknownWorker,
)
from coordinator.web import Web, start_web
from coordinator.web import commands as commands_module
from coordinator.whatif import Premises
from fleet.control.endpoint_messages import EndpointRow, PoolEndpoints
from fleet.errors import FleetError, SettingsError, StoreUnavailable
from fleet.model import EpochVersion, Hold, LeaderInfo, MemberStatus, PoolRef, ShardMap
from fleet.store.contract import Move
from tests.web_scene import scene_of

TOKEN = "s3cret"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
OTHER = LeaderInfo("coordinator-1", "127.0.0.1:18080", "127.0.0.1:18081")


def empty_map(version: int) -> ShardMap:
    return ShardMap("default", EpochVersion(1, version), 0.0, OTHER, {})


@dataclass
class FakeView:
    """A coordinator by its fields."""

    id: str = "coordinator-0"
    map: ShardMap | None = None
    who: LeaderInfo | None = OTHER
    not_ready: str | None = None
    living: bool = True
    refusal: Exception | None = None
    hang: bool = False
    drains: list[tuple[str, bool]] = field(default_factory=list)
    explained: dict[PoolRef, Explained] = field(default_factory=dict)
    skips: tuple[str, ...] = ()
    basis: Premises | None = None
    past: tuple[Move, ...] = ()
    workers: tuple[MemberStatus, ...] = ()
    told: dict[PoolRef, PoolEndpoints | Exception] = field(default_factory=dict)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    seen: int = 0
    leads: bool = False
    no_moves: Exception | None = None

    def shard_map(self) -> ShardMap | None:
        return self.map

    def members(self) -> Sequence[MemberStatus]:
        return self.workers

    def leader(self) -> LeaderInfo | None:
        return self.who

    def leading(self) -> bool:
        return self.leads

    def revision(self) -> int:
        return self.seen

    async def after(self, revision: int) -> None:
        while self.seen == revision:
            await self.news.wait()

    def change(self, **fields: Any) -> None:
        """Set fields, and tell whoever waits."""
        for name, value in fields.items():
            setattr(self, name, value)
        self.seen += 1
        self.news.set()
        self.news = asyncio.Event()

    async def endpoints(self, ref: PoolRef) -> PoolEndpoints:
        told = self.told.get(ref, UnknownPool(str(ref)))
        if isinstance(told, Exception):
            raise told
        return told

    def explain(self, ref: PoolRef) -> Explained | None:
        return self.explained.get(ref)

    async def moves(self, limit: int) -> Sequence[Move]:
        if self.no_moves is not None:
            raise self.no_moves
        return self.past[:limit]

    def skipped(self, ref: PoolRef) -> Sequence[str]:
        return self.skips

    def premises(self) -> Premises | None:
        return self.basis

    def ready(self) -> str | None:
        return self.not_ready

    def alive(self) -> bool:
        return self.living

    async def set_drain(self, worker: str, on: bool) -> None:
        if self.hang:
            await asyncio.Event().wait()
        if self.refusal is not None:
            raise self.refusal
        self.drains.append((worker, on))


@dataclass
class Served:
    """A running listener and a client of it."""

    view: FakeView
    web: Web
    client: aiohttp.ClientSession

    async def ask(
        self, method: str, path: str, **options: Any
    ) -> tuple[int, Any, CIMultiDictProxy[str]]:
        """Status, body (JSON where it is) and headers; follows no redirect."""
        url = f"http://127.0.0.1:{self.web.port}{path}"
        async with self.client.request(method, url, allow_redirects=False, **options) as response:
            text = await response.text()
            if response.content_type == "application/json" and text:
                return response.status, json.loads(text), response.headers
            return response.status, text, response.headers

    async def error(self, method: str, path: str, **options: Any) -> tuple[int, str]:
        """Status and code of an error, whose form is checked."""
        status, body, _ = await self.ask(method, path, **options)
        assert set(body) == {"error"}
        assert set(body["error"]) == {"code", "message"}
        assert body["error"]["message"]
        return status, body["error"]["code"]


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    registry = CollectorRegistry()
    Gauge("epp_fleet_leader", "Whether this coordinator leads.", registry=registry).set(1)
    view = FakeView()
    web = await start_web(view, host="127.0.0.1", port=0, token=TOKEN, registry=registry)
    async with aiohttp.ClientSession() as client:
        yield Served(view, web, client)
    await web.close()


async def test_there_is_no_map_at_first(served: Served) -> None:
    """503, to be asked again."""
    status, body, headers = await served.ask("GET", "/api/v1/map")
    assert (status, body["error"]["code"], headers["Retry-After"]) == (503, "no_map", "1")


async def test_the_map_and_its_version(served: Served) -> None:
    """A client that has this version gets 304; a new version or leader gives a new document."""
    served.view.map = empty_map(1)
    status, body, headers = await served.ask("GET", "/api/v1/map")
    assert (status, body["version"], body["leader"]["id"]) == (200, 1, "coordinator-1")
    tag = headers["ETag"]
    assert tag.startswith('"1.1-')
    status, text, _ = await served.ask("GET", "/api/v1/map", headers={"If-None-Match": tag})
    assert (status, text) == (304, "")
    served.view.map = empty_map(2)
    status, body, _ = await served.ask("GET", "/api/v1/map", headers={"If-None-Match": tag})
    assert (status, body["version"]) == (200, 2)
    served.view.who = None
    assert (await served.ask("GET", "/api/v1/map"))[1]["leader"] is None


async def test_a_large_map_is_sent_compressed(served: Served) -> None:
    """To who takes that, under a tag of its own; a small one never is."""
    served.view.map = scene_of(400, 4).shard_map()
    plain = {"Accept-Encoding": "identity"}
    status, body, headers = await served.ask("GET", "/api/v1/map", headers=plain)
    assert (status, "Content-Encoding" in headers, headers["Vary"]) == (
        200,
        False,
        "Accept-Encoding",
    )
    packed = {"Accept-Encoding": "br, gzip"}
    status, same, zipped = await served.ask("GET", "/api/v1/map", headers=packed)
    assert (status, zipped["Content-Encoding"], same) == (200, "gzip", body)
    assert int(zipped["Content-Length"]) < int(headers["Content-Length"]) / 5
    assert zipped["ETag"] != headers["ETag"]
    again = {**packed, "If-None-Match": zipped["ETag"]}
    assert (await served.ask("GET", "/api/v1/map", headers=again))[0] == 304
    served.view.map = empty_map(1)
    assert "Content-Encoding" not in (await served.ask("GET", "/api/v1/map", headers=packed))[2]


async def test_the_workers(served: Served) -> None:
    """Also when there is none."""
    status, body, _ = await served.ask("GET", "/api/v1/workers")
    assert (status, body) == (200, {"format": 1, "workers": []})


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Bearer "},
        {"Authorization": f"Basic {TOKEN}"},
        {"Authorization": TOKEN},
        {"Authorization": f"Bearer {TOKEN}x"},
    ],
)
async def test_commands_need_the_token(served: Served, headers: dict[str, str]) -> None:
    """401 with a challenge; nothing happens."""
    status, body, answered = await served.ask(
        "POST", "/api/v1/workers/worker-0/drain", headers=headers
    )
    assert (status, body["error"]["code"]) == (401, "unauthorized")
    assert answered["WWW-Authenticate"].startswith("Bearer")
    assert served.view.drains == []


async def test_the_leader_commands(served: Served) -> None:
    """202 for both; the scheme's case does not matter."""
    lower = {"Authorization": f"bearer {TOKEN}"}
    status, body, _ = await served.ask("POST", "/api/v1/workers/worker-0/drain", headers=lower)
    assert (status, body) == (202, {"format": 1, "worker": "worker-0", "drain": True})
    status, _, _ = await served.ask("POST", "/api/v1/workers/worker-0/undrain", headers=BEARER)
    assert status == 202
    assert served.view.drains == [("worker-0", True), ("worker-0", False)]


async def test_a_follower_shows_the_way(served: Served) -> None:
    """307 to the same path of the leader."""
    served.view.refusal = NotLeading(OTHER)
    status, body, headers = await served.ask(
        "POST", "/api/v1/workers/worker-0/drain?x=1", headers=BEARER
    )
    assert (status, body["error"]["code"]) == (307, "not_leading")
    assert headers["Location"] == "http://127.0.0.1:18080/api/v1/workers/worker-0/drain?x=1"


@pytest.mark.parametrize("leader", [None, LeaderInfo("coordinator-0", "127.0.0.1:1", "")])
async def test_without_a_leader_commands_wait(served: Served, leader: LeaderInfo | None) -> None:
    """503 + Retry-After; also while the stale answer is this replica itself: no redirect loop."""
    served.view.refusal = NotLeading(leader)
    status, body, headers = await served.ask(
        "POST", "/api/v1/workers/worker-0/drain", headers=BEARER
    )
    assert (status, body["error"]["code"], headers["Retry-After"]) == (503, "no_leader", "1")


@pytest.mark.parametrize(
    ("refusal", "answer"),
    [
        (UnknownWorker("worker-9"), (404, "unknown_worker")),
        (DrainConflict("already draining"), (409, "conflict")),
        (StoreUnavailable("redis"), (503, "unavailable")),
        (RuntimeError("bug"), (500, "internal")),
    ],
)
async def test_refused_commands(
    served: Served, refusal: Exception, answer: tuple[int, str]
) -> None:
    """Each with its own code; what is not foreseen is an error as well, and no traceback."""
    served.view.refusal = refusal
    assert await served.error("POST", "/api/v1/workers/worker-9/drain", headers=BEARER) == answer


async def test_a_command_that_hangs_is_answered(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """503 after its time."""
    monkeypatch.setattr(commands_module, "COMMAND_SECONDS", 0.01)
    served.view.hang = True
    answer = await served.error("POST", "/api/v1/workers/worker-0/drain", headers=BEARER)
    assert answer == (503, "timeout")


async def test_every_error_has_the_same_form(served: Served) -> None:
    """Unknown paths and wrong methods too."""
    assert await served.error("GET", "/api/v1/nothing") == (404, "not_found")
    assert await served.error("DELETE", "/api/v1/map") == (405, "method_not_allowed")
    assert await served.error("GET", "/api/v1/workers/w/drain") == (405, "method_not_allowed")
    _, _, headers = await served.ask("POST", "/api/v1/map")
    assert headers["Allow"] == "GET,HEAD"


async def test_requests_are_bounded(served: Served) -> None:
    """Neither a large body nor a large header is taken in."""
    path = "/api/v1/workers/worker-0/drain"
    answer = await served.error("POST", path, headers=BEARER, data=b"x" * 70_000)
    assert answer == (413, "content_too_large")
    status, _, _ = await served.ask("GET", "/healthz", headers={"X": "x" * 9000})
    assert status == 400
    assert served.view.drains == []


async def test_health_and_readiness(served: Served) -> None:
    """503 with the reason; each by its own question."""
    assert (await served.ask("GET", "/healthz"))[0] == 200
    assert (await served.ask("GET", "/readyz"))[0] == 200
    served.view.not_ready = "no map yet"
    status, body, _ = await served.ask("GET", "/readyz")
    assert (status, body["error"]["message"]) == (503, "no map yet")
    assert (await served.ask("GET", "/healthz"))[0] == 200
    served.view.living = False
    assert await served.error("GET", "/healthz") == (503, "dead")


async def test_metrics_are_those_of_the_registry(served: Served) -> None:
    """In the text form of Prometheus, or OpenMetrics where that is asked for."""
    status, text, headers = await served.ask("GET", "/metrics")
    assert status == 200
    assert "epp_fleet_leader 1.0\n" in text
    assert headers["Content-Type"].startswith("text/plain")
    _, text, _ = await served.ask(
        "GET", "/metrics", headers={"Accept": "application/openmetrics-text"}
    )
    assert text.endswith("# EOF\n")


async def test_the_page(served: Served) -> None:
    """HTML that may load only its own files, none of which any other site may show."""
    status, text, headers = await served.ask("GET", "/")
    assert (status, text[:15]) == (200, "<!doctype html>")
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert "://" not in text


async def test_the_pages_files(served: Served) -> None:
    """By type, asked for every time and sent once; nothing else of the disk is."""
    for name, kind in (("app.js", "text/javascript"), ("style.css", "text/css")):
        status, text, headers = await served.ask("GET", f"/page/{name}")
        assert (status, headers["Content-Type"]) == (200, f"{kind}; charset=utf-8")
        assert headers["Cache-Control"] == "no-cache"
        tag = {"If-None-Match": headers["ETag"]}
        status, text, again = await served.ask("GET", f"/page/{name}", headers=tag)
        assert (status, text, again["ETag"]) == (304, "", headers["ETag"])
    for name in ("nothing.js", "..%2Fpage.py", "index.html/x"):
        assert (await served.error("GET", f"/page/{name}"))[0] == 404


async def test_a_pools_endpoints(served: Served) -> None:
    """As the owner tells them; 404 for no pool, 503 that says why it cannot be told."""
    ref = PoolRef("acme", "red")
    row = EndpointRow("red-0", "10.0.0.1:8000", True, 3.0, 1.0, 0.5, 1250, 4, 2, True)
    served.view.told[ref] = PoolEndpoints(
        "default", "worker-0", "i", "acme", "red", Hold.OWNER, (row,), 7, 5, 1.5
    )
    status, body, _ = await served.ask("GET", "/api/v1/pools/acme/red/endpoints")
    assert (status, body) == (
        200,
        {
            "format": 1,
            "namespace": "acme",
            "name": "red",
            "worker": "worker-0",
            "hold": "owner",
            "total": 7,
            "ready": 5,
            "requests_per_second": 1.5,
            "endpoints": [
                {
                    "pod": "red-0",
                    "address": "10.0.0.1:8000",
                    "ready": True,
                    "running": 3.0,
                    "waiting": 1.0,
                    "kv_usage": 0.5,
                    "age_seconds": 1.25,
                    "inflight": 4,
                    "failed_scrapes": 2,
                    "refused": True,
                }
            ],
            "answered_by": "coordinator-0",
        },
    )
    assert (await served.error("GET", "/api/v1/pools/acme/x/endpoints"))[0] == 404
    served.view.explained[PoolRef("acme", "x")] = EXPLAINED
    answer = await served.error("GET", "/api/v1/pools/acme/x/endpoints")
    assert answer == (503, "no_endpoints")
    served.view.told[ref] = EndpointsUnknown("worker-0, the owner: no answer within 1 s")
    status, body, headers = await served.ask("GET", "/api/v1/pools/acme/red/endpoints")
    assert (status, body["error"]["code"], headers["Retry-After"]) == (503, "no_endpoints", "1")
    assert body["error"]["message"] == "worker-0, the owner: no answer within 1 s"


async def test_a_port_that_is_taken_is_named(served: Served) -> None:
    """The address, so that the setting can be found."""
    with pytest.raises(FleetError, match=rf"cannot listen on 127\.0\.0\.1:{served.web.port}: "):
        await start_web(
            served.view,
            host="127.0.0.1",
            port=served.web.port,
            token=TOKEN,
            registry=CollectorRegistry(),
        )


async def test_an_empty_token_is_refused(served: Served) -> None:
    """It would let everybody in."""
    with pytest.raises(SettingsError, match=r"security\.token_file"):
        await start_web(
            served.view, host="127.0.0.1", port=0, token="", registry=CollectorRegistry()
        )


async def test_close_is_idempotent(served: Served) -> None:
    """And the port is free afterwards."""
    await served.web.close()
    await served.web.close()
    with pytest.raises(aiohttp.ClientConnectionError):
        await served.ask("GET", "/healthz")


EXPLAINED = Explained(
    PoolRef("acme", "red"), "u", Refused("the fleet claims all pools", ()), (), (), None, False
)


async def test_one_pool_explained(served: Served) -> None:
    """By namespace and name."""
    served.view.explained[EXPLAINED.ref] = EXPLAINED
    status, body, _ = await served.ask("GET", "/api/v1/pools/acme/red")
    assert status == 200
    assert body["format"] == 1
    assert (body["namespace"], body["name"], body["answered_by"]) == (
        "acme",
        "red",
        "coordinator-0",
    )
    assert body["claim"] == {"state": "refused", "why": "the fleet claims all pools"}
    assert body["leader"] == {"id": "coordinator-1", "http": "127.0.0.1:18080"}
    assert body["unknown_here"] == [
        "groups.route.version",
        "groups.service.error",
        "groups.considered.load",
        "groups.considered.cap",
    ]


async def test_an_unknown_pool(served: Served) -> None:
    """404 that says so; one that the source skips says why; before the first list it is not said
    that there is none."""
    assert await served.error("GET", "/api/v1/pools/acme/green") == (404, "unknown_pool")
    served.view.skips = ("a.yaml: InferencePool acme/green: spec: missing",)
    status, body, _ = await served.ask("GET", "/api/v1/pools/acme/green")
    assert (status, body["error"]["code"]) == (404, "skipped_pool")
    assert "spec: missing" in body["error"]["message"]
    served.view.skips = ()
    served.view.not_ready = "pools are not listed yet"
    status, body, headers = await served.ask("GET", "/api/v1/pools/acme/green")
    assert (status, body["error"]["code"], headers["Retry-After"]) == (503, "not_ready", "1")
    assert "pools are not listed yet" in body["error"]["message"]


async def test_before_the_first_list_a_pool_of_the_map_is_not_said_to_be_gone(
    served: Served,
) -> None:
    """Only the map knows it so far: 503, unless the lists are here."""
    served.view.explained[EXPLAINED.ref] = replace(EXPLAINED, decision=None)
    served.view.not_ready = "pools are not listed yet"
    assert await served.error("GET", "/api/v1/pools/acme/red") == (503, "not_ready")
    served.view.not_ready = None
    status, body, _ = await served.ask("GET", "/api/v1/pools/acme/red")
    assert (status, body["claim"]["state"]) == (200, "gone")


@pytest.mark.parametrize("path", ["/api/v1/pools/acme", "/api/v1/pools/a/b/c", "/api/v1/pools//x"])
async def test_what_is_no_pool_path(served: Served, path: str) -> None:
    """404 of the router, in the API's form."""
    assert await served.error("GET", path) == (404, "not_found")
