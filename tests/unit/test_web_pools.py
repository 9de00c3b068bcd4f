"""One pool over the coordinator's HTTP side: its endpoints, and why it is where it is."""

from collections.abc import AsyncIterator
from dataclasses import replace

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Gauge

from coordinator.explain import Explained
from coordinator.ownership import Refused
from coordinator.view import EndpointsUnknown
from coordinator.web import start_web
from fleet.control.endpoint_messages import EndpointRow, PoolEndpoints
from fleet.model import Hold, PoolRef
from tests.fake_view import TOKEN, FakeView, Served


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    registry = CollectorRegistry()
    Gauge("epp_fleet_leader", "Whether this coordinator leads.", registry=registry).set(1)
    view = FakeView()
    web = await start_web(view, host="127.0.0.1", port=0, token=TOKEN, registry=registry)
    async with aiohttp.ClientSession() as client:
        yield Served(view, web, client)
    await web.close()


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
