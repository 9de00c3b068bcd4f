"""Which workers may hold groups, and what workers are told of each other."""

from coordinator.planning import Peer
from coordinator.verdicts import Judged
from fleet.control.messages import OwnerOf, Owners, WorkerPeer
from fleet.model import GroupKey, MemberState, ShardMap
from fleet.model.identity import NONE


def peers_of(living: tuple[Judged, ...], previous: ShardMap | None) -> dict[str, Peer]:
    """Who may hold groups: whoever was reached, or is in the map already."""
    known = {} if previous is None else previous.incarnations
    return {
        judged.member.id: Peer(
            judged.member.id,
            judged.member.incarnation,
            judged.member.addresses.ext_proc,
            accepts=not judged.member.draining and judged.state is not MemberState.DRAINING,
        )
        for judged in living
        if judged.reached or known.get(judged.member.id) == judged.member.incarnation
    }


def introductions(living: tuple[Judged, ...]) -> dict[str, WorkerPeer]:
    """How the living workers reach each other."""
    return {
        judged.member.id: WorkerPeer(judged.member.addresses.internal, judged.member.incarnation)
        for judged in living
        if judged.member.addresses.internal
    }


def owners_in(shard_map: ShardMap | None, groups: tuple[GroupKey, ...]) -> Owners:
    """The answer to a worker that asks who owns these groups."""
    if shard_map is None:
        return Owners(NONE, ())
    placements = (shard_map.placements.get(group) for group in groups)
    owners = tuple(
        OwnerOf(group, placement.owners[0] if placement is not None and placement.owners else None)
        for group, placement in zip(groups, placements, strict=True)
    )
    return Owners(shard_map.version, owners)
