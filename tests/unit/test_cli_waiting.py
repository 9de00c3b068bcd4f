"""`drain --wait`, `undrain --wait` and `status --watch` against a fleet that changes as told."""

import asyncio
import json
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from fleet.cli import draining, watching
from fleet.cli.main import main
from fleet.cli.where import Fleet
from tests.json_pages import Answer, Pages, serving_pages
from tests.unit.test_cli_summary import pool, shard_map, worker

MAP, WORKERS = "/api/v1/map", "/api/v1/workers"


def in_turn(*answers: Any) -> Callable[[], Answer]:
    """Each answer once, the last one for ever."""
    left = list(answers)

    def answer() -> Answer:
        return 200, left.pop(0) if len(left) > 1 else left[0]

    return answer


def everybody(*states: str, **more: Any) -> dict[str, Any]:
    workers = [worker(n, state, **more) for n, state in enumerate(states)]
    return {"format": 1, "workers": workers}


@pytest.fixture
def pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pages]:
    accepted = (202, {"format": 1})
    served: Pages = {
        MAP: (200, shard_map(pool(1))),
        WORKERS: (200, everybody("draining", "alive")),
        "POST /api/v1/workers/worker-0/drain": accepted,
        "POST /api/v1/workers/worker-1/drain": accepted,
        "POST /api/v1/workers/worker-0/undrain": accepted,
    }
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    (tmp_path / "token").write_text("s3cret\n")
    monkeypatch.setenv("EPP_FLEET_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setattr(draining, "AGAIN_SECONDS", 0.0)
    with serving_pages(served) as url:
        monkeypatch.setenv("EPP_FLEET_COORDINATOR", url)
        yield served


THERE = pool(1, owners=["worker-1"], reason="drain")


def test_until_nothing_is_left(pages: Pages, capsys: pytest.CaptureFixture[str]) -> None:
    """A line for each step: two pools, one, strays, none."""
    two = shard_map(pool(1), pool(2))
    kept = {**THERE, "draining": ["worker-0"]}
    # The command itself looks at the map once, to know to whom it may show the token.
    pages[MAP] = in_turn(two, two, two, shard_map(pool(1), kept), shard_map(kept), shard_map(THERE))
    assert main(["drain", "worker-0", "--wait"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "worker-0 hands its pools to the others",
        "worker-0: 2 pools left",
        "worker-0: 1 pool left, 1 handed over and kept for stray streams",
        "worker-0: 0 pools left, 1 handed over and kept for stray streams",
        "worker-0: all handed over",
    ]


def test_out_of_time_it_says_what_is_left(pages: Pages, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 1."""
    assert main(["drain", "worker-0", "--wait", "--timeout", "0.1"]) == 1
    said = capsys.readouterr()
    assert said.err == "epp-fleet: worker-0: not done after 0.1 s: 1 pool left\n"


def test_a_worker_that_dies_meanwhile_is_told(
    pages: Pages, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its pools did not go the planned way, and nobody waits for the rest of the time."""
    pages[WORKERS] = (200, everybody("dead", "alive"))
    assert main(["drain", "worker-0", "--wait"]) == 1
    assert "worker-0: dead: its pools failed over" in capsys.readouterr().err


def test_that_it_drains_already_is_no_reason_not_to_wait(
    pages: Pages, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without --wait it is a refusal, and says what to do next."""
    conflict = {"error": {"code": "conflict", "message": "worker-0 is already draining"}}
    pages["POST /api/v1/workers/worker-0/drain"] = (409, conflict)
    pages[MAP] = (200, shard_map(THERE))
    assert main(["drain", "worker-0"]) == 1
    assert capsys.readouterr().err == (
        "epp-fleet: worker-0 is already draining; `epp-fleet drain worker-0 --wait` waits until it "
        "is done, `epp-fleet undrain worker-0` calls it off\n"
    )
    assert main(["drain", "worker-0", "--wait"]) == 0


@pytest.mark.parametrize("wait", [[], ["--wait"]])
def test_a_worker_that_does_not_take_the_mark_now_is_asked_again(
    pages: Pages, capsys: pytest.CaptureFixture[str], wait: list[str]
) -> None:
    """That is a conflict too, but not that it drains already; said once, and not for ever."""
    message = "worker-0 is not reachable at present; try again"
    later = (409, {"error": {"code": "conflict", "message": message}})
    answers = [later, later, (202, {"format": 1})]
    sent: list[int] = []

    def taken() -> Answer:
        sent.append(1)
        return answers.pop(0)

    pages["POST /api/v1/workers/worker-0/drain"] = taken
    pages[MAP] = (200, shard_map(THERE))
    assert main(["drain", "worker-0", *wait]) == 0
    said = "epp-fleet: worker-0 is not reachable at present; trying again\n"
    assert (len(sent), capsys.readouterr().err) == (3, said)
    pages["POST /api/v1/workers/worker-0/drain"] = later
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draining, "PATIENCE_SECONDS", 0.0)
        assert main(["drain", "worker-0", *wait]) == 1
    assert capsys.readouterr().err == f"epp-fleet: {message}\n"


def test_several_at_once_as_json(pages: Pages, capsys: pytest.CaptureFixture[str]) -> None:
    """Each by itself; one that is not there makes the whole 1, with a guess at what was meant."""
    pages[MAP] = (200, shard_map(THERE))
    argv = ["drain", "worker-0", "worker-00", "--wait", "-o", "json"]
    unknown = {"error": {"code": "unknown_worker", "message": "no live worker 'worker-00'"}}
    pages["POST /api/v1/workers/worker-00/drain"] = (404, unknown)
    assert main(argv) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["format"], document["action"], document["ok"]) == (1, "drain", False)
    good, bad = document["workers"]
    left = {"worker": "worker-0", "state": "draining", "pools": 0, "strays": 0}
    assert good == {
        "worker": "worker-0",
        "ok": True,
        "left": {**left, "streams_open": None},
        "error": None,
    }
    assert (bad["ok"], bad["left"], bad["error"]["code"]) == (False, None, "unknown_worker")
    assert "did you mean worker-0" in bad["error"]["message"]


def test_coordinators_may_be_away_for_a_while(
    pages: Pages, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is told once, and waiting goes on."""
    away = iter([(200, shard_map(THERE))] * 2 + [(503, {})] * 3)
    pages[MAP] = lambda: next(away, (200, shard_map(THERE)))
    assert main(["drain", "worker-0", "--wait"]) == 0
    text = capsys.readouterr().out
    assert text.count("no coordinator answers") == 1
    assert text.splitlines()[-1] == "worker-0: all handed over"


def test_undrain_waits_until_it_is_alive(pages: Pages, capsys: pytest.CaptureFixture[str]) -> None:
    """The mark is lifted by the worker itself."""
    draining_, alive = everybody("draining", "alive"), everybody("alive", "alive")
    pages[WORKERS] = in_turn(draining_, draining_, alive)
    assert main(["undrain", "worker-0", "--wait"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "worker-0: is draining",
        "worker-0: takes pools again",
    ]


# -- --watch --------------------------------------------------------------------------------------


async def watched(
    addresses: Sequence[str], until: Callable[[], bool], *, as_json: bool = False
) -> int:
    """Watch until a condition holds, then Ctrl-C."""
    fleet = Fleet(tuple(addresses), None)
    watching_ = asyncio.ensure_future(watching.watch(fleet, 0.001, as_json=as_json))
    async with asyncio.timeout(20):
        while not until() and not watching_.done():
            await asyncio.sleep(0.001)
    os.kill(os.getpid(), signal.SIGINT)
    return await watching_


class Told:
    """Standard output so far."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.text = ""

    def has(self, words: str) -> bool:
        self.text += self._capsys.readouterr().out
        return words in self.text


async def test_a_line_for_each_change(pages: Pages, capsys: pytest.CaptureFixture[str]) -> None:
    """And none while nothing changes; 130 in the end."""
    calm, moved = shard_map(pool(1)), shard_map(THERE)
    pages[MAP] = in_turn(*[calm] * 5, moved)
    told = Told(capsys)
    address = os.environ["EPP_FLEET_COORDINATOR"]
    assert await watched([address], lambda: told.has("worker-1 (drain)")) == 130
    lines = [line.split("  ", 1)[1] for line in told.text.splitlines()]
    assert lines == [
        "map 3.9  leader coordinator-0; pools: 1 owned; workers: 1 alive, 1 draining",
        "map 3.9  pool acme/pool-00001: owner worker-0 -> worker-1 (drain)",
    ]


async def test_it_outlives_a_coordinator(pages: Pages, capsys: pytest.CaptureFixture[str]) -> None:
    """The other is asked; while none answers it says so once."""
    told = Told(capsys)
    address = os.environ["EPP_FLEET_COORDINATOR"]
    answers = iter([200, 200, 503, 503, 503])
    pages[MAP] = lambda: (next(answers, 200), shard_map(pool(1)))
    code = await watched(["http://127.0.0.1:1", address], lambda: told.has("answered again"))
    assert code == 130
    assert told.text.count("no coordinator answers") == 1


async def test_changes_as_json(pages: Pages, capsys: pytest.CaptureFixture[str]) -> None:
    """A whole document a line, with what changed."""
    pages[MAP] = in_turn(shard_map(pool(1)), shard_map(THERE))
    told = Told(capsys)
    address = os.environ["EPP_FLEET_COORDINATOR"]
    await watched([address], lambda: told.has("(drain)"), as_json=True)
    first, second = map(json.loads, told.text.splitlines())
    assert (first["format"], first["summary"]["pools"], first["pools"][0]) == (1, 1, pool(1))
    assert second["changes"] == ["pool acme/pool-00001: owner worker-0 -> worker-1 (drain)"]
    assert second["at"].endswith("Z")


def test_nobody_to_begin_with_is_3(capsys: pytest.CaptureFixture[str]) -> None:
    """As without --watch."""
    assert main(["status", "--watch", "--coordinator", "127.0.0.1:1"]) == 3
    assert "no coordinator answers" in capsys.readouterr().err
