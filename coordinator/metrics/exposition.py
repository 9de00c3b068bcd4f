"""A page of metrics without standing in the loop's way: numbers are read on it, text is made in a
thread.

Ten thousand samples take 50 ms to write. What a page says of single pools follows from the
published map alone, which does not change: that is looked through in the thread, too.
"""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric

from fleet.metrics import Families


class LateRegistry(CollectorRegistry):
    """A registry with families besides, of which only the facts are read on the loop.

    Args:
        late: reads the facts; what it returns makes families of them in any thread.
    """

    def __init__(self, late: Callable[[], Families]) -> None:
        super().__init__()
        self.late = late


class Frozen(CollectorRegistry):
    """What a registry had to say at one moment."""

    def __init__(self, families: list[Metric], late: Families) -> None:
        super().__init__()
        self._families = families
        self._late = late

    def collect(self) -> Iterator[Metric]:
        """See prometheus_client."""
        yield from self._families
        yield from self._late()


def frozen(registry: CollectorRegistry) -> Frozen:
    """The numbers of now; to be called on the loop."""
    late = registry.late() if isinstance(registry, LateRegistry) else lambda: iter(())
    return Frozen(list(registry.collect()), late)
