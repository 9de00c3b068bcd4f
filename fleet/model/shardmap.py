"""The shard map: which worker serves which route group, in which phase and why."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from fleet.model.identity import EpochVersion, GroupKey, LeaderInfo, PoolId


class Phase(StrEnum):
    """Where a route group stands.

    `OPENING`: first placement, not acknowledged yet. `MOVING`: a planned move, the owner still
    serves while `moving_to` opens the pools.
    """

    UNOWNED = "unowned"
    OPENING = "opening"
    OWNED = "owned"
    MOVING = "moving"
    QUARANTINED = "quarantined"


class Reason(StrEnum):
    """Why a group is where it is."""

    INITIAL = "initial"
    OWNER_DEAD = "owner_dead"
    DRAIN = "drain"
    JOIN = "join"
    BALANCE = "balance"
    ROLLOUT = "rollout"
    PINNED = "pinned"
    KEPT = "kept"


class Hold(StrEnum):
    """What a worker holds of a group. In every hold it answers a stream that reaches it."""

    OPENING = "opening"
    STANDBY = "standby"
    OWNER = "owner"
    DRAINING = "draining"


@dataclass(frozen=True, slots=True)
class Placement:
    """One route group in the map. Workers are named by id.

    Attributes:
        owners: who serves it; empty when the phase is `UNOWNED`, and while a group that is
            `QUARANTINED` is given to nobody.
        standby: who is warm to take over, or None.
        moving_to: the gainer of a planned move in progress, or None.
        draining: former owners that keep the pools until no stream strays to them.
        since: wall-clock seconds of the last change of owners.
    """

    group: GroupKey
    pools: tuple[PoolId, ...]
    phase: Phase
    owners: tuple[str, ...]
    standby: str | None
    reason: Reason
    since: float
    moving_to: str | None = None
    draining: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RingSpec:
    """All that is needed to rebuild the same ring anywhere.

    Attributes:
        hash: name of the hash function; only `xxh3` is known.
        vnodes: points per unit of weight.
        weights: worker id -> weight, 1..100.
    """

    hash: str
    vnodes: int
    weights: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class DeadMember:
    """An incarnation that was declared dead; that is final for it.

    Attributes:
        at: wall-clock seconds.
        why: every signal that had fired, with its age, for people.
    """

    id: str
    incarnation: str
    signal: str
    at: float
    why: str = ""


@dataclass(frozen=True, slots=True)
class ShardMap:
    """One published generation of the map.

    Attributes:
        published_at: wall-clock seconds.
        incarnations: worker id -> the incarnation that this map speaks of.
        addresses: worker id -> its ext_proc `host:port`, so that routes follow from the map alone.
        dead: the latest dead incarnations, at most 256.
    """

    fleet: str
    version: EpochVersion
    published_at: float
    leader: LeaderInfo
    placements: Mapping[GroupKey, Placement]
    incarnations: Mapping[str, str] = field(default_factory=dict)
    addresses: Mapping[str, str] = field(default_factory=dict)
    dead: tuple[DeadMember, ...] = ()


@dataclass(frozen=True, slots=True)
class ShareEntry:
    """One group of a worker's share.

    Attributes:
        owner: id of the worker that owns the group now, or None.
    """

    group: GroupKey
    hold: Hold
    pools: tuple[PoolId, ...]
    owner: str | None


@dataclass(frozen=True, slots=True)
class Share:
    """The whole part of the map that concerns one incarnation of one worker."""

    fleet: str
    worker: str
    incarnation: str
    version: EpochVersion
    entries: tuple[ShareEntry, ...]


def _hold_of(placement: Placement, worker: str) -> Hold | None:
    if worker in placement.owners:
        return Hold.OWNER
    if worker == placement.moving_to:
        return Hold.OPENING
    if worker in placement.draining:
        return Hold.DRAINING
    if worker == placement.standby:
        return Hold.STANDBY
    return None


def share_of(shard_map: ShardMap, worker: str) -> Share:
    """The share of `worker` in `shard_map`: every group that it holds in any way."""
    entries = []
    for placement in shard_map.placements.values():
        hold = _hold_of(placement, worker)
        if hold is not None:
            owner = placement.owners[0] if placement.owners else None
            entries.append(ShareEntry(placement.group, hold, placement.pools, owner))
    incarnation = shard_map.incarnations.get(worker, "")
    return Share(shard_map.fleet, worker, incarnation, shard_map.version, tuple(entries))
