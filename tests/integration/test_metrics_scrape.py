"""What a worker, a leader and a follower that run show at /metrics is what docs/metrics.md says.

So a renamed metric or label fails here, and tests/unit/test_prometheus_rules.py finds who asks for
it (llm-d/llm-d#2473, istio/istio#44735). Conditions that need more than a fleet at rest are
provoked in tests/unit/test_metrics_reference.py.
"""

import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from coordinator.metrics.catalogue import SECTIONS as COORDINATOR
from epp_worker.metrics.catalogue import SECTIONS as WORKER
from tests.coordinator_process import CoordinatorProcess, wait_for
from tests.coordinators import manifest
from tests.metrics_pages import as_shown, declared, shown, values
from tests.valkey import Valkey, running_valkey
from tests.worker_process import WorkerProcess

POOLS = ("a", "b", "c")
LEADERS_OWN = {
    "epp_fleet_pool_owner_info",
    "epp_fleet_pool_since_seconds",
    "epp_fleet_worker_owned_groups",
    "epp_fleet_worker_load",
    "epp_fleet_worker_weight",
}
OF_HELD_POOLS = {
    "epp_fleet_pool_streams_open",
    "epp_fleet_pool_picks_total",
    "epp_fleet_served_elsewhere_total",
    "llm_d_epp_ready_endpoints",
}


@dataclass
class Fleet:
    """One worker and two coordinators."""

    store: Valkey
    worker: WorkerProcess
    coordinators: tuple[CoordinatorProcess, CoordinatorProcess]
    manifests: Path

    def page(self, process: CoordinatorProcess) -> str:
        return process.text("/metrics")

    def leader(self) -> CoordinatorProcess | None:
        """Who says of itself that it leads."""
        leading = [c for c in self.coordinators if values(self.page(c), "epp_fleet_leader") == ON]
        return leading[0] if len(leading) == 1 else None

    def follower(self) -> CoordinatorProcess:
        (other,) = [c for c in self.coordinators if c is not self.leader()]
        return other

    def owned(self) -> set[tuple[str, ...]]:
        """Pools that the leader shows with an owner."""
        leader = self.leader()
        if leader is None:
            return set()
        info = values(self.page(leader), "epp_fleet_pool_owner_info", "pool", "worker", "role")
        return set(info)


ON = {(): 1.0}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("scrape")
    manifests = folder / "manifests"
    manifests.mkdir()
    for name in POOLS:
        (manifests / f"{name}.yaml").write_text(manifest(name))
    with running_valkey() as store:
        token = {"EPP_FLEET_SECURITY__TOKEN_FILE": str(folder / "token")}
        worker = WorkerProcess(folder, redis_url=store.url)
        one, two = (
            CoordinatorProcess(
                _folder(folder, f"coordinator-{n}"),
                f"coordinator-{n}",
                store.url,
                manifests=manifests,
                eds=folder / "eds",
                environment=token,
            )
            for n in (0, 1)
        )
        with worker, one, two:
            made = Fleet(store, worker, (one, two), manifests)
            wanted = {(name, "worker-0", "owner") for name in POOLS}
            wait_for(lambda: made.owned() == wanted, what="all pools are owned")
            yield made


def _folder(folder: Path, name: str) -> Path:
    """Of its own: each coordinator's test process writes a token there."""
    made = folder / name
    made.mkdir()
    return made


def test_all_that_is_shown_is_documented(fleet: Fleet) -> None:
    """With its type, text and labels."""
    coordinator, worker = declared(COORDINATOR), declared(WORKER)
    leader = fleet.leader()
    assert leader is not None
    pages = (
        (fleet.page(leader), coordinator),
        (fleet.page(fleet.follower()), coordinator),
        (fleet.worker.get("/metrics")[1], worker),
    )
    for page, catalogue in pages:
        for name, found in shown(page).items():
            assert name in catalogue, name
            assert found == as_shown(catalogue[name]), name


def test_all_that_is_documented_is_shown(fleet: Fleet) -> None:
    """By every process of its kind; what has a condition, by those that meet it."""
    leader = fleet.leader()
    assert leader is not None
    always = {name for name, each in declared(COORDINATOR).items() if not each.when}
    process = {name for name in declared(COORDINATOR) if name.startswith("process_")}
    leads, follows = shown(fleet.page(leader)), shown(fleet.page(fleet.follower()))
    assert always | process | LEADERS_OWN <= leads.keys()
    assert always | process <= follows.keys()
    assert not LEADERS_OWN & follows.keys()
    here = shown(fleet.worker.get("/metrics")[1])
    always = {name for name, each in declared(WORKER).items() if not each.when}
    assert always | process | OF_HELD_POOLS <= here.keys()


def test_what_the_leader_measured(fleet: Fleet) -> None:
    """One worker applied a map; three groups were acknowledged; nobody is dead."""
    leader = fleet.leader()
    assert leader is not None
    page = fleet.page(leader)
    assert values(page, "epp_fleet_map_propagation_seconds_count")[()] >= 1
    steps = values(page, "epp_fleet_handover_step_seconds_count", "step")
    assert steps == {("open",): 0, ("acknowledge",): len(POOLS), ("drain",): 0}
    assert values(page, "epp_fleet_worker_owned_groups", "worker") == {("worker-0",): len(POOLS)}
    assert values(page, "epp_fleet_route_writes_total", "outcome")[("written",)] >= len(POOLS)
    assert values(page, "epp_fleet_placement_seconds_count")[()] >= 1
    assert values(page, "epp_fleet_lease_renew_seconds_count")[()] >= 1
    assert set(values(page, "epp_fleet_verdicts_total", "signal").values()) == {0}
    assert values(page, "epp_fleet_map_age_seconds") == {(): 0}
    follower = fleet.page(fleet.follower())
    assert values(follower, "epp_fleet_lease_renew_seconds_count") == {(): 0}
    assert values(follower, "epp_fleet_map_age_seconds")[()] < 10


def test_series_go_with_their_pool(fleet: Fleet) -> None:
    """At the leader and at the worker."""
    gone = fleet.manifests / "c.yaml"
    gone.unlink()

    def shown_pools(page: str) -> set[str]:
        return {pool for (pool,) in values(page, "epp_fleet_pool_picks_total", "pool")}

    wait_for(lambda: fleet.owned() and not any(p == "c" for p, *_ in fleet.owned()), what="gone")
    wait_for(
        lambda: shown_pools(fleet.worker.get("/metrics")[1]) == {"a", "b"}, what="gone there too"
    )


def test_the_next_leader_shows_the_pools(fleet: Fleet) -> None:
    """And the last one's series end with it; the transition is seen by the one that stays."""
    first, second = fleet.leader(), fleet.follower()
    assert first is not None
    seen = values(fleet.page(second), "epp_fleet_leader_transitions_total")[()]
    first.signal(signal.SIGSTOP)
    try:
        wait_for(
            lambda: shown(fleet.page(second)).keys() >= LEADERS_OWN, what="the other one leads"
        )
        assert values(fleet.page(second), "epp_fleet_leader_transitions_total")[()] > seen
    finally:
        first.signal(signal.SIGCONT)
    wait_for(
        lambda: first.text("/metrics") and not LEADERS_OWN & shown(first.text("/metrics")).keys(),
        what="the first one leads no more",
    )


def test_a_map_that_nobody_confirms_grows_old(fleet: Fleet) -> None:
    """At a worker the store will do instead of a leader, but one of them must be there."""

    def age() -> float:
        return values(fleet.worker.get("/metrics")[1], "epp_fleet_map_age_seconds")[()]

    assert age() == 0
    for each in fleet.coordinators:
        each.kill()
    wait_for(lambda: 0 < age() < 1, what="confirmed by the store, which is read every second")
    fleet.store.kill()
    wait_for(lambda: age() > 1.5, what="confirmed by nobody")
