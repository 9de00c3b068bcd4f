"""What Prometheus reads of a store: how many calls failed, by kind."""

from collections.abc import Iterator, Mapping

from prometheus_client.metrics_core import Metric

from fleet.metrics import counter
from fleet.store.contract import Store
from fleet.store.redis import RedisStore

ERRORS = counter(
    "epp_fleet_store_errors_total",
    "Calls to Redis or Valkey whose outcome is unknown, by what went wrong.",
    ("kind",),
    series="17 kinds of Redis or Valkey, none of the store in memory",
)


def store_errors(store: Store) -> Mapping[str, int]:
    """Failed calls so far by kind, those that never were as well; none of a store in memory."""
    return dict(store.errors()) if isinstance(store, RedisStore) else {}


def families(errors: Mapping[str, int]) -> Iterator[Metric]:
    """What Prometheus reads."""
    yield ERRORS.by(errors)
