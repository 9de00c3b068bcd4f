"""What the metrics page says of prefix indexes."""

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric

from epp_worker.scheduling.prefix.budget import Budget
from epp_worker.scheduling.prefix.figures import MAX_NAMES, OTHER, FiguresByName, Histogram
from epp_worker.scheduling.prefix.metrics import families
from epp_worker.scheduling.prefix.producer import ApproxPrefixCache
from epp_worker.scheduling.prefix.slot import PREFIX
from epp_worker.scheduling.slots import PoolSlots
from fleet.model import PoolRef
from fleet.picking.parameters import PrefixProducerParameters
from tests.prefix_pools import context, pool_of, request


def test_the_page() -> None:
    """Two pools, one of which was picked for: twice the same prompt of two blocks (512 bytes)."""
    slots = PoolSlots(Budget())
    busy, idle = pool_of(1, slots), pool_of(1, slots)
    producer = ApproxPrefixCache(PrefixProducerParameters(), context(busy.slot, name="mine"))
    for _ in range(2):
        producer.picked(request(b"a" * 512), next(iter(busy.endpoints())))
    pools = [
        (PoolRef("ns", name), pool.slots.get(PREFIX)) for name, pool in (("a", busy), ("b", idle))
    ]
    page = slots.prefixes(pools)

    class Page:
        def collect(self) -> list[Metric]:
            return list(families(page))

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Page())
    lines = generate_latest(registry).decode().splitlines()
    of = 'plugin_name="mine",plugin_type="approx-prefix-cache-producer"'
    for line in (
        'llm_d_epp_prefix_indexer_size{namespace="ns",pool="a"} 2.0',
        f'llm_d_epp_prefix_indexer_hit_ratio_bucket{{le="0.0",{of}}} 1.0',
        f'llm_d_epp_prefix_indexer_hit_ratio_bucket{{le="0.9",{of}}} 1.0',
        f'llm_d_epp_prefix_indexer_hit_ratio_bucket{{le="1.0",{of}}} 2.0',
        f"llm_d_epp_prefix_indexer_hit_ratio_sum{{{of}}} 1.0",
        f'llm_d_epp_prefix_indexer_hit_bytes_bucket{{le="256.0",{of}}} 1.0',
        f'llm_d_epp_prefix_indexer_hit_bytes_bucket{{le="512.0",{of}}} 2.0',
        f"llm_d_epp_prefix_indexer_hit_bytes_sum{{{of}}} 512.0",
        "epp_fleet_prefix_index_bytes 540.0",  # 2 blocks of 140, 1 turn of 260
    ):
        assert line in lines
    assert not any('pool="b"' in line for line in lines)


def test_bounds_belong_to_the_bucket_below() -> None:
    """As in Prometheus: `le`."""
    histogram = Histogram((0, 0.5))
    for value in (0, 0.1, 0.5, 0.6):
        histogram.observe(value)
    assert histogram.buckets() == [("0.0", 1), ("0.5", 3), ("+Inf", 4)]


def test_names_are_bounded() -> None:
    """Configurations come and go; what they named does not pile up."""
    figures = FiguresByName()
    for number in range(3 * MAX_NAMES):
        figures.of(f"producer-{number}")
    found = dict(figures)
    assert len(found) == MAX_NAMES + 1
    assert OTHER in found
