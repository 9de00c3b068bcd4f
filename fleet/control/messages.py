"""The internal port's messages: what the leader and a worker tell each other.

Encoded as MessagePack, each a tagged struct; unknown fields are ignored and new fields have
defaults, so that format N and N-1 understand each other. A `format` above ours + 1 is refused.

Order on a control stream (opened by the leader, metadata `authorization: Bearer <token>`):

    leader                                  worker
    LeaderHello{epoch, leader}       ->
                                     <-     WorkerHello{member}      (or ends FAILED_PRECONDITION
                                                                      when it has seen higher)
    Assign{share}, SetDrain{on}      ->
    AssignPart{base, version, ...}   ->     (to a worker that reads parts: what changed in its
                                             share since the last that this stream has told)
                                     <-     AskShare{}   the part does not fit what is here:
                                                         all of it, please
                                     <-     Report{...}  at once after a change, and every heartbeat
                                                         (where the leader reads deltas: the
                                                         first whole, then what changed)
                                     <-     Ask{groups}  who owns these? (streams of theirs came)
    Owners{...}                      ->

Two leaders: the higher epoch's stream wins; the worker ends the other.
"""

from collections.abc import Mapping

import msgspec

from fleet.model import (
    Hold,
    LeaderInfo,
    Load,
    Member,
    MemberStatus,
    Placement,
    ShardMap,
    Share,
    ShareEntry,
)
from fleet.model.identity import EpochVersion, GroupKey

FORMAT = 1
SERVICE = "epp_fleet.internal.v1.Worker"
CONTROL_METHOD = f"/{SERVICE}/Control"
STATE_METHOD = f"/{SERVICE}/State"
FORWARD_METHOD = f"/{SERVICE}/Forward"
HOLDS_METHOD = f"/{SERVICE}/Holds"
COORDINATOR_SERVICE = "epp_fleet.internal.v1.Coordinator"
WATCH_MAP_METHOD = f"/{COORDINATOR_SERVICE}/WatchMap"
SEEN_EPOCH_KEY = "epp-fleet-epoch"
"""Trailing metadata of a refused control stream: the highest epoch that the worker has seen."""


class LeaderHello(msgspec.Struct, frozen=True, tag="leader_hello"):
    """First message down.

    Attributes:
        deltas: this leader reads reports that say only what changed since the last of the stream.
    """

    fleet: str
    epoch: int
    leader: LeaderInfo
    format: int = FORMAT
    deltas: bool = False


class WorkerPeer(msgspec.Struct, frozen=True):
    """Another living worker, as workers reach each other.

    Attributes:
        internal: `host:port` of its internal port.
    """

    internal: str
    incarnation: str


class Assign(msgspec.Struct, frozen=True, tag="assign"):
    """The whole share of the worker; applied exactly if its version is higher than the last.

    Attributes:
        others: whether another worker lives that could take over what this one holds; None from
            a leader that does not say. Sent again with the same share when it changes.
        peers: every living worker by id, this one included; None = as last said on this stream.
    """

    share: Share
    others: bool | None = None
    peers: Mapping[str, WorkerPeer] | None = None
    format: int = FORMAT


class AssignPart(msgspec.Struct, frozen=True, tag="assign_part"):
    """A share by what is other in it than in the last that the stream has told; a worker that says
    that it reads these gets them after its first whole one (see `fleet.control.sharing`).

    Attributes:
        base: version of the share that it builds on.
        version: of the share that comes out of it; `base` if only others or peers are news.
        changed: groups that are new or other.
        gone: groups that are the worker's no more.
        groups, sum: what the whole share comes to.
        others, peers: as in `Assign`.
    """

    base: EpochVersion
    version: EpochVersion
    changed: tuple[ShareEntry, ...]
    gone: tuple[GroupKey, ...]
    groups: int
    sum: int
    others: bool | None = None
    peers: Mapping[str, WorkerPeer] | None = None
    format: int = FORMAT


class OwnerOf(msgspec.Struct, frozen=True):
    """Who owns a group in the present map; None = nobody, or no such group."""

    group: GroupKey
    owner: str | None


class Owners(msgspec.Struct, frozen=True, tag="owners"):
    """The answer to `Ask`, from the last published map of this version."""

    version: EpochVersion
    owners: tuple[OwnerOf, ...]
    format: int = FORMAT


class SetDrain(msgspec.Struct, frozen=True, tag="set_drain"):
    """Set or lift the worker's own drain mark."""

    on: bool
    format: int = FORMAT


class Verdict(msgspec.Struct, frozen=True, tag="verdict"):
    """The leader's last word to an incarnation.

    Attributes:
        kind: `dead` (rejoin under a new incarnation) or `duplicate` (the id is taken: exit 2).
    """

    incarnation: str
    kind: str
    reason: str
    format: int = FORMAT


class WorkerHello(msgspec.Struct, frozen=True, tag="worker_hello"):
    """First message up: the worker by its own words, holds and highest epoch.version included.

    Attributes:
        deltas: this worker reads shares that say only what changed since the last of the stream.
    """

    member: Member
    format: int = FORMAT
    deltas: bool = False


class HoldReport(msgspec.Struct, frozen=True):
    """How far the worker is with one group.

    Attributes:
        synced: the pools' pods are listed (and each endpoint scraped once, or tried; and, where it
            opens, the owner's state of it is here, or will not come).
        quiet: a draining group to which nothing has strayed for `quiet_seconds`.
        streams_per_second: smoothed over about 10 s.
    """

    group: GroupKey
    hold: Hold
    synced: bool
    quiet: bool = False
    streams_per_second: float = 0.0


class Report(msgspec.Struct, frozen=True, tag="report"):
    """Sent by the worker's serving loop at once after a change, and every heartbeat.

    Attributes:
        version: the last share that was applied.
        partial: `holds` are only those that are other than the stream has told so far (see
            `fleet.control.reporting`); never before a whole one, nor to a leader that does not
            read it.
        gone: of a partial one, what is held no more.
    """

    version: EpochVersion
    seen: EpochVersion
    holds: tuple[HoldReport, ...]
    draining: bool
    load: Load
    format: int = FORMAT
    partial: bool = False
    gone: tuple[GroupKey, ...] = ()


MAX_ASKED = 256
"""Groups in one `Ask`; the leader answers the first so many."""


class Ask(msgspec.Struct, frozen=True, tag="ask"):
    """Who owns these groups? Asked when streams came for groups that are not held here."""

    groups: tuple[GroupKey, ...]
    format: int = FORMAT


class AskShare(msgspec.Struct, frozen=True, tag="ask_share"):
    """The part of a share that came is none of what is here: tell all of it."""

    format: int = FORMAT


class Unknown(msgspec.Struct, frozen=True):
    """A message of a kind that this version does not know: to be passed over."""

    type: str
    format: int = FORMAT


Down = LeaderHello | Assign | AssignPart | SetDrain | Verdict | Owners
Up = WorkerHello | Report | Ask | AskShare


class WatchMap(msgspec.Struct, frozen=True, tag="watch_map"):
    """A follower's request. Version N-1 sends nothing at all instead, and reads nothing of it.

    Attributes:
        parts: this follower reads maps that say only what changed since the last of the stream.
    """

    parts: bool = False
    format: int = FORMAT


class MapPart(msgspec.Struct, frozen=True):
    """A map by what is other in it than in the last that the stream has told.

    Attributes:
        base: version of the map that it builds on.
        frame: all of the map but its placements.
        changed: groups that are new or placed otherwise.
        gone: groups that are no more.
        groups: how many the whole map has.
    """

    base: EpochVersion
    frame: ShardMap
    changed: tuple[Placement, ...]
    gone: tuple[GroupKey, ...]
    groups: int


class MapUpdate(msgspec.Struct, frozen=True, tag="map_update"):
    """Pushed by the leader to followers over `WatchMap` on every change (at most every 0.1 s).

    Attributes:
        shard_map: None where nothing is new, or `part` says it: only to a follower that reads
            parts, and never before a whole one.
    """

    shard_map: ShardMap | None
    members: tuple[MemberStatus, ...]
    format: int = FORMAT
    part: MapPart | None = None
