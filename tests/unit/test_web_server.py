"""The coordinator's HTTP side over a View in memory, asked through loopback."""

from collections.abc import AsyncIterator

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Gauge

from coordinator.web import start_web
from fleet.errors import FleetError
from tests.fake_view import BEARER, TOKEN, FakeView, Served, empty_map
from tests.web_scene import scene_of


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


async def test_close_is_idempotent(served: Served) -> None:
    """And the port is free afterwards."""
    await served.web.close()
    await served.web.close()
    with pytest.raises(aiohttp.ClientConnectionError):
        await served.ask("GET", "/healthz")
