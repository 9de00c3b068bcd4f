"""What the worker processes of tests run is what the tests run: compiled code, or the sources."""

import json
from pathlib import Path

import pytest

from fleet import __version__
from fleet.installed import is_compiled
from tests.e2e.local_process import local_process
from tests.valkey import running_valkey
from tests.worker_process import WorkerProcess

pytestmark = pytest.mark.timeout(240)

LOGGED = {"log": {"format": "json"}}


def compiled_modules(pid: int) -> set[str]:
    """Modules of ours that the process has loaded as machine code, without suffixes."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    paths = {line.split(maxsplit=5)[5] for line in lines if "/epp_worker/" in line}
    return {Path(path).name.partition(".")[0] for path in paths if path.endswith(".so")}


def test_a_worker_runs_what_it_says_it_runs(tmp_path: Path) -> None:
    """In memory, in its log's first line and in its metrics."""
    label = "true" if is_compiled() else "false"
    with (
        running_valkey() as valkey,
        WorkerProcess(tmp_path, redis_url=valkey.url, settings=LOGGED) as worker,
    ):
        worker.wait_up()
        loaded = compiled_modules(worker.process.pid)
        first = json.loads(worker.log().splitlines()[0])
        _, metrics = worker.get("/metrics")
    assert {"stream", "session", "pool", "process"} <= loaded if is_compiled() else not loaded
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
        loaded = [compiled_modules(pid) for pid in workers]
    assert len(workers) == 2
    assert all(bool(modules) is is_compiled() for modules in loaded)
    hot_path = "compiled" if is_compiled() else "not compiled"
    assert told == f"epp-fleet {__version__} (hot path of workers: {hot_path})\n"
