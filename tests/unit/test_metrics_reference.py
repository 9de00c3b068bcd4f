"""docs/metrics.md, the declarations that it is made from, and full pages of both processes."""

import random
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from coordinator.metrics import Metrics
from coordinator.metrics.catalogue import SECTIONS as COORDINATOR
from coordinator.metrics.exposition import frozen
from coordinator.metrics.pools import Leading
from coordinator.routes.slices import EndpointSliceRoutes
from epp_worker.metrics.catalogue import SECTIONS as WORKER
from fleet.metrics.reference import reference
from fleet.model import Reason
from fleet.settings.model import KubernetesSettings, RedisSettings, Settings
from fleet.sources.contract import Kind
from fleet.sources.kubernetes import KubeSource
from fleet.store.redis import RedisStore
from tests.fake_view import FakeView
from tests.memory_kube import MemoryApiServer, MemoryKube
from tests.memory_source import MemorySource
from tests.metrics_maps import member, placed
from tests.metrics_pages import as_shown, declared, full_worker_page, shown
from tests.scripted_kube import LoopClock, ScriptedKube, page
from tests.unit.test_ownership_claims import claims_of

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_that_ships_is_up_to_date() -> None:
    """Written by the command that its head names."""
    assert (DOCS / "metrics.md").read_text() == reference((*COORDINATOR, *WORKER))


def test_each_name_means_the_same_everywhere() -> None:
    """A name that both processes have may differ in its text, never in type or labels."""
    both = declared(COORDINATOR)
    for name, each in declared(WORKER).items():
        if name in both:
            assert (each.kind, each.labels) == (both[name].kind, both[name].labels), name


def test_a_workers_full_page_is_what_is_documented() -> None:
    """Every name with its type, text and labels, both ways."""
    assert shown(full_worker_page()) == {
        name: as_shown(each) for name, each in declared(WORKER).items()
    }


@pytest.mark.looptime
async def test_a_leaders_full_page_is_what_is_documented() -> None:
    """Of one that reads an API server, writes slices and has certificates; both ways."""
    metrics = Metrics()
    shard_map = placed(3)
    view = FakeView(map=shard_map, workers=(member("w0"), member("w1")), leads=True)
    metrics.term.move(Reason.INITIAL, "done")
    metrics.show(view, lambda: 1)
    metrics.show_terms(lambda: Leading(shard_map, view.workers, {}), lambda: 0.0, lambda: 9.0)
    metrics.show_expiry(lambda: 5.0)
    source = KubeSource(ScriptedKube([page()]), KubernetesSettings(), LoopClock(), random.Random(1))
    watch = source.watch(Kind.POOL, lambda change: None)
    await source.start()
    await watch.wait_synced()
    metrics.show_source(source)
    store = RedisStore(RedisSettings(), "default")
    metrics.show_store(store, lambda: 0.0)
    api = MemoryKube(MemoryApiServer())
    metrics.show_routes(EndpointSliceRoutes(api, Settings(), LoopClock(), rng=random.Random(1)))
    metrics.show_claims(claims_of(MemorySource()))
    text = generate_latest(frozen(metrics.registry)).decode()
    assert shown(text) == {name: as_shown(each) for name, each in declared(COORDINATOR).items()}
    await source.close()
    await store.close()
