"""Commands over the coordinator's HTTP side: who may, who does, and what becomes of them."""

from collections.abc import AsyncIterator

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Gauge

from coordinator.view import DrainConflict, NotLeading, UnknownWorker
from coordinator.web import commands as commands_module
from coordinator.web import start_web
from fleet.errors import SettingsError, StoreUnavailable
from fleet.model import LeaderInfo
from tests.fake_view import BEARER, OTHER, TOKEN, FakeView, Served


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    registry = CollectorRegistry()
    Gauge("epp_fleet_leader", "Whether this coordinator leads.", registry=registry).set(1)
    view = FakeView()
    web = await start_web(view, host="127.0.0.1", port=0, token=TOKEN, registry=registry)
    async with aiohttp.ClientSession() as client:
        yield Served(view, web, client)
    await web.close()


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


async def test_an_empty_token_is_refused(served: Served) -> None:
    """It would let everybody in."""
    with pytest.raises(SettingsError, match=r"security\.token_file"):
        await start_web(
            served.view, host="127.0.0.1", port=0, token="", registry=CollectorRegistry()
        )
