"""The commands against a coordinator that says what the test wants."""

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import pytest

from fleet import __version__
from fleet.cli import draining
from fleet.cli.main import main
from fleet.installed import is_compiled
from fleet.local.state import CoordinatorState, FleetState, write_state

POOL = {
    "namespace": "acme",
    "name": "red",
    "group": "acme/red-epp:9002",
    "owners": ["worker-0"],
    "standby": "worker-1",
    "phase": "owned",
    "since": "2026-11-30T11:58:00Z",
    "reason": "initial",
}
WORKER = {
    "id": "worker-0",
    "incarnation": "i",
    "state": "alive",
    "signal": None,
    "ext_proc": "127.0.0.1:1",
    "health": "127.0.0.1:2",
    "internal": "127.0.0.1:3",
    "http": "127.0.0.1:4",
    "owned": 1,
    "standby": 0,
    "load": {"streams_per_second": 1.0, "streams_open": 2},
    "epoch": 3,
    "version": 5,
    "loop_lag_ms": 0.4,
}


class _Server(ThreadingHTTPServer):
    told: "_Coordinator"


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        told = cast("_Server", self.server).told
        bearing = self.headers.get("authorization", "")
        told.reads.append(bearing)
        if told.wants and bearing != f"Bearer {told.wants}":
            error = {"error": {"code": "unauthorized", "message": "this needs a bearer token"}}
            self._answer(401, error)
            return
        pages: dict[str, Any] = {
            "/api/v1/map": told.shard_map(),
            "/api/v1/workers": {"format": 1, "workers": [WORKER]},
        }
        self._answer(200, pages[self.path])

    def do_POST(self) -> None:
        told = cast("_Server", self.server).told
        told.posts.append((self.path, self.headers.get("authorization", "")))
        if told.elected_after and len(told.posts) > told.elected_after:
            told.location = ""
        headers = {"Location": told.location + self.path} if told.location else {}
        error = {"error": {"code": "no", "message": "already draining"}}
        self._answer(307 if headers else told.status, error, headers)

    def _answer(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        raw = json.dumps(body).encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: Any) -> None:
        """Tests are quiet."""


@dataclass
class _Coordinator:
    """A replica: what it answers, and what it was sent."""

    address: str = ""
    pools: list[dict[str, Any]] = field(default_factory=lambda: [POOL])
    leader: str = ""
    location: str = ""
    elected_after: int = 0
    status: int = 202
    posts: list[tuple[str, str]] = field(default_factory=list)
    wants: str = ""
    """The token that reads need."""

    reads: list[str] = field(default_factory=list)
    """What the reads bore."""

    def shard_map(self) -> dict[str, Any]:
        return {
            "format": 1,
            "fleet": "default",
            "epoch": 3,
            "version": 5,
            "published_at": "2026-11-30T11:58:00Z",
            "leader": {"id": "coordinator-0", "http": self.leader or self.address},
            "pools": self.pools,
        }


@pytest.fixture
def coordinators() -> Iterator[tuple[_Coordinator, _Coordinator]]:
    servers, made = [], []
    for _ in range(2):
        server = _Server(("127.0.0.1", 0), _Handler)
        server.told = _Coordinator(f"127.0.0.1:{server.server_address[1]}")
        made.append(server.told)
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield made[0], made[1]
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_RUNTIME_DIR", "EPP_FLEET_COORDINATOR", "EPP_FLEET_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)


def _state(folder: Path, *addresses: str) -> None:
    (folder / "token").write_text("s3cret\n")
    state = FleetState(
        fleet="default",
        redis="redis://127.0.0.1:1/0",
        gateway=None,
        token_file=str(folder / "token"),
        folder=str(folder),
        coordinators=tuple(CoordinatorState(f"c-{a}", a, 1) for a in addresses),
        workers=(),
        manifests="/m",
    )
    write_state(folder / ".cache" / "epp-fleet" / "state.json", state)


Pair = tuple[_Coordinator, _Coordinator]
DEAD = "127.0.0.1:1"


def test_status_shows_map_and_workers(
    coordinators: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The state file's coordinators are tried in turn; a dead one is no error."""
    _state(tmp_path, DEAD, coordinators[0].address)
    assert main(["status"]) == 0
    text = capsys.readouterr().out
    assert "map 3.5" in text
    assert "acme/red" in text
    assert "worker-0" in text


def test_reads_bear_the_token_where_they_must(
    coordinators: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only a replica that refuses to answer without one is shown it."""
    address = coordinators[0].address
    _state(tmp_path, address)
    assert main(["status"]) == 0
    assert coordinators[0].reads == ["", ""]
    coordinators[0].wants = "s3cret"
    assert main(["status"]) == 0
    assert coordinators[0].reads[2:] == ["", "Bearer s3cret"] * 2
    capsys.readouterr()
    coordinators[0].wants = "another"
    assert main(["status"]) == 3
    assert "this needs a bearer token" in capsys.readouterr().err


def test_status_is_1_with_an_unowned_pool(
    coordinators: Pair, capsys: pytest.CaptureFixture[str]
) -> None:
    """And says which; `pools` only lists."""
    coordinators[0].pools = [{**POOL, "owners": [], "phase": "unowned"}]
    where = ["--coordinator", f"http://{coordinators[0].address}"]
    assert main(["status", "-o", "json", *where]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["unowned"] == ["acme/red"]
    assert document["workers"] == [WORKER]
    assert main(["pools", *where]) == 0


def test_workers_and_pools_as_json(
    coordinators: Pair, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The API's own documents; the environment names the coordinator."""
    monkeypatch.setenv("EPP_FLEET_COORDINATOR", coordinators[0].address)
    assert main(["workers", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"format": 1, "workers": [WORKER]}
    assert main(["pools", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"format": 1, "pools": [POOL]}


def test_no_coordinator_is_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing known, or nobody answers: one line, no traceback."""
    assert main(["status"]) == 3
    assert "epp-fleet local" in capsys.readouterr().err
    _state(tmp_path, DEAD)
    for command in (["status"], ["pools"], ["drain", "worker-0"]):
        assert main(command) == 3
        error = capsys.readouterr().err
        assert DEAD in error
        assert "Traceback" not in error


def test_drain_goes_to_the_leader_with_the_token(coordinators: Pair, tmp_path: Path) -> None:
    """A follower's 307 is followed to another coordinator of the state file."""
    follower, leader = coordinators
    follower.location = f"http://{leader.address}"
    _state(tmp_path, follower.address, leader.address)
    assert main(["drain", "worker-0"]) == 0
    assert main(["undrain", "worker-0"]) == 0
    bearer = "Bearer s3cret"
    assert leader.posts == [
        ("/api/v1/workers/worker-0/drain", bearer),
        ("/api/v1/workers/worker-0/undrain", bearer),
    ]


def test_between_two_leaders_drain_waits(
    coordinators: Pair,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A dead leader that a follower still names, or none at all: told, then tried again."""
    follower = coordinators[0]
    follower.leader, follower.location = DEAD, f"http://{DEAD}"
    _state(tmp_path, follower.address)
    monkeypatch.setattr(draining, "AGAIN_SECONDS", 0.0)
    monkeypatch.setattr(draining, "PATIENCE_SECONDS", 0.0)
    assert main(["drain", "worker-0"]) == 3
    assert f"{DEAD}: connection refused" in capsys.readouterr().err
    monkeypatch.setattr(draining, "PATIENCE_SECONDS", 8.0)
    follower.elected_after = 3
    assert main(["drain", "worker-0"]) == 0
    assert (
        capsys.readouterr().err == "epp-fleet: no leader at the moment; waiting for the next one\n"
    )
    assert len(follower.posts) == 4


def test_drain_of_the_last_worker_is_told(
    coordinators: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """There is nobody to take its pools, so it must not sound as if there were."""
    _state(tmp_path, coordinators[0].address)
    assert main(["drain", "worker-0"]) == 0
    assert "no other worker can take its pools" in capsys.readouterr().out
    assert main(["drain", "worker-7"]) == 0
    assert "hands its pools to the others" in capsys.readouterr().out


def test_a_broken_state_file_is_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is named, with what is wrong."""
    (tmp_path / "s").write_text("{")
    assert main(["status", "--state-file", str(tmp_path / "s")]) == 2
    assert f"{tmp_path / 's'} is no state file" in capsys.readouterr().err


def test_the_token_does_not_go_to_strangers(
    coordinators: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A 307 to an address that neither map nor state file names is an error."""
    follower, stranger = coordinators
    follower.location = f"http://{stranger.address}"
    _state(tmp_path, follower.address)
    assert main(["drain", "worker-0"]) == 1
    assert "no known coordinator" in capsys.readouterr().err
    assert stranger.posts == []
    follower.leader = stranger.address  # now the map names it
    assert main(["drain", "worker-0"]) == 0
    assert len(stranger.posts) == 1


@pytest.mark.parametrize(
    ("status", "says"), [(401, "token"), (404, "already"), (409, "already"), (503, "no leader")]
)
def test_refusals_are_told(
    coordinators: Pair,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    status: int,
    says: str,
) -> None:
    """Exit 1 with the leader's reason, or what to do about it."""
    monkeypatch.setattr(draining, "PATIENCE_SECONDS", 0.0)
    coordinators[0].status = status
    _state(tmp_path, coordinators[0].address)
    assert main(["drain", "worker-0"]) == 1
    assert says in capsys.readouterr().err


def test_a_token_is_needed(
    coordinators: Pair,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The state file's token is for its own coordinators; others need one by the environment."""
    _state(tmp_path, DEAD)
    where = ["--coordinator", coordinators[0].address]
    assert main(["drain", "worker-0", *where]) == 2
    assert "EPP_FLEET_TOKEN_FILE" in capsys.readouterr().err
    monkeypatch.setenv("EPP_FLEET_TOKEN_FILE", str(tmp_path / "gone"))
    assert main(["drain", "worker-0", *where]) == 2
    (tmp_path / "mine").write_text("other\n")
    monkeypatch.setenv("EPP_FLEET_TOKEN_FILE", str(tmp_path / "mine"))
    assert main(["drain", "worker-0", *where]) == 0
    assert coordinators[0].posts == [("/api/v1/workers/worker-0/drain", "Bearer other")]


@pytest.mark.parametrize("address", ["ftp://x", "http://", "://", "ftp://me:s3cret@x"])
def test_an_address_that_is_none(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 2, naming the flag."""
    assert main(["status", "--coordinator", address]) == 2
    error = capsys.readouterr().err
    assert "--coordinator" in error
    assert "s3cret" not in error


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["retire", "x"],
        ["explain"],
        ["demo", "--seconds", "3"],
        ["demo", "--seconds", "x"],
        ["drain"],
    ],
)
def test_usage_errors_are_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Unknown and incomplete commands; commands that do not exist are not offered."""
    with pytest.raises(SystemExit) as caught:
        main(argv)
    assert caught.value.code == 2


def test_demo_asks_for_a_writable_result_file_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not after the run, when the result would be lost."""
    for file in (tmp_path / "gone" / "x.json", tmp_path):
        assert main(["demo", "--json", str(file)]) == 2
        assert f"--json: {file} cannot be written" in capsys.readouterr().err


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    """Help teaches: examples and exit codes."""
    compiled = "(hot path of workers: " + ("compiled)" if is_compiled() else "not compiled)")
    version = f"epp-fleet {__version__} {compiled}\n"
    for argv, says in ((["--version"], version), (["--help"], "exit codes:")):
        with pytest.raises(SystemExit) as caught:
            main(argv)
        assert caught.value.code == 0
        assert says in capsys.readouterr().out
