"""What a plan is made of: the situation that goes in, the next map and changes that come out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fleet.model import (
    DeadMember,
    EpochVersion,
    GroupKey,
    Hold,
    LeaderInfo,
    PoolId,
    Reason,
    ShardMap,
)

DONE = "done"
DEADLINE = "deadline"
CANCELLED = "cancelled"
GAINER_DEAD = "gainer_dead"


@dataclass(frozen=True, slots=True)
class Peer:
    """A worker that is not dead.

    Attributes:
        accepts: whether it may be given groups (it is not draining).
    """

    id: str
    incarnation: str
    ext_proc: str
    accepts: bool


@dataclass(frozen=True, slots=True)
class Held:
    """How far a worker says it is with one group; see the control messages' HoldReport."""

    hold: Hold
    synced: bool
    quiet: bool


@dataclass(frozen=True, slots=True)
class Told:
    """The latest report of one living incarnation.

    Attributes:
        version: the last share that it applied.
    """

    version: EpochVersion
    holds: Mapping[GroupKey, Held]


@dataclass(frozen=True, slots=True)
class Target:
    """Where placement wants a group, and why.

    Attributes:
        quarantined: it goes exactly there: not to its stand-by, and it is given none.
    """

    owner: str | None
    standby: str | None
    reason: Reason
    quarantined: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """A group that changed hands, or failed to; times are wall-clock seconds."""

    group: GroupKey
    source: str
    target: str
    reason: Reason
    started: float
    outcome: str


@dataclass(frozen=True, slots=True)
class Pending:
    """When and with which version a group began to open or to move.

    Attributes:
        began: monotonic seconds.
        wall: wall-clock seconds, for the audit record.
        version: reports of an older share say nothing about it.
    """

    began: float
    wall: float
    version: EpochVersion


@dataclass(frozen=True, slots=True)
class Backlog:
    """Moves that wait, and who holds them up. Times are monotonic seconds.

    Attributes:
        queued: groups whose gainer opens others at present, and since when they are to move.
        stalled: workers (id, incarnation) that missed a move's deadline, and when.
    """

    queued: Mapping[GroupKey, float]
    stalled: Mapping[tuple[str, str], float]


NO_BACKLOG = Backlog({}, {})


@dataclass(frozen=True, slots=True)
class Situation:
    """All that the next map follows from.

    Attributes:
        previous: the last published map, or None.
        version: what the next map will be numbered, if there is one.
        groups: every route group there is, with its pools.
        peers: living workers by id.
        told: latest reports by worker id.
        pending, backlog: of the last plan; a new leader starts with none.
        now, wall: monotonic and wall-clock seconds.
    """

    fleet: str
    leader: LeaderInfo
    previous: ShardMap | None
    version: EpochVersion
    groups: Mapping[GroupKey, tuple[PoolId, ...]]
    peers: Mapping[str, Peer]
    dead: tuple[DeadMember, ...]
    told: Mapping[str, Told]
    pending: Mapping[GroupKey, Pending]
    now: float
    wall: float
    move_deadline_seconds: float
    backlog: Backlog = NO_BACKLOG


@dataclass(frozen=True, slots=True)
class Next:
    """The outcome: `shard_map` is None if nothing changed.

    Attributes:
        open: the groups that were not exactly where they shall be, in the order of all groups. As
            long as targets, groups and survivors stay, no other group needs another look.
        astray: a group went elsewhere than to its target, which was found for where it was before:
            it has to be placed anew, from where it is now.
    """

    shard_map: ShardMap | None
    changes: tuple[Change, ...]
    pending: Mapping[GroupKey, Pending]
    backlog: Backlog = NO_BACKLOG
    open: tuple[GroupKey, ...] = ()
    astray: bool = False


TargetOf = Callable[[GroupKey], Target]
