"""What the prefix indexes hold and find, as metric families; the llm-d router's names."""

from collections.abc import Iterator

from prometheus_client.core import HistogramMetricFamily, Metric

from epp_worker.scheduling.prefix.figures import BYTES_BOUNDS, RATIO_BOUNDS, PrefixPage
from epp_worker.scheduling.prefix.producer import PRODUCER
from fleet.metrics import Declared, gauge, histogram

_PLUGIN = ("plugin_name", "plugin_type")
_FOUND = "after the first pick with a prefix"

SIZE = gauge(
    "llm_d_epp_prefix_indexer_size",
    "Blocks in the prefix index, by pool.",
    ("namespace", "pool"),
    series="metrics.max_pools",
    when="of pools that have an index",
)
BYTES = gauge("epp_fleet_prefix_index_bytes", "Bytes of all prefix indexes, estimated.")
HIT_RATIO = histogram(
    "llm_d_epp_prefix_indexer_hit_ratio",
    "Part of a prompt that the picked endpoint has cached.",
    _PLUGIN,
    series=f"65 names of plugins x {len(RATIO_BOUNDS) + 1} buckets",
    when=_FOUND,
)
HIT_BYTES = histogram(
    "llm_d_epp_prefix_indexer_hit_bytes",
    "Bytes of a prompt that the picked endpoint has cached.",
    _PLUGIN,
    series=f"65 names of plugins x {len(BYTES_BOUNDS) + 1} buckets",
    when=_FOUND,
)


def families(page: PrefixPage) -> Iterator[Metric]:
    """The families of one moment."""
    yield SIZE.rows(((ref.namespace, ref.name), blocks) for ref, blocks in page.blocks.items())
    yield BYTES.of(page.used)
    ratio, length = _family(HIT_RATIO), _family(HIT_BYTES)
    for name, figures in page.found.items():
        for family, found in ((ratio, figures.ratio), (length, figures.length)):
            family.add_metric((name, PRODUCER), found.buckets(), found.total)
    yield ratio
    yield length


def _family(declared: Declared) -> HistogramMetricFamily:
    return HistogramMetricFamily(declared.name, declared.text, labels=declared.labels)
