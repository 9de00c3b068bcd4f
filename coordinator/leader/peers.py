"""Which workers may hold groups."""

from coordinator.planning import Peer
from coordinator.verdicts import Judged
from fleet.model import MemberState, ShardMap


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
