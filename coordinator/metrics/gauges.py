"""What every replica shows of the fleet as it knows it, and of itself."""

from collections import Counter as Tally
from collections.abc import Callable, Iterator

from prometheus_client.metrics_core import Metric

from coordinator.claims import Claims
from coordinator.ownership import RefusalReason
from coordinator.view import View
from fleet.metrics import gauge
from fleet.model import MemberState, Phase, Signal

LEADER = gauge("epp_fleet_leader", "1 if this replica leads.")
EPOCH = gauge("epp_fleet_epoch", "Epoch as known here.")
MAP_VERSION = gauge("epp_fleet_map_version", "Version of the newest map known here.")
MAP_AGE = gauge(
    "epp_fleet_map_age_seconds",
    "Since the leader or the store last said that the map known here is the newest; 0 on a leader, "
    "since the start where none was ever heard of.",
)
GROUPS = gauge("epp_fleet_groups", "Route groups by phase.", ("phase",), series="5 phases")
UNOWNED = gauge("epp_fleet_unowned_groups", "Route groups nobody serves.")
MEMBERS = gauge("epp_fleet_members", "Workers by state.", ("state",), series="4 states")
SIGNALS = gauge(
    "epp_fleet_member_signals",
    "Workers that a signal speaks against: suspects, and those that died within the last minute.",
    ("signal",),
    series="4 signals",
)
CLAIMED = gauge("epp_fleet_pools_claimed", "Pools that this fleet serves.")
REFUSALS = gauge(
    "epp_fleet_pool_refusals",
    "Refused pools and Services of pools by reason.",
    ("reason",),
    series="one for each reason",
)
EXPIRY = gauge(
    "epp_fleet_certificate_expiry_seconds",
    "Seconds until the certificate of the internal port expires.",
    when="where security.* names certificates",
)
STORE_BEHIND = gauge(
    "epp_fleet_store_behind_seconds",
    "Since when the map that this leader published is not in the store; 0 if it is there, on "
    "followers, and where the lease is in the store, which is then written first.",
)


def claim_families(claims: Claims) -> Iterator[Metric]:
    """What is decided about pools."""
    claimed, reasons = claims.tally()
    yield CLAIMED.of(claimed)
    yield REFUSALS.by({reason.value: reasons[reason.value] for reason in RefusalReason})


def view_families(view: View, epoch: Callable[[], int]) -> Iterator[Metric]:
    """The fleet as this replica knows it."""
    shard_map = view.shard_map()
    members = view.members()
    placements = [] if shard_map is None else list(shard_map.placements.values())
    phases = Tally(placement.phase for placement in placements)
    states = Tally(status.state for status in members)
    signals = Tally(status.signal for status in members)
    yield LEADER.of(int(view.leading()))
    yield EPOCH.of(epoch())
    yield MAP_VERSION.of(0 if shard_map is None else shard_map.version.version)
    yield GROUPS.by({phase.value: phases[phase] for phase in Phase})
    yield UNOWNED.of(sum(not placement.owners for placement in placements))
    yield MEMBERS.by({state.value: states[state] for state in MemberState})
    yield SIGNALS.by({signal.value: signals[signal] for signal in Signal})
