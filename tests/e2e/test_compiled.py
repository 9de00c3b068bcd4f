"""What the worker processes of tests run is what the tests run: compiled code, or the sources."""

import json
from pathlib import Path

import pytest

import epp_worker
from fleet import __version__
from fleet.installed import is_compiled
from tests.e2e.local_process import local_process
from tests.valkey import running_valkey
from tests.worker_process import WorkerProcess

pytestmark = pytest.mark.timeout(240)

LOGGED = {"log": {"format": "json"}}


INSTALLED = Path(str(epp_worker.__file__)).parents[1]


def runs_compiled(pid: int) -> bool:
    """Whether the process has the library loaded that all compiled modules of ours are in."""
    ours = f" {INSTALLED}/"
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return any(ours in line and "__mypyc." in line for line in lines)


def test_a_worker_runs_what_it_says_it_runs(tmp_path: Path) -> None:
    """In memory, in its log's first line and in its metrics."""
    label = "true" if is_compiled() else "false"
    with (
        running_valkey() as valkey,
        WorkerProcess(tmp_path, redis_url=valkey.url, settings=LOGGED) as worker,
    ):
        worker.wait_up()
        compiled = runs_compiled(worker.process.pid)
        first = json.loads(worker.log().splitlines()[0])
        _, metrics = worker.get("/metrics")
    assert compiled is is_compiled()
    assert (first["event"], first["compiled"]) == ("worker starts", is_compiled())
    (info,) = [line for line in metrics.splitlines() if line.startswith("epp_fleet_build_info{")]
    assert f'compiled="{label}"' in info


def test_the_workers_of_a_local_fleet_run_the_same(tmp_path: Path) -> None:
    """They are started by a process that has no path but that of its installation."""
    with local_process(tmp_path / "home", "--workers", "2", "--gateway", "none") as fleet:
        fleet.wait_ready()
        told = fleet.run("--version").stdout
        commands = {
            pid: Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") for pid in fleet.family()
        }
        workers = [pid for pid, command in commands.items() if b"epp_worker" in command]
        compiled = [runs_compiled(pid) for pid in workers]
    assert compiled == [is_compiled()] * 2
    hot_path = "compiled" if is_compiled() else "not compiled"
    assert told == f"epp-fleet {__version__} (hot path of workers: {hot_path})\n"
