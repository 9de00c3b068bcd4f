"""What a new leader starts from: its own memory, the store's map, what workers say they hold."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from coordinator.groups import Groups
from coordinator.planning import rebuild
from coordinator.verdicts import Judged
from fleet.model import Addresses, LeaderInfo, Member, MemberStatus, Phase, Placement, ShardMap


def newest(*maps: ShardMap | None) -> ShardMap | None:
    """The map with the highest epoch.version."""
    known = [shard_map for shard_map in maps if shard_map is not None]
    return max(known, key=lambda shard_map: shard_map.version, default=None)


def known_members(shard_map: ShardMap, statuses: Sequence[MemberStatus]) -> list[Member]:
    """The workers of the map: as followers knew them, else by the one address a map has."""
    by_life = {(status.member.id, status.member.incarnation): status.member for status in statuses}
    return [
        by_life.get((worker, incarnation))
        or Member(worker, incarnation, Addresses(shard_map.addresses.get(worker, ""), "", "", ""))
        for worker, incarnation in shard_map.incarnations.items()
    ]


def completed(
    previous: ShardMap | None,
    *,
    fleet: str,
    leader: LeaderInfo,
    members: Iterable[Member],
    groups: Groups,
    wall: float,
) -> ShardMap | None:
    """`previous`, corrected by workers that have applied newer shares than its own.

    After a roll-back of the store, or with an emptied one and no memory, what workers hold is the
    truth. A group whose owner is the same either way keeps all that the map says of it; but where
    the map's stand-by says that it does not hold the group, it is whoever says that it stands by.
    A worker that came back as another incarnation does not inherit what the map gives to the one
    before, unless it says that it owns something: then it was told so. What it was not told of is
    its predecessor's, which is dead: nobody's, until it is placed with whoever is warm.
    """
    reached = {member.id: member for member in members}
    ahead = [
        member
        for member in reached.values()
        if previous is None or member.applied > previous.version
    ]
    rebuilt = rebuild(fleet=fleet, leader=leader, members=ahead, groups=groups, wall=wall)
    if previous is None or rebuilt is None:
        return rebuilt or previous
    corrected = {
        group: placement
        for group, placement in rebuilt.placements.items()
        if group not in previous.placements
        or (placement.owners and previous.placements[group].owners != placement.owners)
    }
    owning = {owner for placement in rebuilt.placements.values() for owner in placement.owners}
    lives = {
        worker: incarnation
        for worker, incarnation in rebuilt.incarnations.items()
        if worker in owning or worker not in previous.incarnations
    }
    new = {
        worker
        for worker, incarnation in lives.items()
        if previous.incarnations.get(worker, incarnation) != incarnation
    }
    orphaned = {
        group: replace(placement, owners=(), phase=Phase.UNOWNED, moving_to=None)
        for group, placement in previous.placements.items()
        if new.intersection(placement.owners)
        and (group not in rebuilt.placements or not rebuilt.placements[group].owners)
    }
    placements = {**previous.placements, **orphaned, **corrected}
    for group, placement in rebuilt.placements.items():
        known, warm = placements[group], placement.standby
        if warm not in (None, *known.owners) and _holds_nothing(reached, previous, known):
            placements[group] = replace(known, standby=warm)
    return replace(
        previous,
        version=max(previous.version, rebuilt.version),
        placements=placements,
        incarnations={**previous.incarnations, **lives},
        addresses={**previous.addresses, **rebuilt.addresses},
    )


def _holds_nothing(reached: Mapping[str, Member], previous: ShardMap, placement: Placement) -> bool:
    """Whether there is no stand-by, or it has no such hold by its own word. One that was not
    reached may be the owner by now."""
    standby = placement.standby
    if standby is None:
        return True
    member = reached.get(standby)
    if member is None:
        return False
    another = member.incarnation != previous.incarnations.get(standby, member.incarnation)
    return another or placement.group not in member.holds


class Recollection:
    """What a settled term goes on from, until a map of its own is public.

    Nobody has been told anything by then, so whoever says hello only now is heard like those before
    it: it may be the owner of what seems to have lost its own.
    """

    def __init__(self, previous: ShardMap | None, *, fleet: str, leader: LeaderInfo) -> None:
        self._previous = previous
        self._fleet = fleet
        self._leader = leader
        self._reached: dict[str, Member] = {}
        self._shown: ShardMap | None = None

    def completed(
        self, living: Iterable[Judged], groups: Groups, *, wall: float
    ) -> ShardMap | None:
        """`completed` by all who were reached so far; the same object until somebody says more."""
        members = {judged.member.id: judged.member for judged in living if judged.reached}
        more = {
            worker: member
            for worker, member in members.items()
            if worker not in self._reached or _said(self._reached[worker]) != _said(member)
        }
        if more or self._shown is None:
            self._reached |= more
            self._shown = completed(
                self._previous,
                fleet=self._fleet,
                leader=self._leader,
                members=self._reached.values(),
                groups=groups,
                wall=wall,
            )
        return self._shown


def _said(member: Member) -> tuple[object, ...]:
    return member.incarnation, member.applied
