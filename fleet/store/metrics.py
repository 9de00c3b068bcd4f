"""What Prometheus reads of a store: how many calls failed, by kind."""

from collections.abc import Iterator, Mapping

from prometheus_client.metrics_core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from fleet.store.contract import Store
from fleet.store.redis import RedisStore


def store_errors(store: Store) -> Mapping[str, int]:
    """Failed calls so far by kind, those that never were as well; none of a store in memory."""
    return dict(store.errors()) if isinstance(store, RedisStore) else {}


def families(errors: Mapping[str, int]) -> Iterator[Metric]:
    """What Prometheus reads."""
    family = CounterMetricFamily(
        "epp_fleet_store_errors",
        "Calls to Redis or Valkey whose outcome is unknown, by what went wrong.",
        labels=("kind",),
    )
    for kind, count in errors.items():
        family.add_metric((kind,), count)
    yield family


class StoreCollector(Collector):
    """Figures at the time of the scrape."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def collect(self) -> Iterator[Metric]:
        """See prometheus_client."""
        return families(store_errors(self._store))
