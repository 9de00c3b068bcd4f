"""Series of single pools, and of the workers that they are at: the leader's alone.

Made from the published map when a scrape asks: a series goes with its pool, its worker, and the
leadership. Only the first `max_pools` pools by name have series; what is left out is counted.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.metrics_core import Metric

from fleet.metrics import gauge
from fleet.metrics.series import shown_pools
from fleet.model import GroupKey, MemberState, MemberStatus, Placement, PoolRef, ShardMap

_LEADER = "on the leader"

OWNER_INFO = gauge(
    "epp_fleet_pool_owner_info",
    "Always 1: which worker is what to a pool.",
    ("namespace", "pool", "group", "worker", "role"),
    series="metrics.max_pools x (owners + stand-by + draining ones): 2 each at rest",
    when=_LEADER,
)
SINCE = gauge(
    "epp_fleet_pool_since_seconds",
    "Unix time of the last change of the pool's owners.",
    ("namespace", "pool"),
    series="metrics.max_pools",
    when=_LEADER,
)
OWNED_GROUPS = gauge(
    "epp_fleet_worker_owned_groups",
    "Route groups that a worker owns by the published map.",
    ("worker",),
    series="living workers",
    when=_LEADER,
)
LOAD = gauge(
    "epp_fleet_worker_load",
    "Load of a worker as placement counts it: 1 for each group it owns, and their streams/s.",
    ("worker",),
    series="living workers",
    when=_LEADER,
)
WEIGHT = gauge(
    "epp_fleet_worker_weight",
    "Share of the ring that a worker asks for, relative to others.",
    ("worker",),
    series="living workers",
    when=_LEADER,
)


@dataclass(frozen=True, slots=True)
class Leading:
    """What a leader knows at one moment.

    Attributes:
        loads: streams per second by group.
    """

    shard_map: ShardMap
    members: Sequence[MemberStatus]
    loads: Mapping[GroupKey, float]


def pool_families(leading: Leading | None, max_pools: int) -> tuple[list[Metric], int]:
    """Families of pools, and how many series are left out; without a leadership they are empty."""
    placements = () if leading is None else leading.shard_map.placements.values()
    shown = shown_pools((pool.ref for each in placements for pool in each.pools), max_pools)
    owners: list[tuple[Sequence[str], float]] = []
    since: dict[PoolRef, float] = {}
    dropped: set[PoolRef] = set()
    left_out = 0
    for placement in placements:
        roles = tuple(_roles(placement))
        group = str(placement.group)
        for pool in placement.pools:
            ref = pool.ref
            if ref not in shown:
                left_out += len(roles)
                dropped.add(ref)
                continue
            # A pool whose Service changes is in two groups for a while.
            since[ref] = max(placement.since, since.get(ref, 0.0))
            owners += [
                ((ref.namespace, ref.name, group, worker, role), 1) for worker, role in roles
            ]
    times = [((ref.namespace, ref.name), moment) for ref, moment in since.items()]
    return [OWNER_INFO.rows(owners), SINCE.rows(times)], left_out + len(dropped)


def _roles(placement: Placement) -> Iterator[tuple[str, str]]:
    for owner in placement.owners:
        yield owner, "owner"
    if placement.standby is not None and placement.standby not in placement.owners:
        yield placement.standby, "standby"
    for former in placement.draining:
        yield former, "draining"


def worker_families(leading: Leading | None) -> list[Metric]:
    """Families of workers; without a leadership they are empty."""
    owned: Counter[str] = Counter()
    load: defaultdict[str, float] = defaultdict(float)
    living: list[MemberStatus] = []
    if leading is not None:
        living = [each for each in leading.members if each.state is not MemberState.DEAD]
        for group, placement in leading.shard_map.placements.items():
            for owner in placement.owners:
                owned[owner] += 1
                load[owner] += 1.0 + leading.loads.get(group, 0.0)
    names = [each.member.id for each in living]
    return [
        OWNED_GROUPS.by({name: owned[name] for name in names}),
        LOAD.by({name: load[name] for name in names}),
        WEIGHT.by({each.member.id: each.member.weight for each in living}),
    ]
