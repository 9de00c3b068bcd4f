"""What a whole fleet writes to its logs while everything goes wrong: known events, no secrets."""

import contextlib
import json
import os
import re
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fleet.local.sample import POOLS
from tests.e2e.local_process import LocalProcess, local_process, wait_for
from tests.log_events import documented
from tests.valkey import running_valkey

pytestmark = pytest.mark.timeout(240)

PASSWORD = "pass-word-of-the-store"
PROMPT = "my-most-private-question"
STRANGE_TOKEN = "a-token-of-somebody-else"
OURS = ("coordinator.", "epp_worker.", "fleet.")
COMMON = {"time", "level", "process", "logger", "event", "repeats", "error", "traceback"}

IGNORED = "InferencePool acme/pinned: InvalidPin: annotation epp-fleet.dev/pin: 'colour' is unknown"

EXPECTED = {
    "coordinator up",
    "leading",
    "following",
    "settled",
    "map published",
    "worker joined",
    "drain mark commanded",
    "worker draining",
    "group moved",
    "worker dead",
    "store error",
    "store answers again",
    "manifest skipped",
    "manifest problem gone",
    "malformed HTTP request",
    "worker starts",
    "worker up",
    "leader connected",
    "share applied",
    "drain mark set",
    "connection fault",
    "store reachable",
}
"""Each decision and fault of the scene has its line."""


SETTINGS = """\
log: {format: json}
source: {poll_seconds: 0.2}
worker: {quiet_seconds: 2}
"""

PINNED = """\
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata:
  {name: pinned, namespace: acme, uid: pool-pinned, annotations: {epp-fleet.dev/pin: colour=red}}
spec:
  selector: {matchLabels: {app: pinned}}
  targetPorts: [{number: 8000}]
  endpointPickerRef: {name: pinned-epp, port: {number: 9002}}
"""


@dataclass
class Told:
    """What was written anywhere.

    Attributes:
        logs: by process, workers and coordinators alone.
        others: outputs, error answers and the other processes' logs, by where they are from.
        token: the fleet's.
        commands: command lines of its processes.
    """

    logs: dict[str, list[str]] = field(default_factory=dict)
    others: dict[str, str] = field(default_factory=dict)
    token: str = ""
    commands: list[str] = field(default_factory=list)


def _ask(url: str, body: bytes, **headers: str) -> str:
    """Status and text of any answer; what is refused is what is wanted here."""
    request = urllib.request.Request(url, body, headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return f"{answer.status} {answer.read().decode(errors='replace')}"
    except urllib.error.HTTPError as error:
        with error:
            return f"{error.code} {error.read().decode(errors='replace')}"
    except OSError as error:
        return f"- {error}"


def _shout(address: str, raw: bytes) -> None:
    """Send what no port here understands."""
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 2) as link:
        link.sendall(raw)
        link.settimeout(2)
        link.recv(4096)


def _requests(state: dict[str, Any], told: Told) -> None:
    """Good, malformed and unknown ones, each with the prompt in it."""
    chat = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 2}
    good = f"http://{state['gateway']}/{POOLS[0].namespace}/{POOLS[0].name}/v1/chat/completions"
    answer = _ask(good, json.dumps({"model": POOLS[0].model, **chat}).encode())
    assert answer.startswith("200"), answer
    for what, body in {
        "malformed": b'{"model": "m", "messages": "' + PROMPT.encode(),
        "no model": json.dumps(chat).encode(),
        "unknown model": json.dumps({"model": "nobody", **chat}).encode(),
        "array": json.dumps([PROMPT]).encode(),
        "not utf-8": b'{"model": "\xff' + PROMPT.encode() + b'"}',
    }.items():
        told.others[f"answer: {what}"] = _ask(good, body)
    leader = state["coordinators"][0]["http"]
    bearer = f"Bearer {STRANGE_TOKEN}"
    refused = _ask(f"http://{leader}/api/v1/workers/worker-0/drain", b"", authorization=bearer)
    assert refused.startswith(("401", "403")), refused
    told.others["answer: strange token"] = refused
    worker = state["workers"][0]
    for address in (leader, *(worker[each] for each in ("ext_proc", "health", "internal", "http"))):
        _shout(address, f"GET /{PROMPT} HTTP/9\r\nAuthorization: {bearer}\r\n\r\n".encode())
        _shout(address, b"\x16\x03\x01\x00\x05" + PROMPT.encode())


def _logs(state: dict[str, Any]) -> dict[str, str]:
    folder = Path(state["folder"]) / "logs"
    return {path.stem: path.read_text(errors="replace") for path in folder.glob("*.log")}


def _said(state: dict[str, Any], event: str, process: str = "") -> bool:
    wanted = f'"event": {json.dumps(event)}'
    return any(wanted in text for name, text in _logs(state).items() if process in name)


def _scene(fleet: LocalProcess, valkey: Any) -> Told:
    told, state = Told(), fleet.wait_ready()
    told.token = Path(state["token_file"]).read_text().strip()
    pids = {each["id"]: each["pid"] for kind in ("coordinators", "workers") for each in state[kind]}
    for pid in fleet.family():
        with contextlib.suppress(OSError):
            told.commands.append(Path(f"/proc/{pid}/cmdline").read_text(errors="replace"))
    _requests(state, told)
    broken = Path(state["manifests"]) / "zz-broken.yaml"
    broken.write_text("apiVersion: inference.networking.k8s.io/v1\nkind: InferencePool\n")
    wait_for(lambda: _said(state, "manifest skipped"), 20, "the broken manifest is told")
    broken.write_text(PINNED)
    wait_for(lambda: IGNORED in fleet.output, 20, "a pin that is ignored is on the console")
    broken.unlink()
    wait_for(lambda: _said(state, "manifest problem gone"), 20, "and that it is gone")
    valkey.kill()
    wait_for(lambda: _said(state, "store error", "coordinator"), 20, "the store is missed")
    valkey.start()
    wait_for(lambda: _said(state, "store answers again"), 20, "the store is back")
    drained = fleet.run("drain", "worker-1", "--wait", "--timeout", "40")
    assert drained.returncode == 0, drained.stderr
    assert drained.stdout.splitlines()[-1] == "worker-1: all handed over"
    wait_for(lambda: _said(state, "group moved"), 20, "something moves")
    os.kill(pids["worker-2"], signal.SIGKILL)
    wait_for(lambda: _said(state, "worker dead"), 20, "the death is told")
    leader = json.loads(fleet.run("status", "-o", "json").stdout)["leader"]["id"]
    os.kill(pids[leader], signal.SIGKILL)
    others = [name for name in pids if name.startswith("coordinator") and name != leader]
    wait_for(lambda: any(_said(state, "map published", name) for name in others), 20, "a new map")
    for command in (["status"], ["explain", POOLS[0].name], ["drain", "nobody"], ["history"]):
        done = fleet.run(*command)
        told.others[" ".join(command)] = done.stdout + done.stderr
    for name, text in _logs(state).items():
        if name.startswith(("coordinator", "worker")):
            told.logs[name] = text.splitlines()
        else:
            told.others[f"log: {name}"] = text
    assert fleet.stop() == 0
    told.others["output"] = fleet.output
    return told


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    home = tmp_path_factory.mktemp("logs")
    config = home / "settings.yaml"
    config.write_text(SETTINGS)
    with running_valkey(arguments=["--requirepass", PASSWORD]) as valkey:
        url = f"redis://:{PASSWORD}@127.0.0.1:{valkey.port}/0"
        with local_process(home, "--redis-url", url, "--config", str(config)) as fleet:
            yield _scene(fleet, valkey)


def test_each_line_is_json_of_a_known_event(told: Told) -> None:
    """With the keys of docs/logs.md and no others; lines of libraries have their own events."""
    page = documented()
    assert len(told.logs) == 6
    for process, lines in told.logs.items():
        assert lines
        for line in lines:
            entry = json.loads(line)
            assert entry["process"] == process
            assert {"time", "level", "logger", "event"} <= entry.keys()
            if not entry["logger"].startswith(OURS):
                assert entry["level"] in ("warning", "error"), line
                continue
            assert entry["event"] in page, line
            levels, _, keys, _ = page[entry["event"]]
            assert entry["level"] in levels.split(", "), line
            known = {word.strip("`") for word in keys.split()}
            free = "<reason>_<outcome>" in known
            odd = entry.keys() - COMMON - known
            assert not odd or (free and all(re.fullmatch(r"[a-z_]+", key) for key in odd)), line


def test_nothing_is_a_fault_of_ours(told: Told) -> None:
    """Whatever was done to the fleet, no line has a traceback."""
    faults = [line for lines in told.logs.values() for line in lines if '"traceback"' in line]
    assert faults == []


def test_each_decision_has_its_line(told: Told) -> None:
    """Elections, verdicts, moves, drains, the store, sources, hostile peers."""
    found = {json.loads(line)["event"] for lines in told.logs.values() for line in lines}
    assert EXPECTED - found == set()


def test_no_secret_is_anywhere(told: Told) -> None:
    """Neither in a log nor in an answer, nor in what commands print."""
    everything = {**{name: "\n".join(lines) for name, lines in told.logs.items()}, **told.others}
    assert len(told.token) >= 32
    for secret in (PASSWORD, PROMPT, STRANGE_TOKEN, told.token):
        where = [name for name, text in everything.items() if secret in text]
        assert where == [], secret


def test_no_secret_is_in_the_process_list(told: Told) -> None:
    """Not even that of the command line itself."""
    assert len(told.commands) >= 8
    assert [line for line in told.commands if PASSWORD in line or told.token in line] == []
