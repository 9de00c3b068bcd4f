"""Writes the page of a worker from its figures; for a thread."""

from collections.abc import Collection, Iterator
from dataclasses import replace

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import Metric

from epp_worker.handover.metrics import families as state_families
from epp_worker.metrics.bounded import bound_families
from epp_worker.metrics.figures import Figures
from epp_worker.metrics.pools import (
    SCRAPE_AGE,
    named_pools,
    pool_texts,
    scrape_age,
)
from epp_worker.metrics.served import served_families
from epp_worker.requests.moment import Moment
from epp_worker.requests.page import write
from epp_worker.scheduling.prefix.figures import PrefixPage
from epp_worker.scheduling.prefix.metrics import families as prefix_families
from fleet.metrics import Collected
from fleet.metrics.process import build_info
from fleet.metrics.series import SERIES_DROPPED, shown_pools
from fleet.model import PoolRef
from fleet.settings.metrics import MetricsSettings
from fleet.sources.metrics import families as source_families
from fleet.store.metrics import families as store_families


class MetricsPage:
    """Renders figures, and those of the process itself."""

    def __init__(self, settings: MetricsSettings | None = None) -> None:
        self._max_pools = (settings or MetricsSettings()).max_pools
        self._figures: Figures | None = None
        self._prefixes = PrefixPage()
        self._dropped = 0
        self._registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self._registry)
        self._registry.register(Collected(self._families))

    def render(self, figures: Figures) -> bytes:
        """The page in the text format 0.0.4; may take long, so not on the serving loop."""
        shown = shown_pools(named_pools(figures), self._max_pools)
        texts, self._dropped = pool_texts(figures, shown)
        self._figures = figures
        self._prefixes = _prefixes_of(figures.prefixes, shown)
        usual = generate_latest(self._registry)
        router = write(_router_of(figures.router, shown))
        return b"".join((usual, *(text.encode() for text in texts), *router))

    def _families(self) -> Iterator[Metric]:
        figures = self._figures
        if figures is None:
            return
        yield build_info()
        yield SERIES_DROPPED.of(self._dropped)
        yield from served_families(figures)
        yield SCRAPE_AGE.of(scrape_age(figures))
        yield from bound_families(figures)
        yield from source_families(figures.source)
        yield from state_families(figures.state)
        yield from prefix_families(self._prefixes)
        yield from store_families(figures.store_errors)


def _router_of(moment: Moment, shown: Collection[PoolRef]) -> Moment:
    """Without the pools that have no series of their own."""
    return replace(
        moment,
        pools=tuple(pool for pool in moment.pools if pool.ref in shown),
        rows=tuple(each for each in moment.rows if each[0] in shown),
    )


def _prefixes_of(page: PrefixPage, shown: Collection[PoolRef]) -> PrefixPage:
    return replace(page, blocks={ref: n for ref, n in page.blocks.items() if ref in shown})
