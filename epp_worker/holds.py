"""What a worker holds of each route group, and how a share of the map changes it. Pure.

A share is the whole of what the leader wants of this worker. It is applied if and only if its
version is above the last applied one, it speaks of this incarnation (or of none), and its epoch is
not below the highest epoch that this worker has seen anywhere: a lower epoch never changes what a
worker serves.

A group that a share no longer names is dropped only when nothing has strayed to it for a while;
until then it drains. What the leader thinks is no reason to fail a stream that is already here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from fleet.model import EpochVersion, GroupKey, Hold, PoolId, Share, ShareEntry
from fleet.model.identity import NONE

SCRAPING = frozenset({Hold.OPENING, Hold.OWNER, Hold.DRAINING})
"""Holds in which the endpoints' metrics are read; a stand-by only knows its pods."""


class Ruling(StrEnum):
    """What becomes of a share, and why."""

    APPLY = "apply"
    NOT_NEWER = "not_newer"
    LOWER_EPOCH = "lower_epoch"
    OTHER_INCARNATION = "other_incarnation"
    OTHER_WORKER = "other_worker"


@dataclass(frozen=True, slots=True)
class Standing:
    """A worker as shares are judged by.

    Attributes:
        applied: version of the last share that was applied.
        seen_epoch: highest epoch seen anywhere: share, control stream, store.
        hearsay: what was applied last came from peers; a leader's share of the same version
            takes its place.
    """

    fleet: str
    worker: str
    incarnation: str
    applied: EpochVersion = NONE
    seen_epoch: int = 0
    hearsay: bool = False


def judge(standing: Standing, share: Share) -> Ruling:
    """Whether `share` may change what this worker holds."""
    if (share.fleet, share.worker) != (standing.fleet, standing.worker):
        return Ruling.OTHER_WORKER
    if share.version.epoch < standing.seen_epoch:
        return Ruling.LOWER_EPOCH
    if share.incarnation not in ("", standing.incarnation):
        return Ruling.OTHER_INCARNATION
    if share.version <= standing.applied:
        if standing.hearsay and share.version == standing.applied:
            return Ruling.APPLY
        return Ruling.NOT_NEWER
    return Ruling.APPLY


@dataclass(frozen=True, slots=True)
class Held:
    """One group as it is held now.

    Attributes:
        idle: nothing has strayed to it lately, so it may be dropped at once.
    """

    hold: Hold
    pools: tuple[PoolId, ...]
    owner: str | None
    idle: bool


@dataclass(frozen=True, slots=True)
class Open:
    """Begin to hold a group."""

    entry: ShareEntry


@dataclass(frozen=True, slots=True)
class Turn:
    """Hold a group in another way, or with other pools or another owner."""

    entry: ShareEntry


@dataclass(frozen=True, slots=True)
class Drop:
    """Hold a group no longer."""

    group: GroupKey


Step = Open | Turn | Drop


def diff(current: Mapping[GroupKey, Held], share: Share) -> tuple[Step, ...]:
    """The steps from what is held now to `share`: openings first, so that gains never wait."""
    opens: list[Step] = []
    turns: list[Step] = []
    named = set()
    for entry in share.entries:
        named.add(entry.group)
        held = current.get(entry.group)
        if held is None:
            opens.append(Open(entry))
        elif (held.hold, held.pools, held.owner) != (entry.hold, entry.pools, entry.owner):
            turns.append(Turn(entry))
    drops: list[Step] = []
    for group, held in current.items():
        if group in named:
            continue
        if held.idle:
            drops.append(Drop(group))
        elif held.hold is not Hold.DRAINING:
            turns.append(Turn(ShareEntry(group, Hold.DRAINING, held.pools, None)))
    return (*opens, *turns, *drops)


def release_all(current: Mapping[GroupKey, Held]) -> tuple[Step, ...]:
    """The steps of a worker that was declared dead: it owns nothing, and still answers strays."""
    return tuple(
        Turn(ShareEntry(group, Hold.DRAINING, held.pools, None))
        for group, held in current.items()
        if held.hold is not Hold.DRAINING
    )
