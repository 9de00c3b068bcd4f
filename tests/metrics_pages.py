"""Pages of metrics for tests: read into what is declared, and pages that show everything."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from epp_worker.metrics import Figures, MetricsPage
from epp_worker.requests.moment import HeldPool, Moment, Requests
from epp_worker.scheduling.contract import PickRequest, Refusal
from epp_worker.scheduling.group import GroupPicker
from epp_worker.scheduling.pool import PoolState
from epp_worker.scheduling.prefix.budget import Budget
from epp_worker.scheduling.prefix.figures import PrefixFigures, PrefixPage
from epp_worker.scheduling.slots import PoolSlots
from fleet.metrics import Declared, Kind
from fleet.metrics.reference import Section
from fleet.model import Hold, PoolRef
from fleet.model.identity import NONE
from fleet.settings.metrics import MetricsSettings
from fleet.sources.metrics import ResourceFigures, SourceFigures
from tests.prefix_pools import pool_of
from tests.silent_observer import SilentObserver


@dataclass(frozen=True, slots=True)
class Shown:
    """A metric as a page shows it."""

    kind: str
    text: str
    labels: frozenset[str]


def shown(page: str) -> dict[str, Shown]:
    """What a page shows, by the name as docs/metrics.md has it; families without samples are not
    shown."""
    found: dict[str, Shown] = {}
    for family in text_string_to_metric_families(page):
        if family.samples:
            name = family.name + ("_total" if family.type == "counter" else "")
            labels = {label for sample in family.samples for label in sample.labels} - {"le"}
            found[name] = Shown(family.type, family.documentation, frozenset(labels))
    return found


def declared(sections: Iterable[Section]) -> dict[str, Declared]:
    """By name."""
    return {each.name: each for section in sections for each in section.metrics}


def as_shown(each: Declared) -> Shown:
    """How a page must show it."""
    return Shown(Kind(each.kind).value, each.text, frozenset(each.labels))


def values(page: str, name: str, *labels: str) -> Mapping[tuple[str, ...], float]:
    """Samples of this very name by the values of these labels."""
    return {
        tuple(sample.labels[label] for label in labels): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == name
    }


def served_pool() -> tuple[PoolState, Requests]:
    """A pool with two scraped endpoints, and requests of every kind behind it."""
    pool = pool_of(2, PoolSlots(Budget()))
    for state in pool.endpoints():
        state.scraped(waiting=1.0, running=2.0, kv=0.5, at=90.0, inflight=0)
    requests = Requests(SilentObserver(), lambda: 0.0, twins=True)
    picker = GroupPicker([pool])
    for streamed in (True, False):
        record = requests(picker)
        asked = PickRequest("m", None, lambda _: None)
        record.asked(asked, 10)
        pick = pool.pick(asked)
        assert not isinstance(pick, Refusal)
        record.picked(pick)
        record.response(500)
        record.first_bytes(streamed=streamed)
        record.usage(7, 4, 3)
        record.came(30)
    requests(picker).refused(400)
    refused = requests(picker)
    refused.asked(PickRequest("m", None, lambda _: None), 1)
    refused.refused(503)
    rows = requests.table.of(pool.pool.ref)
    rows.rewrites["rewrite", "m", "other"] = 1
    return pool, requests


def empty_figures(router: Moment, now: float = 0.0) -> Figures:
    """Of a worker at rest, but for what `router` has."""
    inflight: Mapping[PoolRef, Mapping[str, int]] = {}
    return Figures(
        [0] * 17, 0, 0, {}, {}, 0, {}, inflight, 0.0, 0.0, NONE, NONE, router=router, now=now
    )


def full_worker_page(settings: MetricsSettings | None = None) -> str:
    """A worker's page on which everything is shown, with a value of each label at least."""
    pool, requests = served_pool()
    ref = pool.pool.ref
    held = HeldPool(ref, tuple(pool.endpoints()), owned=True, tokens=True)
    found = PrefixFigures()
    found.count(1, 2, 16)
    figures = Figures(
        streams_total=[1] * 17,
        streams_open=1,
        connections_open=1,
        picks={"picked": 2},
        strays={"served": 0},
        strays_waiting=0,
        holds=dict.fromkeys(Hold, 1),
        inflight={ref: {"10.0.0.0:8000": 1}},
        loop_lag_seconds=0.0,
        loop_busy_ratio=0.0,
        seen=NONE,
        applied=NONE,
        responses={"complete": 1},
        served_elsewhere={ref: 1},
        source=SourceFigures(1.0, 0, {"pods": ResourceFigures()}, {"pods": {"lists": 1}}),
        prefixes=PrefixPage({ref: 3}, 100, {"prefix": found}),
        store_errors={"timeout": 1},
        certificate_expiry_seconds=9.0,
        tls_expiry_seconds=8.0,
        tls_handshakes={"good": 1},
        bounds_hit={"preface": 1},
        held_bytes={"bodies": 1},
        connection_faults={"PROTOCOL_ERROR": 1},
        plugin_faults={"prefix-cache-scorer": 1},
        router=Moment((held,), requests.table.pools(), 1, twins=True),
        now=100.0,
    )
    return MetricsPage(settings).render(figures).decode()
