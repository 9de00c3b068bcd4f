"""`epp-fleet plan` and `GET /api/v1/plan`: a question about another number of workers."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from coordinator.web import start_web
from coordinator.whatif import Premises
from fleet.cli.main import main
from fleet.model import LeaderInfo, MemberState, MemberStatus
from fleet.settings.model import PlacementSettings
from tests.fake_view import FakeView
from tests.json_pages import Pages, serving_pages
from tests.placed_fleet import PlacedFleet

PLAN: dict[str, Any] = {
    "format": 1,
    "epoch": 3,
    "version": 5,
    "question": {"remove": "w1", "workers": None},
    "groups": 60,
    "moved": 20,
    "moves": [
        {"source": "w1", "target": "w0", "reason": "drain", "groups": 11},
        {"source": "w1", "target": "w2", "reason": "drain", "groups": 9},
    ],
    "workers": [
        {
            "id": name,
            "fate": fate,
            "owned_before": 20,
            "owned_after": after,
            "load_before": 20.0,
            "load_after": float(after),
        }
        for name, fate, after in (("w0", "stays", 31), ("w1", "leaves", 0), ("w2", "stays", 29))
    ],
    "balance_before": 1.0,
    "balance_after": 1.033,
    "loads_known": True,
    "leader": {"id": "coordinator-0", "http": "h:1"},
    "answered_by": "coordinator-0",
}
WITHOUT = "/api/v1/plan?remove=w1"


@pytest.fixture
def pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pages]:
    served: Pages = {WITHOUT: (200, PLAN)}
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    with serving_pages(served) as url:
        monkeypatch.setenv("EPP_FLEET_COORDINATOR", url)
        yield served


def test_what_moves_and_what_the_balance_becomes(
    pages: Pages, capsys: pytest.CaptureFixture[str]
) -> None:
    """Head line, a row for each worker, a row for each pair of workers."""
    assert main(["plan", "--remove", "w1"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert " ".join(lines[0]) == ("without w1: 20 of 60 groups move; fullest/mean 1.00 -> 1.03")
    assert ["w0", "stays", "20", "31", "20.0", "31.0"] in lines
    assert ["w1", "leaves", "20", "0", "20.0", "0.0"] in lines
    assert ["w1", "w0", "drain", "11"] in lines
    assert lines[-1] == ["map", "3.5,", "answered", "by", "coordinator-0"]


def test_as_json(pages: Pages, capsys: pytest.CaptureFixture[str]) -> None:
    """The API's own document."""
    assert main(["plan", "--remove", "w1", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == PLAN


def test_a_follower_is_asked_only_if_the_leader_is_not_reached(
    pages: Pages, capsys: pytest.CaptureFixture[str]
) -> None:
    """It does not know loads; what it says is better than nothing, and said to be so."""
    follower = {**PLAN, "loads_known": False, "answered_by": "coordinator-1"}
    pages[WITHOUT] = (200, {**follower, "leader": {"id": "c", "http": "127.0.0.1:1"}})
    assert main(["plan", "--remove", "w1"]) == 0
    assert "only the leader knows loads" in capsys.readouterr().out
    with serving_pages({WITHOUT: (200, PLAN)}) as leader:
        pages[WITHOUT] = (200, {**follower, "leader": {"id": "c", "http": leader}})
        assert main(["plan", "--remove", "w1"]) == 0
    assert "answered by coordinator-0" in capsys.readouterr().out


def test_groups_without_a_worker_are_1(pages: Pages, capsys: pytest.CaptureFixture[str]) -> None:
    """The last worker would go."""
    nobody = [{"source": "w1", "target": None, "reason": "owner_dead", "groups": 60}]
    pages[WITHOUT] = (200, {**PLAN, "moves": nobody})
    assert main(["plan", "--remove", "w1"]) == 1
    assert "NOBODY" in capsys.readouterr().out


def test_an_unknown_worker_is_told(pages: Pages, capsys: pytest.CaptureFixture[str]) -> None:
    """A refusal, with the coordinator's own words."""
    error = {"error": {"code": "unknown_worker", "message": "no live worker 'x'"}}
    pages["/api/v1/plan?remove=x"] = (404, error)
    assert main(["plan", "--remove", "x"]) == 1
    assert capsys.readouterr().err == "epp-fleet: no live worker 'x'\n"


@pytest.mark.parametrize(
    "argv",
    [
        ["plan"],
        ["plan", "--workers", "0"],
        ["plan", "--workers", "x"],
        ["plan", "--workers", "1001"],
        ["plan", "--workers", "3", "--remove", "w1"],
        ["plan", "--remove", "w1", "--remove", "w2"],
    ],
)
def test_usage_errors_are_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Neither, both, one of them twice, or no number in range."""
    with pytest.raises(SystemExit) as exit_info:
        main(argv)
    assert exit_info.value.code == 2
    capsys.readouterr()


# -- the coordinator's side -----------------------------------------------------------------------


@pytest.fixture
async def asked() -> AsyncIterator[tuple[FakeView, str]]:
    """A coordinator with three workers and 60 groups, and its URL."""
    fleet = PlacedFleet(60)
    for number in range(3):
        fleet.add(f"w{number}")
    fleet.settle()
    assert fleet.map is not None
    members = [
        MemberStatus(member, MemberState.ALIVE, None, 0, 0) for member in fleet.members.values()
    ]
    view = FakeView(who=LeaderInfo("coordinator-0", "h:1", "h:2"))
    view.basis = Premises(fleet.map, members, {}, {}, PlacementSettings())
    web = await start_web(view, host="127.0.0.1", port=0, token="t", registry=CollectorRegistry())
    yield view, f"http://127.0.0.1:{web.port}/api/v1/plan"
    await web.close()


async def get(url: str) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as http, http.get(url) as answer:
        return answer.status, await answer.json()


async def test_the_api_answers_both_questions(asked: tuple[FakeView, str]) -> None:
    """With the same placement as the leader's own; the loads are known here."""
    _, url = asked
    status, plan = await get(f"{url}?remove=w1")
    assert status == 200
    assert plan["question"] == {"remove": "w1", "workers": None}
    assert plan["moved"] == sum(move["groups"] for move in plan["moves"]) > 15
    assert plan["loads_known"] is True
    assert plan["leader"] == {"id": "coordinator-0", "http": "h:1"}
    status, plan = await get(f"{url}?workers=6")
    assert status == 200
    assert len(plan["workers"]) == 6


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("", 400, "bad_request"),
        ("?workers=none", 400, "bad_request"),
        ("?remove=w1&workers=2", 400, "bad_request"),
        ("?remove=w9", 404, "unknown_worker"),
    ],
)
async def test_what_the_api_refuses(
    asked: tuple[FakeView, str], query: str, status: int, code: str
) -> None:
    """No question, or one about nobody."""
    _, url = asked
    found, body = await get(url + query)
    assert (found, body["error"]["code"]) == (status, code)


async def test_without_a_map_it_is_not_now(asked: tuple[FakeView, str]) -> None:
    """503: ask again."""
    view, url = asked
    view.basis = None
    status, body = await get(f"{url}?workers=2")
    assert (status, body["error"]["code"]) == (503, "no_map")
