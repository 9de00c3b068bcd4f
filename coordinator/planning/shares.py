"""From a map to its workers' shares, and back: what they hold becomes a map again."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from coordinator.planning.differences import differing
from fleet.model import (
    GroupKey,
    Hold,
    LeaderInfo,
    Member,
    Phase,
    Placement,
    PoolId,
    Reason,
    ShardMap,
    Share,
    ShareEntry,
)

Entries = tuple[tuple[str, ShareEntry], ...]
"""What one group's placement means for workers: each by its id."""


def shares_of(shard_map: ShardMap) -> dict[str, Share]:
    """The share of every worker of the map, in one pass (fleet.model.share_of is one worker's)."""
    return dict(Shares().next(shard_map, whole=True).all)


class Made(NamedTuple):
    """The shares of a map.

    Attributes:
        all: by worker; one that is as it was is the very same object, of an earlier version.
        changed: workers whose share is of this version.
    """

    all: Mapping[str, Share]
    changed: frozenset[str]


class Shares:
    """The shares of one map after another.

    A map differs from the one before in a few groups: only what these mean is worked out, and only
    the workers that they concern get another share. At 10,000 groups on 100 workers that is 1 ms
    for each map; all anew is 25.
    """

    def __init__(self) -> None:
        self._placements: Mapping[GroupKey, Placement] = {}
        self._holders: dict[GroupKey, Entries] = {}
        self._entries: dict[str, dict[GroupKey, ShareEntry]] = {}
        self._shares: dict[str, Share] = {}

    def next(self, shard_map: ShardMap, *, whole: bool) -> Made:
        """The shares of `shard_map`.

        Args:
            whole: all of them are of its version, also those that are as they were.
        """
        touched = self._follow(shard_map.placements)
        changed = set()
        shares: dict[str, Share] = {}
        for worker, incarnation in shard_map.incarnations.items():
            share = self._shares.get(worker)
            same = share is not None and share.incarnation == incarnation
            if share is None or not same or whole or worker in touched:
                entries = tuple(self._entries.get(worker, {}).values())
                version = shard_map.version
                share = Share(shard_map.fleet, worker, incarnation, version, entries)
                changed.add(worker)
            shares[worker] = share
        self._shares = shares
        return Made(shares, frozenset(changed))

    def _follow(self, placements: Mapping[GroupKey, Placement]) -> set[str]:
        """Work out what differs; returns the workers that have other groups now."""
        changed, gone = differing(self._placements, placements)
        touched: set[str] = set()
        for group in gone:
            self._hold(group, (), touched)
            del self._holders[group]
        for group in changed:
            self._hold(group, _entries_of(placements[group]), touched)
        self._placements = placements
        return touched

    def _hold(self, group: GroupKey, entries: Entries, touched: set[str]) -> None:
        before = self._holders.get(group, ())
        self._holders[group] = entries
        if before == entries:
            return
        kept = {worker for worker, _ in entries}
        for worker, _ in before:
            if worker not in kept:
                touched.add(worker)
                mine = self._entries[worker]
                del mine[group]
                if not mine:
                    del self._entries[worker]
        for worker, entry in entries:
            mine = self._entries.setdefault(worker, {})
            if mine.get(group) != entry:
                touched.add(worker)
                mine[group] = entry


def _entries_of(placement: Placement) -> Entries:
    owner = placement.owners[0] if placement.owners else None
    return tuple(
        (worker, ShareEntry(placement.group, hold, placement.pools, owner))
        for worker, hold in _holds_of(placement).items()
    )


def _holds_of(placement: Placement) -> dict[str, Hold]:
    """Who holds the group and how; the first of owner, gainer, former owner, stand-by counts."""
    holds = dict.fromkeys(placement.owners, Hold.OWNER)
    if placement.moving_to is not None:
        holds.setdefault(placement.moving_to, Hold.OPENING)
    for worker in placement.draining:
        holds.setdefault(worker, Hold.DRAINING)
    if placement.standby is not None:
        holds.setdefault(placement.standby, Hold.STANDBY)
    return holds


def rebuild(
    *,
    fleet: str,
    leader: LeaderInfo,
    members: Iterable[Member],
    groups: Mapping[GroupKey, tuple[PoolId, ...]],
    wall: float,
) -> ShardMap | None:
    """The map as the workers themselves remember it, or None if none of them owns anything.

    For a leader that has no map: no memory of its own and an emptied store. Of two workers that
    both claim a group, the one that has applied the share of the higher epoch.version is right.
    A group of which only the stand-by is left is nobody's, with that stand-by: it is the warm one.
    """
    ordered = sorted(
        members, key=lambda member: (member.applied, member.seen, member.id), reverse=True
    )
    owners: dict[GroupKey, str] = {}
    standbys: dict[GroupKey, str] = {}
    draining: dict[GroupKey, list[str]] = {}
    for member in ordered:
        for group, hold in member.holds.items():
            if hold is Hold.OWNER:
                owners.setdefault(group, member.id)
            elif hold is Hold.STANDBY:
                standbys.setdefault(group, member.id)
            elif hold is Hold.DRAINING:
                draining.setdefault(group, []).append(member.id)
    placements = {
        group: Placement(
            group,
            pools,
            Phase.OWNED if group in owners else Phase.UNOWNED,
            (owners[group],) if group in owners else (),
            standbys.get(group),
            Reason.KEPT,
            since=wall,
            draining=tuple(draining.get(group, ())),
        )
        for group, pools in groups.items()
        if group in owners or group in standbys
    }
    if not any(placement.owners for placement in placements.values()):
        return None
    return ShardMap(
        fleet=fleet,
        version=max(member.seen for member in ordered),
        published_at=wall,
        leader=leader,
        placements=placements,
        incarnations={member.id: member.incarnation for member in ordered},
        addresses={member.id: member.addresses.ext_proc for member in ordered},
    )
