"""Maps, workers and scrapes of a leader, for tests of its metrics."""

from collections.abc import Sequence

from fleet.model import (
    Addresses,
    EpochVersion,
    GroupKey,
    LeaderInfo,
    Member,
    MemberState,
    MemberStatus,
    Phase,
    Placement,
    PoolId,
    PoolRef,
    Reason,
    ShardMap,
)

LEADER = LeaderInfo("coordinator-0", "127.0.0.1:8080", "127.0.0.1:8081")


def group(number: int) -> GroupKey:
    """The group of pool `p<number>`."""
    return GroupKey("ns", f"p{number}-epp", 9002)


def placement(
    number: int,
    *owners: str,
    standby: str | None = None,
    phase: Phase = Phase.OWNED,
    since: float = 5.0,
    moving_to: str | None = None,
    draining: Sequence[str] = (),
) -> Placement:
    """Of the group of pool `p<number>`."""
    pools = (PoolId(PoolRef("ns", f"p{number}"), f"u{number}"),)
    return Placement(
        group(number),
        pools,
        phase if owners else Phase.UNOWNED,
        owners,
        standby,
        Reason.INITIAL,
        since,
        moving_to,
        tuple(draining),
    )


def map_of(*placements: Placement, version: int = 1) -> ShardMap:
    """A map of these, with workers w0 and w1."""
    return ShardMap(
        "default",
        EpochVersion(1, version),
        0.0,
        LEADER,
        {each.group: each for each in placements},
        incarnations={"w0": "i", "w1": "i"},
    )


def placed(pools: int) -> ShardMap:
    """All owned by w0, with w1 as stand-by."""
    return map_of(*(placement(number, "w0", standby="w1") for number in range(pools)))


def member(name: str, *, weight: int = 1, state: MemberState = MemberState.ALIVE) -> MemberStatus:
    """A worker as the leader shows it."""
    worker = Member(name, "i", Addresses("", "", "", ""), weight=weight)
    return MemberStatus(worker, state, None, 0, 0)
