"""Every panel of every dashboard, asked of a real Prometheus that scrapes fleets under traffic.

Variables are put in as Grafana does it. A panel has to have data with nothing wrong; one that is
there for something that happens has to show it once that was made to happen.
"""

import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from fleet.local.sample import POOLS
from tests.dashboards.__main__ import DASHBOARDS
from tests.dashboards.grafana import (
    ALL,
    Chosen,
    first_choice,
    interpolated,
    merged,
    pivoted,
    rows,
    states,
)
from tests.dashboards.parts import Dashboard, Event, Panel, Scope
from tests.observed_fleet import CLUSTER, ObservedFleet, observed_fleet
from tests.prometheus_server import NoPrometheus, Prometheus, Series, program

pytestmark = pytest.mark.timeout(300)

RATE_INTERVAL = "10s"
STEP_SECONDS = 1.0
SEEN_SECONDS = 40.0
POOL = f"{POOLS[0].namespace}/{POOLS[0].name}"
NAMES = sorted(f"{pool.namespace}/{pool.name}" for pool in POOLS)
BOARDS = {dashboard.uid: dashboard for dashboard in DASHBOARDS}


@dataclass(frozen=True, slots=True)
class Span:
    """A time range; Unix time."""

    start: float
    end: float

    @property
    def text(self) -> str:
        """As `$__range`."""
        return f"{math.ceil(self.end - self.start)}s"


class Reader:
    """Somebody who has a dashboard open.

    Args:
        chosen: other than what is chosen when it is opened, by variable.
    """

    def __init__(
        self,
        prometheus: Prometheus,
        dashboard: Dashboard,
        span: Span,
        chosen: Mapping[str, tuple[str, ...]],
    ) -> None:
        self._prometheus = prometheus
        self._span = span
        self._variables = [each.json() for each in dashboard.variables]
        self.chosen: dict[str, Chosen] = {}
        for variable in self._variables:
            options = self._options(variable) if variable["type"] == "query" else []
            found = first_choice(variable, options)
            if variable["name"] in chosen:
                found = Chosen(chosen[variable["name"]], tuple(options))
            self.chosen[variable["name"]] = found

    def _options(self, variable: dict[str, Any]) -> list[str]:
        asked = re.fullmatch(r"label_values\((.*), (\w+)\)", self._spelled(variable["definition"]))
        assert asked, variable["definition"]
        span = self._span
        return self._prometheus.values_of(asked[2], asked[1], span.start, span.end)

    def _spelled(self, text: str) -> str:
        return interpolated(
            text,
            self._variables,
            self.chosen,
            rate_interval=RATE_INTERVAL,
            span=self._span.text,
        )

    def results(self, panel: Panel) -> list[list[Series]]:
        """Of each query of the panel."""
        found = []
        for query in panel.queries:
            expr, span = self._spelled(query.expr), self._span
            if query.instant:
                found.append(self._prometheus.instant(expr, span.end))
            else:
                found.append(self._prometheus.over(expr, span.start, span.end, STEP_SECONDS))
        return found

    def tables(self, panel: Panel) -> list[list[dict[str, Any]]]:
        """The same as tables."""
        results = self.results(panel)
        alone = len(results) == 1
        return [rows(each, chr(65 + n), alone=alone) for n, each in enumerate(results)]


@dataclass(frozen=True, slots=True)
class Watched:
    """What happened, and when.

    Attributes:
        rest: a range in which nothing was wrong.
        whole: from its begin until all had happened.
        owners: of POOL before and after the drain of its owner.
        leaders: before and after the kill.
        pools: the shard map at the end.
    """

    fleet: ObservedFleet
    rest: Span
    whole: Span
    owners: tuple[str, str]
    leaders: tuple[str, str]
    pools: Mapping[str, Mapping[str, Any]]

    def open(self, uid: str, span: Span | None = None, /, **chosen: tuple[str, ...]) -> Reader:
        """Open a dashboard."""
        return Reader(self.fleet.prometheus, BOARDS[uid], span or self.whole, chosen)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """The fleets, with everything done to the local one that a panel is for."""
    try:
        program()
    except NoPrometheus as missing:
        pytest.skip(str(missing))
    with observed_fleet(tmp_path_factory.mktemp("observed")) as fleet:
        yield _happened(fleet)


def _seen(fleet: ObservedFleet, expr: str) -> None:
    """Until Prometheus has it; `{` begins what is chosen of the local fleet."""
    fleet.prometheus.wait(expr.replace("{", '{fleet="default",'), SEEN_SECONDS)


def _leader(fleet: ObservedFleet, but: str = "") -> str:
    expr = f'epp_fleet_leader{{fleet="default",pod!="{but}"}} == 1'
    fleet.prometheus.wait(expr, SEEN_SECONDS)
    return fleet.prometheus.instant(expr)[0].labels["pod"]


def _happened(fleet: ObservedFleet) -> Watched:
    began = time.time()
    # What rates of all kinds at rest are made of.
    _seen(fleet, "min(count_over_time(epp_fleet_epoch{}[1m])) >= 5")
    _seen(fleet, "count(rate(epp_fleet_pool_picks_total{}[5s]) > 0) >= 6")
    rest = Span(began, time.time())
    owner, leader = fleet.owner(POOL), _leader(fleet)
    name = POOLS[0].name

    # Rates see the second of a kind: with the first one its series begins.
    fleet.ask_badly(POOL)
    fleet.kill_the_only_worker()
    _seen(fleet, "epp_fleet_pool_errors_total{} > 0")
    fleet.ask_badly(POOL)
    _seen(fleet, "increase(epp_fleet_pool_errors_total{}[20s]) > 0")
    fleet.stray(POOL)
    fleet.write_route(next(pool for pool in NAMES if fleet.owner(pool) != owner))
    _seen(fleet, "increase(epp_fleet_strays_total{}[20s]) > 0")
    _seen(fleet, "increase(epp_fleet_stale_route_writes_total{}[20s]) > 0")
    fleet.drain(owner)
    fleet.add_refused_pool()
    fleet.add_dead_endpoint(POOL)
    for expr in (
        f'epp_fleet_pool_owner_info{{role="owner",pool="{name}",worker!="{owner}"}}',
        'increase(epp_fleet_moves_total{reason="drain",outcome="done"}[20s]) > 0',
        'increase(epp_fleet_handover_step_seconds_count{step="open"}[20s]) > 0',
        "epp_fleet_pool_refusals{} > 0",
        "epp_fleet_endpoints_failing{} > 0",
    ):
        _seen(fleet, expr)
    heir = fleet.owner(POOL)
    fleet.undrain(owner)

    fleet.kill(heir)
    _seen(fleet, "increase(epp_fleet_verdicts_total{}[20s]) > 0")
    _seen(fleet, "epp_fleet_member_signals{} > 0")

    fleet.stop_store()
    _seen(fleet, "increase(epp_fleet_store_errors_total{}[20s]) > 0")
    fleet.start_store()
    leader = _leader(fleet)
    fleet.kill(leader)
    new = _leader(fleet, but=leader)
    _seen(fleet, "increase(epp_fleet_leader_transitions_total{}[30s]) > 0")
    _seen(fleet, "count(epp_fleet_pool_since_seconds{}) >= 6")
    _seen(fleet, f'sum_over_time(epp_fleet_leader{{pod="{new}"}}[5s]) >= 3')
    fleet.prometheus.wait(
        f'increase(epp_fleet_unowned_seconds_total{{fleet="{CLUSTER}"}}[1m]) > 0', SEEN_SECONDS
    )
    pools = {name: pool for name, pool in fleet.pools().items() if name in NAMES}
    return Watched(fleet, rest, Span(began, time.time()), (owner, heir), (leader, new), pools)


def _every(keep: Callable[[Panel], bool]) -> Sequence[Any]:
    return [
        pytest.param(dashboard.uid, panel, id=f"{dashboard.file}: {panel.title}")
        for dashboard in DASHBOARDS
        for panel in dashboard.panels
        if keep(panel)
    ]


def _chosen(panel: Panel) -> dict[str, tuple[str, ...]]:
    elsewhere = panel.scope is Scope.CLUSTER or panel.nonzero_after is Event.LONE_WORKER_KILL
    return {"fleet": (CLUSTER if elsewhere else "default",)}


@pytest.mark.parametrize(("uid", "panel"), _every(lambda panel: panel.nonzero_after is None))
def test_a_panel_has_data(watched: Watched, uid: str, panel: Panel) -> None:
    """With nothing wrong: each of its queries has something to draw."""
    reader = watched.open(uid, watched.rest, **_chosen(panel))
    for query, found in zip(panel.queries, reader.results(panel), strict=True):
        assert any(series.finite for series in found), query.expr
        _legends(query.legend, found)


@pytest.mark.parametrize(("uid", "panel"), _every(lambda panel: panel.nonzero_after is not None))
def test_a_panel_shows_what_it_is_for(watched: Watched, uid: str, panel: Panel) -> None:
    """When it has happened: more than zeros."""
    reader = watched.open(uid, **_chosen(panel))
    for query, found in zip(panel.queries, reader.results(panel), strict=True):
        assert any(value > 0 for series in found for value in series.finite), query.expr
        _legends(query.legend, found)


def _legends(legend: str, found: Sequence[Series]) -> None:
    """Each label of a legend is on each series, and tells them apart."""
    labels = re.findall(r"{{(\w+)}}", legend)
    for series in found:
        assert set(labels) <= series.labels.keys(), (legend, series.labels)
    names = [tuple(series.labels[label] for label in labels) for series in found]
    assert len(set(names)) == len(names) or not legend, (legend, names)


def test_everything_that_a_panel_is_for_was_done() -> None:
    """No event is only named."""
    wanted = {panel.nonzero_after for dashboard in DASHBOARDS for panel in dashboard.panels}
    assert wanted - {None} == set(Event)


def test_variables_offer_what_there_is(watched: Watched) -> None:
    """Fleets, the chosen fleet's namespaces, pools, workers and coordinators, and no others."""
    namespaces = tuple(sorted({pool.namespace for pool in POOLS}))
    seen = watched.open("epp-fleet-fleet", watched.rest, fleet=("default",)).chosen
    assert seen["fleet"].options == (CLUSTER, "default")
    assert seen["namespace"].options == namespaces
    assert seen["pool"].options == tuple(sorted(pool.name for pool in POOLS))
    assert seen["worker"].options == ("worker-0", "worker-1", "worker-2")
    one = watched.open("epp-fleet-pool", watched.rest, fleet=("default",), namespace=("acme",))
    assert one.chosen["pool"].options == ("llama-8b", "mistral-7b")
    seen = watched.open("epp-fleet-coordination", watched.rest, fleet=("default",)).chosen
    assert seen["coordinator"].options == ("coordinator-0", "coordinator-1")
    seen = watched.open("epp-fleet-worker", watched.rest, fleet=(CLUSTER,)).chosen
    assert seen["worker"].options == ("cluster-worker-0",)
    assert watched.open("epp-fleet-fleet", watched.rest).chosen["fleet"].values == (ALL,)


def _panel(uid: str, title: str) -> Panel:
    (panel,) = [each for each in BOARDS[uid].panels if each.title == title]
    return panel


def test_the_timeline_shows_the_change_of_owner(watched: Watched) -> None:
    """A line for each pool; the drained pool's has its former owner before and the new one after;
    so has the pool's own timeline, by role."""
    before, after = watched.owners
    assert before != after
    panel = _panel("epp-fleet-fleet", "Owner of each pool")
    (table,) = watched.open("epp-fleet-fleet", watched.rest, fleet=("default",)).tables(panel)
    lines = pivoted(table, panel.transformations)
    times = lines.pop("Time\\shard")
    assert times == sorted(times)
    assert sorted(lines) == NAMES
    assert states(lines[POOL]) == [before]

    (table,) = watched.open("epp-fleet-fleet", fleet=("default",)).tables(panel)
    lines = pivoted(table, panel.transformations)
    times = lines.pop("Time\\shard")
    assert times == sorted(times)
    assert states(lines[POOL])[:2] == [before, after]
    assert states(lines[POOL])[-1] == watched.pools[POOL]["owners"][0]

    panel = _panel("epp-fleet-pool", "Who held it")
    namespace, _, name = POOL.partition("/")
    reader = watched.open(
        "epp-fleet-pool", fleet=("default",), namespace=(namespace,), pool=(name,)
    )
    (table,) = reader.tables(panel)
    lines = pivoted(table, panel.transformations)
    assert states(lines["owner"])[:2] == [before, after]
    assert {"owner", "standby"} <= lines.keys()


def test_only_pools_that_moved(watched: Watched) -> None:
    """At rest none, then those whose owner changed in the range; a filter by worker and pool."""
    panel = _panel("epp-fleet-fleet", "Owner of each pool")
    moved: dict[str, tuple[str, ...]] = {"fleet": ("default",), "owners_more_than": ("1",)}
    (table,) = watched.open("epp-fleet-fleet", watched.rest, **moved).tables(panel)
    assert table == []
    reader = watched.open("epp-fleet-fleet", **moved)
    (table,) = reader.tables(panel)
    (every,) = watched.open("epp-fleet-fleet", fleet=("default",)).tables(panel)
    lines = pivoted(every, panel.transformations)
    lines.pop("Time\\shard")
    assert {row["shard"] for row in table} == {
        name for name, line in lines.items() if len(set(line) - {None}) > 1
    }
    namespace, _, name = POOL.partition("/")
    reader = watched.open(
        "epp-fleet-fleet",
        fleet=("default",),
        namespace=(namespace, "globex"),
        pool=(name, "qwen-7b"),
        worker=watched.owners,
    )
    (table,) = reader.tables(panel)
    assert {row["shard"] for row in table} == {POOL, "globex/qwen-7b"}
    assert {row["worker"] for row in table} <= set(watched.owners)


def test_the_table_is_the_shard_map(watched: Watched) -> None:
    """A line for each pool, as the API shows it."""
    panel = _panel("epp-fleet-fleet", "Shard map now")
    tables = watched.open("epp-fleet-fleet", fleet=("default",)).tables(panel)
    found = {
        f"{line['Namespace']}/{line['Pool']}": line
        for line in merged(tables, panel.transformations)
    }
    assert sorted(found) == sorted(watched.pools) == NAMES
    for name, pool in watched.pools.items():
        line = found[name]
        assert [line["Owner"]] == pool["owners"]
        assert line.get("Stand-by") == pool["standby"]
        assert line["Route group"] == pool["group"]
        assert 0 < line["Since"] / 1000 <= watched.whole.end
        assert line["Requests"] > 0
        assert not set(line) & {"Time", "owner", "stand-by"}


def test_the_leader_is_named(watched: Watched) -> None:
    """One of them before, the other one after the first was killed."""
    panel = _panel("epp-fleet-coordination", "Leader")
    first, second = watched.leaders
    assert first != second
    (found,) = watched.open("epp-fleet-coordination", fleet=("default",)).results(panel)
    assert [series.labels["pod"] for series in found] == [second]
    timeline = _panel("epp-fleet-coordination", "Who led")
    (found,) = watched.open("epp-fleet-coordination", fleet=("default",)).results(timeline)
    led = {series.labels["pod"]: states([value for _, value in series.points]) for series in found}
    assert led[second][-1] == 1.0
    assert 1.0 in led[first]


def test_the_job_for_a_cluster_scrapes_what_has_metrics(watched: Watched) -> None:
    """`deploy/prometheus/scrape.yaml`: processes by fleet and pod, no other port; the namespace
    that a series has stays."""
    ask = watched.fleet.prometheus.instant
    up = {(each.labels["fleet"], each.labels["pod"]) for each in ask("up", watched.rest.end)}
    assert up == {
        *(("default", f"coordinator-{number}") for number in range(2)),
        *(("default", f"worker-{number}") for number in range(3)),
        (CLUSTER, "cluster-coordinator-0"),
        (CLUSTER, "cluster-worker-0"),
    }
    found = ask('epp_fleet_streams_open{fleet="default"}', watched.rest.end)
    assert {each.labels["namespace"] for each in found} == {"home-of-default"}
    found = ask('epp_fleet_pool_owner_info{fleet="default"}', watched.rest.end)
    assert {each.labels["namespace"] for each in found} == {pool.namespace for pool in POOLS}
