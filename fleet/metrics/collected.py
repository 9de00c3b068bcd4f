"""What Prometheus' registry wants of whoever has families to show."""

from collections.abc import Callable, Iterator

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

Families = Callable[[], Iterator[Metric]]
"""The families of now."""


class Collected(Collector):
    """Families that are asked for at each scrape, where the page is rendered."""

    def __init__(self, families: Families) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        """See prometheus_client."""
        return self._families()
