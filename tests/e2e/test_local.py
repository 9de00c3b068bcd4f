"""A whole local fleet: real processes, real Envoy, real Valkey, and nothing left behind."""

import contextlib
import json
import os
import pty
import select
import signal
import socket
import stat
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleet.local.sample import POOLS
from tests.e2e.local_process import MARK, LocalProcess, local_process, wait_for
from tests.valkey import Valkey

SMALL = ("--gateway", "none", "--workers", "1", "--coordinators", "1")
pytestmark = pytest.mark.timeout(240)


def _post(url: str, body: Any) -> tuple[int, str, str]:
    """Status, serving pod and text."""
    raw = json.dumps(body).encode()
    request = urllib.request.Request(url, raw, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.headers["x-served-by"], answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, "", error.read().decode()


def _chat(gateway: str, pool: str, model: str, **more: object) -> tuple[int, str, str]:
    body = {"model": model, "messages": [{"role": "user", "content": "hi"}], **more}
    return _post(f"http://{gateway}/{pool}/v1/chat/completions", body)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalProcess]:
    """One sample fleet for the tests that leave it whole."""
    with local_process(tmp_path_factory.mktemp("fleet")) as made:
        made.wait_ready()
        yield made
        assert made.stop() == 0, made.output
        assert made.family() == set()


@pytest.fixture(scope="module")
def state(fleet: LocalProcess) -> dict[str, Any]:
    return fleet.wait_ready()


def test_every_pool_answers_from_its_own_pods(state: dict[str, Any]) -> None:
    """JSON and streamed, as soon as `ready` is printed."""
    for pool in POOLS:
        name = f"{pool.namespace}/{pool.name}"
        status, pod, text = _chat(state["gateway"], name, pool.model)
        assert (status, pod.rpartition("-")[0]) == (200, name), text
        status, pod, text = _chat(state["gateway"], name, pool.model, stream=True, max_tokens=4)
        assert (status, pod.rpartition("-")[0]) == (200, name), text
        assert text.endswith("data: [DONE]\n\n")


def test_refusals_reach_the_client(state: dict[str, Any]) -> None:
    """A path without a pool: 404 by the gateway."""
    assert _chat(state["gateway"], "no/where", "m")[0] == 404


def test_state_file_names_living_processes(fleet: LocalProcess, state: dict[str, Any]) -> None:
    """0600; three of each, with the pids of running children; a token only we can read."""
    assert stat.S_IMODE(fleet.state_file.stat().st_mode) == 0o600
    assert stat.S_IMODE(Path(state["token_file"]).stat().st_mode) == 0o600
    pids = {each["pid"] for kind in ("coordinators", "workers") for each in state[kind]}
    assert len(pids) == 6
    assert pids <= fleet.family()
    assert sorted(worker["id"] for worker in state["workers"]) == [
        "worker-0",
        "worker-1",
        "worker-2",
    ]


def test_ctrl_c_reaches_only_the_command(fleet: LocalProcess, state: dict[str, Any]) -> None:
    """Children run in sessions of their own."""
    own = os.getsid(fleet.process.pid)
    sessions = {os.getsid(pid) for pid in fleet.family() - {fleet.process.pid}}
    assert own not in sessions


def test_status_is_watched_on_a_terminal(fleet: LocalProcess, state: dict[str, Any]) -> None:
    """Redrawn in place on the alternate screen, left as it was, and 130 after Ctrl-C."""
    environ = {**fleet.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "30"}
    del environ[MARK]
    ours, theirs = pty.openpty()
    shown = b""
    watching = subprocess.Popen(
        [sys.executable, "-m", "fleet.cli", "status", "--watch", "0.2"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environ,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        deadline = time.monotonic() + 30
        while shown.count(b"Ctrl-C ends") < 3:
            assert time.monotonic() < deadline, shown.decode(errors="replace")
            if select.select([ours], [], [], 1.0)[0]:
                shown += os.read(ours, 65536)
        watching.send_signal(signal.SIGINT)
        with contextlib.suppress(OSError):  # the terminal ends with its last process
            while time.monotonic() < deadline:
                shown += os.read(ours, 65536)
        assert watching.wait(20) == 130
    finally:
        watching.kill()
        watching.wait(20)
        os.close(ours)
    enters, leaves = b"\x1b[?1049h", b"\x1b[?1049l"
    assert shown.count(enters) == shown.count(leaves) == 1
    after = shown.partition(leaves)[2]
    assert POOLS[0].name.encode() in after, "what it showed last stays"


def test_status_drain_and_undrain(fleet: LocalProcess, state: dict[str, Any]) -> None:
    """A drained worker ends up with no pool and keeps running; undrain is taken too."""

    def status() -> dict[str, Any]:
        done = fleet.run("status", "-o", "json")
        assert done.returncode == 0, done.stderr
        document = json.loads(done.stdout)
        assert isinstance(document, dict)
        return document

    def owners() -> set[str]:
        return {owner for pool in status()["pools"] for owner in pool["owners"]}

    text = fleet.run("status")
    assert text.returncode == 0
    for pool in POOLS:
        assert f"{pool.namespace}/{pool.name}" in text.stdout
    drained = fleet.run("drain", "worker-1")
    assert drained.returncode == 0, drained.stderr
    wait_for(lambda: "worker-1" not in owners(), 30, "worker-1 owns nothing")
    states = {worker["id"]: worker["state"] for worker in status()["workers"]}
    assert states["worker-1"] == "draining"
    for pool in POOLS:
        assert _chat(state["gateway"], f"{pool.namespace}/{pool.name}", pool.model)[0] == 200
    assert fleet.run("drain", "nobody").returncode == 1
    assert fleet.run("undrain", "worker-1").returncode == 0


def test_a_pool_comes_and_goes(fleet: LocalProcess, state: dict[str, Any]) -> None:
    """A new manifest is served through the gateway; a broken one is told and hurts nobody."""
    folder, template = Path(state["manifests"]), POOLS[0]
    name = f"{template.namespace}-{template.name}.yaml"
    text = (folder / name).read_text().replace(template.name, "fresh")
    (folder / "fresh.yaml").write_text(text)

    def answers(status: int) -> bool:
        return _chat(state["gateway"], "acme/fresh", template.model)[0] == status

    wait_for(lambda: answers(200), 30, "the new pool answers")
    (folder / "broken.yaml").write_text("kind: InferencePool\napiVersion: [\n")
    wait_for(lambda: "broken.yaml" in fleet.output, 30, "the broken manifest is told")
    assert answers(200)
    (folder / "fresh.yaml").unlink()
    (folder / "broken.yaml").unlink()
    wait_for(lambda: answers(404), 30, "the pool is gone")


def test_killed_with_9_it_leaves_no_orphan(tmp_path: Path) -> None:
    """The kernel ends every child with the command; the next start removes the run folder."""
    with local_process(tmp_path, *SMALL) as made:
        made.wait_ready()
        assert len(made.family()) >= 4  # the command, store, coordinator, worker, pods
        made.process.kill()
        made.wait()
        wait_for(lambda: not made.family(), 10, "no process is left")
        (left,) = (tmp_path / "epp-fleet").glob("epp-fleet-*")
    with local_process(tmp_path, *SMALL) as next_one:
        next_one.wait_ready()
        assert not left.exists()
        assert f"removed {left}" in next_one.output
        assert next_one.stop() == 0
    assert list((tmp_path / "epp-fleet").iterdir()) == []


@pytest.mark.parametrize("delay", [0.15, 0.5, 1.0, 1.8])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stopped_during_start(tmp_path: Path, delay: float, number: signal.Signals) -> None:
    """At any moment: exit 0, within 10 s, nothing left, neither process nor run folder."""
    with local_process(tmp_path) as made:
        began = time.monotonic()
        # A signal before Python itself runs any of our code is not ours to handle.
        wait_for(lambda: _handles(made.process.pid, number), 20, "the signal is handled")
        wait_for(lambda: time.monotonic() - began >= delay, 20, "the moment has come")
        stopping = time.monotonic()
        assert made.stop(number) == 0, made.output
        assert time.monotonic() - stopping < 10
        assert made.family() == set()
        left = [path.name for path in (tmp_path / "epp-fleet").glob("*")]
        assert left == [], made.output


def _handles(pid: int, number: signal.Signals) -> bool:
    """Whether the process has installed a handler other than Python's own for SIGINT."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("SigCgt:"):
            caught = int(line.split()[1], 16)
            # SIGTERM is never caught by Python itself, so it tells that ours are installed.
            return bool(caught >> (signal.SIGTERM - 1) & 1) and bool(caught >> (number - 1) & 1)
    return False


def test_broken_manifests_start_nothing(tmp_path: Path) -> None:
    """Exit 2 and one line per problem, with the file's name."""
    folder = tmp_path / "manifests"
    folder.mkdir()
    (folder / "bad.yaml").write_text(
        "apiVersion: inference.networking.k8s.io/v1\nkind: InferencePool\n"
        "metadata: {name: red, namespace: acme}\nspec: {targetPorts: [{number: 0}]}\n"
    )
    with local_process(tmp_path / "home", "--manifests", str(folder)) as made:
        assert made.wait(30) == 2
        assert "bad.yaml" in made.output
        assert "Traceback" not in made.output
        assert not made.state_file.exists()


def test_a_taken_gateway_port_is_2(tmp_path: Path) -> None:
    """Told before anything starts."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(1)
        port = taken.getsockname()[1]
        with local_process(tmp_path, "--gateway-port", str(port)) as made:
            assert made.wait(30) == 2
            assert f"127.0.0.1:{port} is in use" in made.output


def test_a_redis_that_is_away_is_waited_for(tmp_path: Path) -> None:
    """Told in one line, without the password or a traceback; once it is there, the fleet starts."""
    server = Valkey(arguments=("--requirepass", "hidden"))
    url = f"redis://:hidden@127.0.0.1:{server.port}/0"
    try:
        with local_process(tmp_path, *SMALL, "--redis-url", url) as made:
            wait_for(lambda: "waiting for the store at" in made.output, 30, "it is told")
            assert "connection refused" in made.output
            assert "hidden" not in made.output
            assert "Traceback" not in made.output
            server.start()
            made.wait_ready()
            assert made.stop() == 0
    finally:
        server.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stopped_while_the_redis_is_away(tmp_path: Path, number: signal.Signals) -> None:
    """Exit 0 at once, nothing left."""
    with local_process(tmp_path, *SMALL, "--redis-url", "redis://127.0.0.1:1/0") as made:
        wait_for(lambda: "waiting for the store at" in made.output, 30, "it is told")
        began = time.monotonic()
        assert made.stop(number) == 0, made.output
        assert time.monotonic() - began < 10
        assert made.family() == set()
        assert list((tmp_path / "epp-fleet").iterdir()) == []


def test_a_redis_that_refuses_us_is_2(tmp_path: Path) -> None:
    """Waiting would not help; the password is not shown."""
    server = Valkey(arguments=("--requirepass", "hidden"))
    try:
        server.start()
        url = f"redis://:mistaken@127.0.0.1:{server.port}/0"
        with local_process(tmp_path, *SMALL, "--redis-url", url) as made:
            assert made.wait(30) == 2
            assert "redis.url: the server refuses us" in made.output
            assert "mistaken" not in made.output
            assert made.family() == set()
    finally:
        server.kill()


def test_a_second_fleet_leaves_the_first_ones_state_file_alone(tmp_path: Path) -> None:
    """It runs with a state file of its own, and says where; one that was named is exit 2."""
    with local_process(tmp_path, *SMALL) as first:
        state = first.wait_ready()
        again = first.run("local", *SMALL, "--state-file", str(first.state_file))
        assert again.returncode == 2
        assert "--state-file" in again.stderr
        with local_process(tmp_path / "second", *SMALL, runtime=tmp_path) as second:
            second.wait_ready()
            assert "belongs to a fleet that is running" in second.output
            shown = second.output.partition("epp-fleet status --state-file ")[2].split()[0]
            assert json.loads(Path(shown).read_text())["folder"] == str(Path(shown).parent)
            assert second.run("status", "--state-file", shown).returncode == 0
            assert json.loads(first.state_file.read_text()) == state
            assert second.stop() == 0
        assert first.run("status").returncode == 0
        assert first.stop() == 0
    assert list((tmp_path / "epp-fleet").iterdir()) == []


def test_deaths_are_told_and_the_last_worker_ends_it(tmp_path: Path) -> None:
    """The first death is reported and the fleet goes on; without any worker it is exit 1."""
    options = ("--gateway", "none", "--workers", "2", "--coordinators", "1")
    with local_process(tmp_path, *options) as made:
        first, second = (worker["pid"] for worker in made.wait_ready()["workers"])
        os.kill(first, signal.SIGKILL)
        wait_for(lambda: "worker-0 died (SIGKILL)" in made.output, 10, "the death is told")
        assert made.process.poll() is None
        os.kill(second, signal.SIGKILL)
        assert made.wait() == 1
        assert "all workers are lost" in made.output
        assert made.family() == set()
        assert not made.state_file.exists()
