"""`pools` and `workers` with filters; which fleet is meant; errors as JSON."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleet.cli.main import main
from fleet.cli.naming import did_you_mean
from fleet.cli.output import printable
from tests.json_pages import Pages, serving_pages
from tests.unit.test_cli_summary import pool, shard_map, worker

POOLS = (
    pool(1, since="2026-11-30T11:58:00Z"),
    pool(2, "unowned", since="2026-11-30T11:59:00Z"),
    pool(3, owners=["worker-1"], namespace="globex", since="2026-11-30T11:57:00Z"),
)
MANY = (
    worker(0, owned=2, load=5.0, zone="eu-1"),
    worker(1, "suspect", owned=4, load=1.0, zone="eu-2", why="silent: beat 2.1 s"),
    worker(2, "draining", owned=3, zone="eu-1"),
)


@pytest.fixture
def pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pages]:
    served: Pages = {
        "/api/v1/map": (200, shard_map(*POOLS)),
        "/api/v1/workers": (200, {"format": 1, "workers": list(MANY)}),
    }
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_RUNTIME_DIR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    with serving_pages(served) as url:
        monkeypatch.setenv("EPP_FLEET_COORDINATOR", url)
        yield served


def names(capsys: pytest.CaptureFixture[str], key: str) -> list[str]:
    document = json.loads(capsys.readouterr().out)
    assert document["format"] == 1
    return [each.get("id") or each["name"][-1] for each in document[key]]


@pytest.mark.parametrize(
    ("argv", "found"),
    [
        ([], ["1", "2", "3"]),
        (["--phase", "unowned"], ["2"]),
        (["--phase", "unowned", "--phase", "owned"], ["1", "2", "3"]),
        (["--owner", "worker-1"], ["3"]),
        (["--owner", "worker-1", "--owner", "worker-0"], ["1", "3"]),
        (["--namespace", "acme", "--phase", "owned"], ["1"]),
        (["--sort", "since"], ["3", "1", "2"]),
        (["--sort", "phase"], ["2", "1", "3"]),
        (["--sort", "owner", "--reverse"], ["3", "1", "2"]),
        (["--sort", "name", "--reverse"], ["3", "2", "1"]),
    ],
)
def test_pools(
    pages: Pages, capsys: pytest.CaptureFixture[str], argv: list[str], found: list[str]
) -> None:
    """Filters of one kind are alternatives, of several kinds all must hold."""
    assert main(["pools", "-o", "json", *argv]) == 0
    assert names(capsys, "pools") == found


@pytest.mark.parametrize(
    ("argv", "found"),
    [
        ([], [0, 1, 2]),
        (["--state", "suspect", "--state", "draining"], [1, 2]),
        (["--zone", "eu-1", "--sort", "load"], [2, 0]),
        (["--sort", "owned", "--reverse"], [1, 2, 0]),
        (["--sort", "zone", "--reverse"], [1, 0, 2]),
    ],
)
def test_workers(
    pages: Pages, capsys: pytest.CaptureFixture[str], argv: list[str], found: list[int]
) -> None:
    """The same; among equals by id."""
    assert main(["workers", "-o", "json", *argv]) == 0
    assert names(capsys, "workers") == [f"worker-{n}" for n in found]


def test_nothing_is_like_that(pages: Pages, capsys: pytest.CaptureFixture[str]) -> None:
    """It is said, with a guess at what was meant."""
    assert main(["pools", "--namespace", "akme"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("none of 3 pools is like that; did you mean acme?")
    assert main(["pools", "--owner", "worker-2"]) == 0
    assert capsys.readouterr().out == "none of 3 pools is like that\n"
    assert main(["workers", "--state", "dead"]) == 0
    assert capsys.readouterr().out == "none of 3 workers is like that\n"


@pytest.mark.parametrize("more", [[], ["--owner", "worker-0"]])
def test_an_owner_that_is_no_worker_is_1(
    pages: Pages, capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    """Also beside one that is; who is in the map alone is one too."""
    assert main(["pools", *more, "--owner", "worker1"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("epp-fleet: no worker 'worker1'; did you mean worker-1")
    assert main(["pools", "-o", "json", *more, "--owner", "nobody"]) == 1
    error = json.loads(capsys.readouterr().out)["error"]
    assert error == {"code": "unknown_worker", "message": "no worker 'nobody'"}
    pages["/api/v1/map"] = (200, shard_map(pool(1, owners=["forgotten"])))
    assert main(["pools", "-o", "json", "--owner", "forgotten"]) == 0


def test_pipes_are_not_cut(pages: Pages, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither names nor rows, and no blanks at the ends of lines."""
    name, owner = "n" * 253, "w" * 253
    pages["/api/v1/map"] = (200, shard_map(pool(1, owners=[owner], name=name)))
    assert main(["pools"]) == 0
    row = capsys.readouterr().out.splitlines()[1]
    assert row.split()[:2] == [f"acme/{name}", owner]
    assert row == row.rstrip()


def test_tenants_text_does_not_reach_the_terminal(
    pages: Pages, capsys: pytest.CaptureFixture[str]
) -> None:
    """A reason with an escape sequence in it is shown, not obeyed; JSON quotes it."""
    evil = "\x1b]0;gone\x07\x9b2J"
    pages["/api/v1/workers"] = (200, {"format": 1, "workers": [{**MANY[1], "why": evil}]})
    for command in ("workers", "status"):
        main([command])
        text = capsys.readouterr().out
        assert "gone" in text
        assert not {"\x1b", "\x07", "\x9b"} & set(text)
    main(["workers", "-o", "json"])
    assert json.loads(capsys.readouterr().out)["workers"][0]["why"] == evil
    assert printable({"a": ["\x00b", 1, None]}) == {"a": ["\N{REPLACEMENT CHARACTER}b", 1, None]}


def test_nor_does_the_text_of_a_refusal(pages: Pages, capsys: pytest.CaptureFixture[str]) -> None:
    """Why a pool is skipped has words of its owner's; some turn a line's order round."""
    message = "pool x is skipped: \x1b]0;gone\x07\x9b2J \u202eb\u2069\r"
    pages["/api/v1/pools/acme/x"] = (404, {"error": {"code": "skipped_pool", "message": message}})
    pages["/api/v1/map"] = (200, shard_map())
    assert main(["explain", "acme/x"]) == 1
    text = capsys.readouterr().err
    assert "gone" in text
    assert text.replace("\n", "").isprintable()


@pytest.mark.parametrize("how", ["commas", "again", "environment"])
def test_several_coordinators(
    pages: Pages, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    """The first is dead."""
    good = pages_url()
    argv = {
        "commas": ["--coordinator", f"127.0.0.1:1, {good}"],
        "again": ["--coordinator", "127.0.0.1:1", "--coordinator", good],
        "environment": [],
    }[how]
    both = f"127.0.0.1:1,{good}" if how == "environment" else "127.0.0.1:1"
    monkeypatch.setenv("EPP_FLEET_COORDINATOR", both)
    assert main(["pools", "-o", "json", *argv]) == 0
    assert names(capsys, "pools") == ["1", "2", "3"]
    assert main(["pools", "--coordinator", " , "]) == 2
    assert "--coordinator: no address" in capsys.readouterr().err


def pages_url() -> str:
    """Where the fixture serves."""
    import os

    return os.environ["EPP_FLEET_COORDINATOR"]


@pytest.mark.parametrize(
    ("argv", "code", "exit_code"),
    [
        (["status", "--coordinator", "127.0.0.1:1"], "unreachable", 3),
        (["status", "--coordinator", "ftp://x"], "settings", 2),
        (["explain", "acme/pool-0001"], "unknown_pool", 1),
        (["explain", "nothing"], "settings", 2),
        (["config", "check", "/nowhere.yaml"], "settings", 2),
        (["ca", "init", "--out", "/proc/none"], "settings", 2),
    ],
)
def test_errors_are_documents_too(
    pages: Pages, capsys: pytest.CaptureFixture[str], argv: list[str], code: str, exit_code: int
) -> None:
    """Standard output is one JSON document, and standard error is empty."""
    unknown = {"error": {"code": "unknown_pool", "message": "there is no such pool"}}
    pages["/api/v1/pools/acme/pool-0001"] = (404, unknown)
    assert main([*argv, "-o", "json"]) == exit_code
    said = capsys.readouterr()
    document = json.loads(said.out)
    assert (document["format"], document["error"]["code"]) == (1, code)
    assert said.err == ""
    if code == "unknown_pool":
        assert "did you mean acme/pool-00001" in document["error"]["message"]


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["pools", "--phase", "lost", "-o", "json"], "argument --phase: invalid choice: 'lost'"),
        (["plan", "--output=json"], "one of the arguments --remove --workers is required"),
        (["drain", "-ojson"], "the following arguments are required: W"),
    ],
)
def test_usage_errors_are_documents_too(
    argv: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 2, and nothing on standard error."""
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2
    said = capsys.readouterr()
    document = json.loads(said.out)
    assert document["error"]["code"] == "settings"
    assert says in document["error"]["message"]
    assert said.err == ""


@pytest.mark.parametrize(
    ("typed", "guess"),
    [
        ("acme/lama-8b", "did you mean acme/llama-8b?"),
        ("llama-8b", "did you mean acme/llama-8b?"),
        ("amce/llama-8b", "did you mean acme/llama-8b?"),
        ("zebra", ""),
    ],
)
def test_guesses(typed: str, guess: str) -> None:
    """What comes near, by the whole name or by its last part."""
    assert did_you_mean(typed, ["acme/llama-8b", "initech/phi-4"]) == guess


@pytest.mark.parametrize(
    ("names", "guess"),
    [
        (["w-1", "w-2"], "did you mean w-2 or w-1?"),
        (["w-1", "w-2", "w-3"], "did you mean w-3, w-2 or w-1?"),
    ],
)
def test_several_guesses_are_a_sentence(names: list[str], guess: str) -> None:
    """With one `or`."""
    assert did_you_mean("w-9", names) == guess


def test_a_coordinator_of_another_kind_is_told(
    pages: Pages, capsys: pytest.CaptureFixture[str]
) -> None:
    """No traceback for an answer that lacks something."""
    documents: Any = [{"format": 1}, {"format": 1, "pools": [{}]}, {"format": 1, "pools": None}]
    for document in documents:
        pages["/api/v1/map"] = (200, document)
        for command in ("status", "pools"):
            assert main([command]) == 1
            assert "the coordinator's answer lacks something" in capsys.readouterr().err
