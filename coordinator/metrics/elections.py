"""What a replica sees of the election: plain numbers, counted by its candidate."""

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric

from fleet.metrics import Histogram, counter, histogram

TRANSITIONS = counter(
    "epp_fleet_leader_transitions_total",
    "Leaderships that this replica saw begin (each has an epoch); all replicas see the same ones: "
    "take the maximum.",
)
RENEWALS = histogram(
    "epp_fleet_lease_renew_seconds",
    "Renewals of this replica's lease, answered or not.",
    series="14 buckets",
)


class ElectionFigures:
    """Of one process.

    Attributes:
        transitions: leaderships seen to begin.
        renew_seconds: how long each renewal took.
    """

    def __init__(self) -> None:
        self.transitions = 0
        self.renew_seconds = Histogram()
        self._epoch: int | None = None

    def saw(self, epoch: int) -> None:
        """The lease has this epoch, 0 = none was ever given. The first one seen had begun before,
        unless there was none."""
        if self._epoch is not None and epoch > self._epoch:
            self.transitions += 1
        self._epoch = epoch if self._epoch is None else max(self._epoch, epoch)

    def families(self) -> Iterator[Metric]:
        """What Prometheus reads."""
        yield TRANSITIONS.of(self.transitions)
        yield RENEWALS.distribution([((), self.renew_seconds)])
