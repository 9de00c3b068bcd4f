"""Alerts asked of a real Prometheus that scrapes a real fleet: silent at rest, there in a fault.

What they say over time (`for`) is tested by promtool: tests/unit/test_prometheus_rules.py.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.coordinator_process import CoordinatorProcess
from tests.coordinators import manifest
from tests.prometheus_rules import rules
from tests.prometheus_server import NoPrometheus, Prometheus
from tests.valkey import Valkey, running_valkey
from tests.worker_process import WorkerProcess

EXPRESSIONS = [(rule["alert"], rule["expr"]) for rule in rules()]
POOLS = ("a", "b", "c")
AT_REST = f'sum(up) == 2 and sum(epp_fleet_groups{{phase="owned"}}) == {len(POOLS)}'


@dataclass
class Scene:
    """A worker and a coordinator, scraped."""

    store: Valkey
    worker: WorkerProcess
    coordinator: CoordinatorProcess
    prometheus: Prometheus

    def firing(self) -> dict[str, list[float]]:
        """Alerts whose expression has a result now, with their values."""
        found: dict[str, list[float]] = {}
        for alert, expr in EXPRESSIONS:
            for series in self.prometheus.instant(expr):
                assert series.labels["fleet"] == "f", alert
                found.setdefault(alert, []).append(series.points[0][1])
        return found

    def wait(self, alert: str) -> None:
        """Until it has a result."""
        self.prometheus.wait(dict(EXPRESSIONS)[alert], 40.0)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    manifests = tmp_path / "manifests"
    manifests.mkdir()
    for name in POOLS:
        (manifests / f"{name}.yaml").write_text(manifest(name))
    with running_valkey() as store:
        worker = WorkerProcess(tmp_path, redis_url=store.url)
        token = {"EPP_FLEET_SECURITY__TOKEN_FILE": str(tmp_path / "token")}
        own = tmp_path / "coordinator"
        own.mkdir()
        coordinator = CoordinatorProcess(
            own,
            "coordinator-0",
            store.url,
            manifests=manifests,
            eds=tmp_path / "eds",
            environment=token,
        )
        targets = {
            worker.address("http"): {"fleet": "f", "pod": "worker-0"},
            f"127.0.0.1:{coordinator.http_port}": {"fleet": "f", "pod": "coordinator-0"},
        }
        try:
            prometheus = Prometheus(tmp_path / "prometheus", targets, {"honor_labels": True})
            with worker, coordinator, prometheus:
                yield Scene(store, worker, coordinator, prometheus)
        except NoPrometheus as missing:
            pytest.skip(str(missing))


def test_alerts_of_a_fleet(scene: Scene) -> None:
    """Nothing at rest; then the coordinator is killed, a worker, and the store."""
    scene.prometheus.wait(AT_REST, 60.0)
    assert scene.firing() == {}
    scene.coordinator.kill()
    scene.wait("EppFleetNoLeader")
    assert scene.firing() == {"EppFleetNoLeader": [0.0]}
    scene.coordinator.start()
    scene.prometheus.wait(AT_REST)
    scene.worker.kill()
    scene.wait("EppFleetPoolUnowned")
    assert scene.firing() == {"EppFleetPoolUnowned": [len(POOLS)]}
    scene.store.kill()
    scene.wait("EppFleetRedisUnreachable")
