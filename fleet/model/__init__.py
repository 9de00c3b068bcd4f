"""Facts, and nothing but facts: frozen values that every room shares. No I/O, no clocks."""

from fleet.model.identity import EpochVersion, GroupKey, LeaderInfo, PoolId, PoolRef
from fleet.model.members import (
    Addresses,
    Load,
    Member,
    MemberState,
    MemberStatus,
    Signal,
)
from fleet.model.pools import Endpoint, FailureMode, Pod, Pool, Service, endpoints_of, group_pools
from fleet.model.shardmap import (
    DeadMember,
    Hold,
    Phase,
    Placement,
    Reason,
    RingSpec,
    ShardMap,
    Share,
    ShareEntry,
    share_of,
)

__all__ = [
    "Addresses",
    "DeadMember",
    "Endpoint",
    "EpochVersion",
    "FailureMode",
    "GroupKey",
    "Hold",
    "LeaderInfo",
    "Load",
    "Member",
    "MemberState",
    "MemberStatus",
    "Phase",
    "Placement",
    "Pod",
    "Pool",
    "PoolId",
    "PoolRef",
    "Reason",
    "RingSpec",
    "Service",
    "ShardMap",
    "Share",
    "ShareEntry",
    "Signal",
    "endpoints_of",
    "group_pools",
    "share_of",
]
