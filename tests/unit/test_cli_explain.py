"""`epp-fleet explain` against a coordinator that says what the test wants."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coordinator.ownership import RefusalReason
from fleet.cli.explaining import IGNORED
from fleet.cli.main import main
from tests.json_pages import Pages, serving_pages

GROUP: dict[str, Any] = {
    "group": "acme/red-epp:9002",
    "role": "picker",
    "service": {"name": "red-epp", "port": 9002, "state": "ours", "note": None, "error": None},
    "route": {
        "where": "EndpointSlice acme/red-epp-7c2d91f0",
        "addresses": ["10.0.0.7:9002"],
        "version": "3.5",
    },
    "owners": ["epp-fleet-worker-6d5f7c9b8-x2x7z"],
    "standby": "epp-fleet-worker-6d5f7c9b8-k4k9q",
    "phase": "owned",
    "since": "2026-11-30T11:58:00Z",
    "reason": "owner_dead",
    "moving_to": None,
    "draining": [],
    "candidates": ["epp-fleet-worker-6d5f7c9b8-x2x7z", "epp-fleet-worker-6d5f7c9b8-k4k9q"],
}
POOL: dict[str, Any] = {
    "format": 1,
    "namespace": "acme",
    "name": "red",
    "uid": "3f6c2a54-8f2b-4a0e-9a53-7e1a6f1c9d20",
    "claim": {"state": "claimed", "why": "the fleet claims all pools"},
    "refusals": [],
    "groups": [GROUP],
    "problems": [],
    "epoch": 3,
    "version": 5,
    "leader": {"id": "coordinator-0", "http": "h:1"},
    "answered_by": "coordinator-0",
    "unknown_here": [],
}
REFUSED = {
    **POOL,
    "claim": {"state": "refused", "why": "the fleet claims all pools"},
    "groups": [],
    "refusals": [
        {
            "reason": "ServiceNotLabelled",
            "message": "Service acme/red-epp was not created by this fleet; to have it served, "
            "label it epp-fleet.dev/fleet=default, or name a Service that does not exist",
            "group": "acme/red-epp:9002",
        }
    ],
}


RED = "/api/v1/pools/acme/red"


@pytest.fixture
def pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pages]:
    served: Pages = {RED: (200, POOL)}
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    with serving_pages(served) as url:
        monkeypatch.setenv("EPP_FLEET_COORDINATOR", url)
        yield served


def output(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


def test_a_served_pool(pages: Pages, capsys: pytest.CaptureFixture[str]) -> None:
    """All of it, in 80 columns."""
    assert main(["explain", "acme/red"]) == 0
    lines = output(capsys)
    assert max(len(line) for line in lines) <= 80
    assert lines[:3] == [
        "pool        acme/red",
        "uid         3f6c2a54-8f2b-4a0e-9a53-7e1a6f1c9d20",
        "claim       claimed: the fleet claims all pools",
    ]
    text = "\n".join(lines)
    for expected in (
        "group       acme/red-epp:9002  (picker)",
        "service     red-epp:9002, ours",
        "reason      owner_dead",
        "owner       epp-fleet-worker-6d5f7c9b8-x2x7z",
        "stand-by    epp-fleet-worker-6d5f7c9b8-k4k9q",
        "route       10.0.0.7:9002, written as 3.5",
        "map 3.5, leader coordinator-0, answered by coordinator-0",
    ):
        assert expected in text
    assert "phase       owned for " in text


@pytest.mark.parametrize(
    ("workers", "expected"),
    [
        (["w0", "w1"], "pin         zone=z1: w0, w1"),
        ([], "pin         zone=z1; no worker meets it, so it is placed as without a pin"),
    ],
)
def test_a_pinned_pool(
    pages: Pages, capsys: pytest.CaptureFixture[str], workers: list[str], expected: str
) -> None:
    """Who may own it at present, or that nobody of these is there."""
    pinned = {**GROUP, "pin": {"text": "zone=z1", "workers": workers}}
    pages[RED] = (200, {**POOL, "groups": [pinned]})
    assert main(["explain", "acme/red"]) == 0
    assert expected in output(capsys)


def test_an_owner_that_is_suspect(pages: Pages, capsys: pytest.CaptureFixture[str]) -> None:
    """It owns the pool; people are told what is wrong with it."""
    why = "silent: beat 0 s, control 3 s"
    worker = {"id": "w0", "state": "suspect", "signal": "silent", "why": why}
    pages[RED] = (200, {**POOL, "groups": [{**GROUP, "unwell": [worker]}]})
    assert main(["explain", "acme/red"]) == 0
    assert f"unwell      w0 is suspect: {why}" in output(capsys)


def test_a_path_is_in_one_piece(pages: Pages, capsys: pytest.CaptureFixture[str]) -> None:
    """However long: it is to be copied. What stands before it is wrapped as ever."""
    file = f"/tmp/{'deep/' * 20}eds/acme~red-epp~9002.json"
    route = {"where": f"EDS file {file}", "addresses": ["10.0.0.7:9002"], "version": "3.5"}
    pages[RED] = (200, {**POOL, "groups": [{**GROUP, "route": route}]})
    assert main(["explain", "acme/red"]) == 0
    lines = output(capsys)
    at = lines.index("route       10.0.0.7:9002, written as 3.5, in EDS file")
    assert lines[at + 1] == f"            {file}"


def test_a_refused_pool_is_1(pages: Pages, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody owns it; reason and remedy are folded, not cut."""
    pages[RED] = (200, REFUSED)
    assert main(["explain", "acme/red"]) == 1
    lines = output(capsys)
    assert max(len(line) for line in lines) <= 80
    joined = " ".join(line.strip() for line in lines)
    assert "claim       refused: the fleet claims all pools" in lines
    assert "refused     ServiceNotLabelled: Service acme/red-epp was not created by this" in joined
    assert "or name a Service that does not exist" in joined


def test_a_pool_that_is_not_placed_is_1(pages: Pages, capsys: pytest.CaptureFixture[str]) -> None:
    """Claimed, but without an owner: its Service cannot be created."""
    service = {**GROUP["service"], "state": "missing", "error": "may not create services in acme"}
    bare = {
        **GROUP,
        "service": service,
        "route": None,
        "owners": [],
        "standby": None,
        "phase": "unowned",
        "since": None,
        "reason": None,
        "candidates": [],
    }
    pages[RED] = (200, {**POOL, "groups": [bare]})
    assert main(["explain", "acme/red"]) == 1
    text = "\n".join(output(capsys))
    assert "service     red-epp:9002, missing; may not create services in acme" in text
    assert "owner       -" in text


FOLLOWER = {**POOL, "answered_by": "coordinator-1", "unknown_here": ["groups.route.version"]}


def test_the_leader_is_asked_for_what_a_follower_does_not_know(
    pages: Pages, capsys: pytest.CaptureFixture[str]
) -> None:
    """At the address that the follower names."""
    with serving_pages({RED: (200, POOL)}) as url:
        address = url.removeprefix("http://")
        pages[RED] = (200, {**FOLLOWER, "leader": {"id": "coordinator-0", "http": address}})
        assert main(["explain", "acme/red"]) == 0
    assert "answered by coordinator-0" in capsys.readouterr().out


@pytest.mark.parametrize(
    "leader", [None, {"id": "c", "http": "127.0.0.1:1"}, {"id": "c", "http": ""}]
)
def test_without_a_leader_the_follower_is_believed(
    pages: Pages, capsys: pytest.CaptureFixture[str], leader: dict[str, str] | None
) -> None:
    """None, one that cannot be reached from here, one without an address."""
    pages[RED] = (200, {**FOLLOWER, "leader": leader})
    assert main(["explain", "acme/red"]) == 0
    text = capsys.readouterr().out
    assert "answered by coordinator-1" in text
    assert "only the leader knows: groups.route.version" in text


def test_json_is_the_document(pages: Pages, capsys: pytest.CaptureFixture[str]) -> None:
    """As the coordinator said it, with its exit code."""
    pages[RED] = (200, REFUSED)
    assert main(["explain", "acme/red", "-o", "json"]) == 1
    assert json.loads(capsys.readouterr().out) == REFUSED


def test_a_name_alone_if_it_is_unique(pages: Pages, capsys: pytest.CaptureFixture[str]) -> None:
    """Looked up in the shard map; else the choices are named."""
    row = {"namespace": "acme", "name": "red"}
    pages["/api/v1/map"] = (200, {"pools": [row, {**row, "name": "green"}]})
    assert main(["explain", "red"]) == 0
    capsys.readouterr()
    pages["/api/v1/map"] = (200, {"pools": [row, {**row, "namespace": "beta"}]})
    assert main(["explain", "red"]) == 2
    assert "say acme/red or beta/red" in capsys.readouterr().err
    assert main(["explain", "blue"]) == 2
    assert "no pool in the shard map has this name; say NAMESPACE/NAME" in capsys.readouterr().err


def test_a_pool_that_does_not_exist(pages: Pages, capsys: pytest.CaptureFixture[str]) -> None:
    """The coordinator's message, and 1: it was reached."""
    message = "there is no InferencePool acme/blue among those that this fleet watches"
    error = {"error": {"code": "unknown_pool", "message": message}}
    pages["/api/v1/pools/acme/blue"] = (404, error)
    assert main(["explain", "acme/blue"]) == 1
    assert capsys.readouterr().err == f"epp-fleet: {message}\n"


def test_an_older_coordinator_has_no_such_page(
    pages: Pages, capsys: pytest.CaptureFixture[str]
) -> None:
    """A 404 of the router is not an answer about the pool."""
    assert main(["explain", "acme/old"]) == 3
    assert "there is nothing here" in capsys.readouterr().err


def test_an_answer_that_lacks_something(pages: Pages, capsys: pytest.CaptureFixture[str]) -> None:
    """Said, not traced."""
    pages[RED] = (200, {"format": 1})
    assert main(["explain", "acme/red"]) == 1
    assert "the coordinator's answer lacks something" in capsys.readouterr().err


def test_parameters_of_plugins_are_not_cut(
    pages: Pages, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where the output goes to a pipe a parameter stands on one line, by its whole name."""
    row = {
        "profile": "",
        "role": "saturation detector",
        "plugin": "utilization-detector",
        "type": "utilization-detector",
        "weight": None,
        "parameters": '{"metricsStalenessThreshold": "200ms", "headroom": 0.0}',
        "left_out": False,
    }
    longest = {
        **row,
        "plugin": "kv-cache-utilization-scorer",
        "type": "kv-cache-utilization-scorer",
    }
    picking = {"name": "built-in", "problem": "", "warnings": [], "rows": [row, longest]}
    pages[RED] = (200, {**POOL, "picking": picking})
    assert main(["explain", "acme/red", "--picking"]) == 0
    found = [line for line in output(capsys) if line.endswith("metricsStalenessThreshold: 200ms")]
    assert len(found) == 2


def test_an_annotation_that_is_ignored_is_a_warning(
    pages: Pages, capsys: pytest.CaptureFixture[str]
) -> None:
    """The pool is served: nothing is refused."""
    told = {"reason": "InvalidPin", "message": "the pin is ignored", "group": None}
    pages[RED] = (200, {**POOL, "refusals": [told]})
    assert main(["explain", "acme/red"]) == 0
    assert "warning     InvalidPin: the pin is ignored" in output(capsys)
    assert {*IGNORED} <= {*RefusalReason}


CONSIDERED = [
    {
        "worker": "epp-fleet-worker-6d5f7c9b8-x2x7z",
        "order": 1,
        "verdict": "owner",
        "why": "given it at its first placement",
        "load": 3.5,
        "cap": 4.32,
    },
    {
        "worker": "w1",
        "order": 2,
        "verdict": "over_cap",
        "why": "would carry 5.0 with it, over its cap of 4.3",
        "load": 4.0,
        "cap": 4.32,
    },
    {
        "worker": "w2",
        "order": 9,
        "verdict": "dead",
        "why": "dead: refused: both ports",
        "load": None,
        "cap": None,
    },
]


def test_all_candidates_and_why(pages: Pages, capsys: pytest.CaptureFixture[str]) -> None:
    """In the ring's order, in 80 columns; a dash for what nobody told."""
    pages[RED] = (200, {**POOL, "groups": [{**GROUP, "considered": CONSIDERED}]})
    assert main(["explain", "acme/red"]) == 0
    lines = output(capsys)
    assert max(len(line) for line in lines) <= 80
    start = next(n for n, line in enumerate(lines) if line.startswith("RING"))
    assert lines[start].split() == ["RING", "WORKER", "IS", "LOAD/CAP", "WHY"]
    rows = " ".join(" ".join(lines[start + 1 :]).split())
    assert "1. " in rows
    assert "owner 3.5/4.3" in rows
    assert "2. w1 over cap 4.0/4.3" in rows
    assert "9. w2 dead - dead: refused: both ports" in rows
    assert not any(line.startswith("ring ") for line in lines), "said once"
    assert main(["explain", "acme/red", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["groups"][0]["considered"] == CONSIDERED


def test_what_it_picks_by_in_a_line(pages: Pages, capsys: pytest.CaptureFixture[str]) -> None:
    """Scorers with weights, and the picker; what is left out or has no say is not in it."""
    rows = [
        ("filter", "decode-filter", None, False),
        ("scorer", "queue-scorer", 2.0, False),
        ("scorer", "lora-affinity-scorer", 0.5, True),
        ("picker", "max-score-picker", None, False),
        ("saturation detector", "utilization-detector", None, False),
    ]
    names = ("role", "plugin", "weight", "left_out")
    shown = [
        {**dict(zip(names, row, strict=True)), "profile": "default", "parameters": ""}
        for row in rows
    ]
    picking = {"name": "chat", "problem": "", "warnings": [], "rows": shown}
    pages[RED] = (200, {**POOL, "picking": picking})
    assert main(["explain", "acme/red"]) == 0
    assert "            decode-filter, queue-scorer x2, max-score-picker" in output(capsys)


def test_where_to_look_next(pages: Pages, capsys: pytest.CaptureFixture[str]) -> None:
    """Whether anything was lost, and what if its owner went."""
    assert main(["explain", "acme/red"]) == 0
    assert output(capsys)[-2:] == [
        "was anything lost:  epp-fleet history acme/red",
        "without its owner:  epp-fleet plan --remove epp-fleet-worker-6d5f7c9b8-x2x7z",
    ]
