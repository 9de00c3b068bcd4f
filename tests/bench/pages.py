"""What a scrape of a large fleet takes: of the loop, and of a thread beside it."""

import gc
import time
from collections.abc import Callable, Iterator

from prometheus_client import generate_latest

from coordinator.metrics import Metrics
from coordinator.metrics.exposition import frozen
from coordinator.metrics.pools import Leading
from epp_worker.metrics import MetricsPage
from tests.bench.rows import Row
from tests.many_pools import ManyPools
from tests.metrics_maps import member, placed

POOLS = 1000
GROUPS = 10_000
ROUNDS = 7


def _cpu_ms(work: Callable[[], object]) -> float:
    """The least of some rounds, for others' work to fall out."""
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.thread_time()
        work()
        best = min(best, time.thread_time() - began)
    return best * 1e3


def _worker(name: str, *, asked: bool) -> Iterator[Row]:
    many, page = ManyPools(POOLS, asked=asked), MetricsPage()
    figures = many.figures()
    yield Row(f"worker page, {POOLS} {name}: the loop", _cpu_ms(many.figures), "ms CPU")
    written = _cpu_ms(lambda: page.render(figures))
    yield Row(f"worker page, {POOLS} {name}: a thread", written, "ms CPU", 150.0)


def rows() -> Iterator[Row]:
    """The room."""
    gc.disable()
    try:
        yield from _worker("idle pools", asked=False)
        yield from _worker("pools with requests", asked=True)
        leading = Leading(placed(GROUPS), (member("w0"), member("w1")), {})
        metrics = Metrics()
        metrics.show_terms(lambda: leading, lambda: 0.0, time.time)
        taken = _cpu_ms(lambda: frozen(metrics.registry))
        yield Row(f"leader page, {GROUPS:,} groups: the loop", taken, "ms CPU")
        written = _cpu_ms(lambda: generate_latest(frozen(metrics.registry)))
        yield Row(f"leader page, {GROUPS:,} groups: a thread", written, "ms CPU")
    finally:
        gc.enable()
