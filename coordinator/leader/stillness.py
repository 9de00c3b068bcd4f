"""Plans only when there is something to plan.

A plan looks at every group: at 10,000 groups, eight looks a second are 15-20 % of a core, for maps
of which hardly any differs from the last. It is a pure function, and time is part of it only while
something is pending or waits its turn. So as long as nothing is, and all else that it follows from
is as it was, it is not made again.
"""

from dataclasses import replace

from coordinator.leader.targets import Targets
from coordinator.planning import NO_BACKLOG, Next, Situation, plan


class Stillness:
    """The plans of one term."""

    def __init__(self) -> None:
        self._still: Situation | None = None
        self._placements = 0

    def next(self, at: Situation, targets: Targets) -> Next:
        """See `coordinator.planning.plan`."""
        last = self._still
        if last is not None and self._placements == targets.placements and _same(last, at):
            return Next(None, (), {})
        outcome = plan(at, targets.of)
        rests = outcome.shard_map is None and not outcome.pending
        # Reports are kept as they are now: the mapping itself goes on changing.
        still = rests and outcome.backlog == NO_BACKLOG
        self._still = replace(at, told=dict(at.told)) if still else None
        self._placements = targets.placements
        return outcome


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
