"""`epp-fleet history` and `GET /api/v1/history`: what moves, what moved, and how it ended."""

import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from coordinator.web import start_web
from fleet.cli.main import main
from fleet.errors import StoreUnavailable
from fleet.model import EpochVersion, GroupKey, Phase, Placement, PoolId, PoolRef, Reason
from fleet.store.contract import Move
from tests.fake_view import FakeView, empty_map
from tests.json_pages import Pages, serving_pages

ALL = "/api/v1/history?limit=100"


def move(
    service: str, source: str, target: str, *, outcome: str = "done", at: float = 60.0
) -> Move:
    return Move(
        group=f"ns/{service}-epp:9002",
        source=source,
        target=target,
        reason="drain" if source else "initial",
        version=EpochVersion(3, 7),
        started=at - 1.25,
        finished=at,
        outcome=outcome,
    )


def placement(service: str, **changes: Any) -> Placement:
    key = GroupKey("ns", f"{service}-epp", 9002)
    pools = (PoolId(PoolRef("ns", service), "u"),)
    owned = Placement(key, pools, Phase.OWNED, ("w0",), None, Reason.INITIAL, 0.0)
    return replace(owned, **changes)


# -- the coordinator's side -----------------------------------------------------------------------


@pytest.fixture
async def asked() -> AsyncIterator[tuple[FakeView, str]]:
    """A coordinator that knows a pool `a` at rest and a pool `b` on its way, and its URL."""
    moving = {"phase": Phase.MOVING, "moving_to": "w2", "reason": Reason.DRAIN}
    placements = {p.group: p for p in (placement("a"), placement("b", **moving))}
    view = FakeView(map=replace(empty_map(9), placements=placements))
    view.past = (move("b", "w1", "w0"), move("a", "", "w0"), move("gone", "", "w0"))
    web = await start_web(view, host="127.0.0.1", port=0, token="t", registry=CollectorRegistry())
    yield view, f"http://127.0.0.1:{web.port}/api/v1/history"
    await web.close()


async def get(url: str) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as http, http.get(url) as answer:
        return answer.status, await answer.json()


async def test_moves_under_way_and_moves_that_ended(asked: tuple[FakeView, str]) -> None:
    """The latest first; times, and the map that made each public; a first owner has no source."""
    _, url = asked
    status, found = await get(url)
    assert status == 200
    assert found["under_way"] == [
        {"group": "ns/b-epp:9002", "source": "w0", "target": "w2", "reason": "drain"}
    ]
    assert [each["group"] for each in found["moves"]] == [
        "ns/b-epp:9002",
        "ns/a-epp:9002",
        "ns/gone-epp:9002",
    ]
    assert found["moves"][0] == {
        "group": "ns/b-epp:9002",
        "source": "w1",
        "target": "w0",
        "reason": "drain",
        "outcome": "done",
        "started": "1970-01-01T00:00:58.750Z",
        "finished": "1970-01-01T00:01:00.000Z",
        "epoch": 3,
        "version": 7,
        "why": "",
    }
    assert found["moves"][1]["source"] is None
    assert (found["format"], found["answered_by"]) == (1, "coordinator-0")


async def test_of_one_pool_and_no_more_than_asked_for(asked: tuple[FakeView, str]) -> None:
    """A pool's moves are found however many of others came after them."""
    view, url = asked
    view.past = (*[move("b", "w1", "w0")] * 200, move("a", "", "w0"))
    _, found = await get(f"{url}?pool=ns/a")
    assert [each["group"] for each in found["moves"]] == ["ns/a-epp:9002"]
    assert found["under_way"] == []
    _, found = await get(f"{url}?limit=7")
    assert len(found["moves"]) == 7
    _, found = await get(url)
    assert len(found["moves"]) == 100


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("?limit=0", 400, "bad_request"),
        ("?limit=1001", 400, "bad_request"),
        ("?limit=x", 400, "bad_request"),
        ("?pool=a", 400, "bad_request"),
        ("?pools=ns/a", 400, "bad_request"),
        ("?pool=ns/none", 404, "unknown_pool"),
    ],
)
async def test_what_the_api_refuses(
    asked: tuple[FakeView, str], query: str, status: int, code: str
) -> None:
    """Bad questions, and pools that nobody knows."""
    found, body = await get(asked[1] + query)
    assert (found, body["error"]["code"]) == (status, code)


async def test_without_the_store_it_is_not_now(asked: tuple[FakeView, str]) -> None:
    """503: the moves that ended are nowhere else."""
    view, url = asked
    view.no_moves = StoreUnavailable("away")
    status, body = await get(url)
    assert (status, body["error"]["code"]) == (503, "no_history")


# -- the command ----------------------------------------------------------------------------------

HISTORY: dict[str, Any] = {
    "format": 1,
    "under_way": [{"group": "ns/b-epp:9002", "source": "w0", "target": "w2", "reason": "drain"}],
    "moves": [
        {
            "group": "ns/a-epp:9002",
            "source": None,
            "target": "w0",
            "reason": "initial",
            "outcome": "done",
            "started": "2026-11-30T11:58:00.000Z",
            "finished": "2026-11-30T11:58:01.250Z",
            "epoch": 3,
            "version": 7,
            "why": "",
        }
    ],
    "leader": None,
    "answered_by": "coordinator-0",
}


@pytest.fixture
def pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pages]:
    served: Pages = {ALL: (200, HISTORY)}
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    with serving_pages(served) as url:
        monkeypatch.setenv("EPP_FLEET_COORDINATOR", url)
        yield served


def test_one_row_a_move(pages: Pages, capsys: pytest.CaptureFixture[str]) -> None:
    """What is under way comes first."""
    assert main(["history"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("1 move ended, 1 under way; nothing was lost\n\n")
    lines = [line.split() for line in text.splitlines()[2:]]
    assert lines[1] == ["ns/b-epp:9002", "w0", "w2", "drain", "moving", "-", "-", "-"]
    assert lines[2][:5] == ["ns/a-epp:9002", "-", "w0", "initial", "done"]
    assert lines[2][-3:] == ["1.25", "s", "3.7"]


def test_a_death_is_told_once(pages: Pages, capsys: pytest.CaptureFixture[str]) -> None:
    """Below the moves that followed from it: who, and what it was known by."""
    lost = {**HISTORY["moves"][0], "source": "w1", "reason": "owner_dead", "why": "pod gone"}
    gainer = {**lost, "target": "w2", "outcome": "gainer_dead", "why": "silent: beat 2.1 s"}
    pages[ALL] = (200, {**HISTORY, "moves": [lost, {**lost, "group": "ns/c:1"}, gainer]})
    assert main(["history"]) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "w1 in map 3.7: pod gone",
        "w2 in map 3.7: silent: beat 2.1 s",
    ]


@pytest.mark.parametrize(
    ("moves", "says"),
    [
        ([{"outcome": "deadline", "reason": "drain"}], "1 failed: the new owner was not ready"),
        ([{"outcome": "gainer_dead", "reason": "join"}] * 2, "2 failed"),
        ([{"outcome": "done", "reason": "owner_dead"}], "1 after a death: what the dead worker"),
        ([{"outcome": "cancelled", "reason": "drain"}], "1 called off; nothing was lost"),
    ],
)
def test_whether_anything_was_lost(
    pages: Pages,
    capsys: pytest.CaptureFixture[str],
    moves: list[dict[str, str]],
    says: str,
) -> None:
    """Failed hand-overs and deaths are told first, and nothing else is called a loss."""
    found = [{**HISTORY["moves"][0], "source": "w1", **move} for move in moves]
    pages[ALL] = (200, {**HISTORY, "moves": found})
    assert main(["history"]) == 0
    head = capsys.readouterr().out.partition("\n\n")[0]
    assert says in head.replace("\n", " ")
    assert ("nothing was lost" in head) is ("nothing" in says)


def test_older_moves_are_not_spoken_of(pages: Pages, capsys: pytest.CaptureFixture[str]) -> None:
    """As many as were asked for: older ones, which may have lost something, are not shown."""
    pages["/api/v1/history?limit=1"] = (200, HISTORY)
    assert main(["history", "--limit", "1"]) == 0
    head = capsys.readouterr().out.partition("\n\n")[0].replace("\n", " ")
    assert head == (
        "the latest 1 move that ended, 1 under way; nothing was lost in these (more: --limit)"
    )


def test_as_json(pages: Pages, capsys: pytest.CaptureFixture[str]) -> None:
    """The API's own document and a summary; of one pool, as many as asked for."""
    pages["/api/v1/history?limit=5&pool=ns/a"] = (200, HISTORY)
    assert main(["history", "ns/a", "--limit", "5", "-o", "json"]) == 0
    counts = {"under_way": 1, "ended": 1, "done": 1}
    summary = {**counts, "cancelled": 0, "failed": 0, "after_death": 0}
    assert json.loads(capsys.readouterr().out) == {**HISTORY, "summary": summary}


def test_nothing_yet(pages: Pages, capsys: pytest.CaptureFixture[str]) -> None:
    """Said in words."""
    pages[ALL] = (200, {**HISTORY, "moves": [], "under_way": []})
    assert main(["history"]) == 0
    assert capsys.readouterr().out == "nothing has moved\n"


def test_an_unknown_pool_is_told(pages: Pages, capsys: pytest.CaptureFixture[str]) -> None:
    """A refusal, with the coordinator's own words."""
    error = {"error": {"code": "unknown_pool", "message": "there is no InferencePool ns/x"}}
    pages["/api/v1/history?limit=100&pool=ns/x"] = (404, error)
    assert main(["history", "ns/x"]) == 1
    assert capsys.readouterr().err == "epp-fleet: there is no InferencePool ns/x\n"


def test_a_bare_name_is_completed_from_the_map(pages: Pages) -> None:
    """As `explain` does it."""
    pages["/api/v1/map"] = (200, {"pools": [{"namespace": "ns", "name": "a"}]})
    pages["/api/v1/history?limit=100&pool=ns/a"] = (200, HISTORY)
    assert main(["history", "a"]) == 0


@pytest.mark.parametrize("name", ["b", "", "ns/", "/a"])
def test_what_is_no_name_of_a_pool_is_2(
    pages: Pages, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A matter of usage, not of coordinators that do not answer."""
    pages["/api/v1/map"] = (200, {"pools": [{"namespace": "ns", "name": "a"}]})
    assert main(["history", name]) == 2
    assert "say NAMESPACE/NAME" in capsys.readouterr().err


@pytest.mark.parametrize("limit", ["0", "x", "1001"])
def test_a_bad_limit_is_2(limit: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Told before anybody is asked."""
    with pytest.raises(SystemExit) as exit_info:
        main(["history", "--limit", limit])
    assert exit_info.value.code == 2
    capsys.readouterr()
