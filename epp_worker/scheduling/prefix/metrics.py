"""What the prefix indexes hold and find, as metric families; the llm-d router's names."""

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric

from epp_worker.scheduling.prefix.figures import PrefixPage
from epp_worker.scheduling.prefix.producer import PRODUCER


def families(page: PrefixPage) -> Iterator[Metric]:
    """The families of one moment."""
    size = GaugeMetricFamily(
        "llm_d_epp_prefix_indexer_size",
        "Blocks in the prefix index, by pool.",
        labels=("namespace", "pool"),
    )
    for ref, blocks in page.blocks.items():
        size.add_metric((ref.namespace, ref.name), blocks)
    yield size
    yield GaugeMetricFamily(
        "epp_fleet_prefix_index_bytes", "Bytes of all prefix indexes, estimated.", value=page.used
    )
    ratio = HistogramMetricFamily(
        "llm_d_epp_prefix_indexer_hit_ratio",
        "Part of a prompt that the picked endpoint has cached.",
        labels=("plugin_name", "plugin_type"),
    )
    length = HistogramMetricFamily(
        "llm_d_epp_prefix_indexer_hit_bytes",
        "Bytes of a prompt that the picked endpoint has cached.",
        labels=("plugin_name", "plugin_type"),
    )
    for name, figures in page.found.items():
        for family, histogram in ((ratio, figures.ratio), (length, figures.length)):
            family.add_metric((name, PRODUCER), histogram.buckets(), histogram.total)
    yield ratio
    yield length
