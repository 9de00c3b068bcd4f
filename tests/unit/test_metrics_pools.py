"""Series of pools and workers: who shows them, when they go, and how many there may be."""

import pytest

from coordinator.metrics import Metrics
from coordinator.metrics.exposition import frozen
from coordinator.metrics.pools import Leading, pool_families, worker_families
from epp_worker.metrics import MetricsPage
from epp_worker.metrics.pools import scrape_age
from epp_worker.requests.moment import HeldPool, Moment
from fleet.metrics import Histogram
from fleet.model import MemberState, PoolRef
from fleet.settings.metrics import MetricsSettings
from tests.metrics_maps import group, map_of, member, placed, placement
from tests.metrics_pages import empty_figures, full_worker_page, values
from tests.picking import endpoint


def samples(families: object, name: str) -> dict[tuple[str, ...], float]:
    """Label values -> value."""
    return {
        tuple(sample.labels.values()): sample.value
        for family in families  # type: ignore[attr-defined]
        for sample in family.samples
        if sample.name == name
    }


def test_what_each_worker_is_to_a_pool() -> None:
    """Owner, stand-by and whoever still drains; the time of the last change."""
    moved = placement(0, "w1", standby="w2", draining=["w0"], since=77.0)
    families, dropped = pool_families(Leading(map_of(moved, placement(1)), (), {}), 10)
    service = "ns/p0-epp:9002"
    assert samples(families, "epp_fleet_pool_owner_info") == {
        ("ns", "p0", service, "w1", "owner"): 1,
        ("ns", "p0", service, "w2", "standby"): 1,
        ("ns", "p0", service, "w0", "draining"): 1,
    }
    assert samples(families, "epp_fleet_pool_since_seconds") == {
        ("ns", "p0"): 77.0,
        ("ns", "p1"): 5.0,
    }
    assert dropped == 0


def test_pools_beyond_the_cap_are_left_out_and_counted() -> None:
    """The first by name stay: 3 series each, of 25 pools 20 x 3 are left out."""
    families, dropped = pool_families(Leading(placed(25), (), {}), 5)
    kept = {labels[1] for labels in samples(families, "epp_fleet_pool_owner_info")}
    assert kept == {"p0", "p1", "p10", "p11", "p12"}
    assert len(samples(families, "epp_fleet_pool_since_seconds")) == 5
    assert dropped == 60


def test_who_does_not_lead_shows_no_pools() -> None:
    """Of two replicas that both showed them Prometheus would keep both."""
    families, dropped = pool_families(None, 10)
    every = [*families, *worker_families(None)]
    assert [family.samples for family in every] == [[]] * 5
    assert dropped == 0


def test_workers_as_placement_sees_them() -> None:
    """1 for each owned group and its streams/s; the dead have no series."""
    shard_map = map_of(placement(0, "w0"), placement(1, "w0"), placement(2, "w1"))
    members = (
        member("w0", weight=3),
        member("w1"),
        member("w2"),
        member("w3", state=MemberState.DEAD),
    )
    families = worker_families(Leading(shard_map, members, {group(0): 2.5, group(2): 0.25}))
    assert samples(families, "epp_fleet_worker_owned_groups") == {
        ("w0",): 2,
        ("w1",): 1,
        ("w2",): 0,
    }
    assert samples(families, "epp_fleet_worker_load") == {("w0",): 4.5, ("w1",): 1.25, ("w2",): 0}
    assert samples(families, "epp_fleet_worker_weight") == {("w0",): 3, ("w1",): 1, ("w2",): 1}


def test_series_of_pools_go_with_the_leadership() -> None:
    """What the loop knew when it was asked is what a page says; then nothing."""
    leading: list[Leading | None] = [Leading(placed(2), (member("w0"),), {})]
    metrics = Metrics()
    metrics.show_terms(lambda: leading[0], lambda: 0.0, lambda: 9.0)
    page = frozen(metrics.registry)
    leading[0] = None
    assert len(samples(page.collect(), "epp_fleet_pool_owner_info")) == 4
    later = list(frozen(metrics.registry).collect())
    assert samples(later, "epp_fleet_pool_owner_info") == {}
    assert samples(later, "epp_fleet_worker_weight") == {}


def test_a_pools_own_requests() -> None:
    """Two were picked and run on, one was refused with 400, one with 503; two got a 500."""
    page = full_worker_page()
    pool = ("ns", "pool")
    assert values(page, "epp_fleet_pool_streams_open", "namespace", "pool") == {pool: 2}
    picks = values(page, "epp_fleet_pool_picks_total", "outcome")
    assert picks == {("picked",): 2, ("400",): 1, ("413",): 0, ("429",): 0, ("503",): 1}
    errors = values(page, "epp_fleet_pool_errors_total", "reason")
    assert errors == {("bad_request",): 1, ("unavailable",): 1, ("model_server",): 2}


def test_a_worker_leaves_out_whole_pools() -> None:
    """All series of a pool beyond the cap, the router's too; its own are counted: 2, 5 outcomes,
    3 errors, 1 endpoint."""
    page = full_worker_page(MetricsSettings(max_pools=0))
    assert 'pool="pool"' not in page
    assert values(page, "epp_fleet_series_dropped") == {(): 11}
    assert values(page, "epp_fleet_streams_open") == {(): 1}


def test_the_age_of_the_oldest_metrics() -> None:
    """Of owned pools alone; an endpoint that was never read has none."""
    old, young, never = endpoint(0, at=70.0), endpoint(1, at=90.0), endpoint(2, at=80.0)
    never.metrics_at = float("-inf")

    def pool(name: str, *states: object, owned: bool) -> HeldPool:
        return HeldPool(PoolRef("ns", name), states, owned, tokens=False)  # type: ignore[arg-type]

    held = (pool("a", young, never, owned=True), pool("b", old, owned=False))
    assert scrape_age(empty_figures(Moment(held), now=100.0)) == 10.0
    assert scrape_age(empty_figures(Moment(held[1:]), now=100.0)) == 0.0


def test_an_idle_worker_shows_zeros() -> None:
    """A rate needs the zero before the first time."""
    page = MetricsPage().render(empty_figures(Moment())).decode()
    assert values(page, "epp_fleet_scrape_age_seconds") == {(): 0}
    assert values(page, "epp_fleet_series_dropped") == {(): 0}


@pytest.mark.parametrize(
    ("value", "bucket"), [(0.5, "1.0"), (1.0, "1.0"), (1.5, "2.0"), (9, "+Inf")]
)
def test_a_value_counts_from_its_bound_on(value: float, bucket: str) -> None:
    """At the bound is within it, as Prometheus has it."""
    histogram = Histogram((1.0, 2.0))
    histogram.observe(value)
    first = next(name for name, count in histogram.buckets() if count)
    assert (first, histogram.buckets()[-1]) == (bucket, ("+Inf", 1))
