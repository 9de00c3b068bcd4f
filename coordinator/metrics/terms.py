"""What a replica has counted while it led, and what it saw of others' leading."""

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric

from coordinator.metrics.leading import TermFigures
from coordinator.metrics.unowned import longest_unowned
from fleet.metrics import counter, gauge, histogram
from fleet.model import ShardMap

_COUNTED = "counted by whoever leads: sum over replicas"

MOVES = counter(
    "epp_fleet_moves_total",
    "Groups that changed hands or failed to.",
    ("reason", "outcome"),
    series="7 reasons x 4 outcomes",
)
STALE = counter(
    "epp_fleet_stale_route_writes_total",
    "Routes found that the leader had not written; each was repaired.",
)
UNOWNED_SECONDS = counter(
    "epp_fleet_unowned_seconds_total",
    f"Group-seconds without an owner by the published map; {_COUNTED}.",
)
UNOWNED_LONGEST = gauge(
    "epp_fleet_unowned_longest_seconds",
    "For how long the group that has lacked an owner longest has had none; 0 on followers.",
)
VERDICTS = counter(
    "epp_fleet_verdicts_total",
    f"Workers declared dead, by signal; {_COUNTED}.",
    ("signal",),
    series="4 signals",
)
PROPAGATION = histogram(
    "epp_fleet_map_propagation_seconds",
    "From the begin of a map's publication to a worker's report that it has applied it.",
    series="18 buckets",
)
STEPS = histogram(
    "epp_fleet_handover_step_seconds",
    "Steps of groups that change hands: `open` by the gainer of a planned move, `acknowledge` by "
    "the owner of a first placement or a fail-over, `drain` at the former owner.",
    ("step",),
    series="3 steps x 13 buckets",
)
ROUTE_WRITES = counter(
    "epp_fleet_route_writes_total",
    "Routes by what became of writing them; `failed` counts whole batches.",
    ("outcome",),
    series="4 outcomes",
)
ROUTE_SECONDS = histogram(
    "epp_fleet_route_write_seconds", "Writing one batch of at most 128 routes.", series="14 buckets"
)
PENDING = gauge(
    "epp_fleet_moves_pending",
    "Planned moves that wait for their turn or are under way; 0 on followers.",
)
ASKED_AGAIN = counter(
    "epp_fleet_shares_asked_again_total",
    "Questions of workers for all of a share of which a part did not fit; who asks 5 times within "
    f"a minute is told wholes alone; {_COUNTED}.",
)
PLACEMENT = histogram(
    "epp_fleet_placement_seconds", "Placing all groups once.", series="14 buckets"
)


def term_families(figures: TermFigures, led: ShardMap | None, wall: float) -> Iterator[Metric]:
    """All of them.

    Args:
        led: the published map on a leader; else None.
        wall: wall-clock seconds.
    """
    yield MOVES.rows(figures.moves.items())
    yield STALE.of(figures.stale_route_writes)
    yield UNOWNED_SECONDS.of(figures.unowned.total)
    yield UNOWNED_LONGEST.of(longest_unowned(led, wall))
    yield VERDICTS.by(figures.verdicts)
    yield PROPAGATION.distribution([((), figures.propagation.seconds)])
    yield STEPS.distribution(
        ((step.value,), seconds) for step, seconds in figures.steps.seconds.items()
    )
    yield ROUTE_WRITES.by(figures.route_writes)
    yield ROUTE_SECONDS.distribution([((), figures.route_write_seconds)])
    yield PENDING.of(figures.moves_pending)
    yield ASKED_AGAIN.of(figures.shares_asked_again)
    yield PLACEMENT.distribution([((), figures.placement_seconds)])
