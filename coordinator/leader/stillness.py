"""Plans only when there is something to plan, and only what is not where it shall be.

A plan looks at every group: at 10,000 groups, eight looks a second are 15-20 % of a core, for maps
of which hardly any differs from the last. It is a pure function, and time is part of it only while
something is pending or waits its turn. So as long as nothing is, and all else that it follows from
is as it was, it is not made again.

While groups move, each report may be the one that they wait for. All groups that are where they
shall be stay there as long as their targets, the groups and the survivors do: only the others are
looked at.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from coordinator.leader.targets import Targets
from coordinator.planning import NO_BACKLOG, Next, Situation, plan, survivors
from fleet.model import GroupKey, Placement, PoolId


@dataclass(frozen=True, slots=True)
class _Looked:
    """What the last plan left, and what it followed from; groups and placements by identity."""

    groups: Mapping[GroupKey, tuple[PoolId, ...]]
    placements: Mapping[GroupKey, Placement]
    alive: frozenset[str]
    targets: int
    open: Sequence[GroupKey]


class Stillness:
    """The plans of one term."""

    def __init__(self) -> None:
        self._still: Situation | None = None
        self._placements = 0
        self._looked: _Looked | None = None

    def next(self, at: Situation, targets: Targets) -> Next:
        """See `coordinator.planning.plan`."""
        last = self._still
        if last is not None and self._placements == targets.placements and _same(last, at):
            return Next(None, (), {})
        alive = survivors(at.previous, at.peers)
        outcome = plan(at, targets.of, self._among(at, alive, targets))
        if outcome.astray:
            targets.outdate()
        rests = outcome.shard_map is None and not outcome.pending
        # Reports are kept as they are now: the mapping itself goes on changing.
        still = rests and outcome.backlog == NO_BACKLOG
        self._still = replace(at, told=dict(at.told)) if still else None
        self._placements = targets.placements
        left = outcome.shard_map or at.previous
        self._looked = None
        if left is not None:
            self._looked = _Looked(
                at.groups, left.placements, alive, targets.placements, outcome.open
            )
        return outcome

    def _among(
        self, at: Situation, alive: frozenset[str], targets: Targets
    ) -> Sequence[GroupKey] | None:
        """The groups that need a look; None = all. A map that was not published is not known."""
        last = self._looked
        if last is None or at.previous is None or at.groups is not last.groups:
            return None
        if at.previous.placements is not last.placements or alive != last.alive:
            return None
        if targets.placements == last.targets:
            return last.open
        if targets.changed is None or targets.placements != last.targets + 1:
            return None
        wanted = targets.changed.union(last.open)
        return [group for group in at.groups if group in wanted]


def _same(last: Situation, at: Situation) -> bool:
    """Apart from the time and from what the next map would be numbered."""
    return (
        last.previous is at.previous
        and last.groups is at.groups
        and last.leader == at.leader
        and last.version.epoch == at.version.epoch
        and last.dead == at.dead
        and last.peers == at.peers
        and last.told == at.told
        and not at.pending
        and at.backlog == NO_BACKLOG
    )
