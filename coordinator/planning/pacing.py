"""How many groups may open at one worker at once, and whom not to ask again. Pure.

A worker spends 75-160 us of its serving loop on each group that it opens (tests/bench/opening.py:
3,000 at once are 0.3-0.5 s in which it answers nobody, 256 are 20-30 ms), and scrapes each endpoint
once before it acknowledges. So a drain of thousands opens in batches: the rest waits its turn at
its owner, which serves meanwhile.
No worker waits for another one's batch.

A gainer that missed a deadline while the owner could keep the group is left alone for a while.
First placements and fail-overs are never paced: nobody serves these groups meanwhile.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from coordinator.planning.facts import Backlog, Peer
from fleet.model import GroupKey, Placement, ShardMap

MAX_OPENING = 256
"""Groups that may move towards one worker at once: 20-30 ms of its loop."""

REFILL = MAX_OPENING // 2
"""As long as more than this are on their way, no more are added: a map per batch, not per group."""

STALL_DEADLINES = 10.0
"""For this many move deadlines nothing is moved to a gainer that missed one, if its owner can stay:
five minutes by default."""


class Pacing:
    """The moves of one plan. Times are monotonic seconds."""

    def __init__(
        self,
        previous: ShardMap | None,
        backlog: Backlog,
        *,
        now: float,
        deadline: float,
        among: Iterable[GroupKey] | None = None,
    ) -> None:
        """`among` are all groups of which some may be moving; None = all of `previous`."""
        self._known = backlog
        self._now = now
        self._deadline = deadline
        self._queued: dict[GroupKey, float] = {}
        self._stalled = {
            life: since
            for life, since in backlog.stalled.items()
            if now - since < STALL_DEADLINES * deadline
        }
        placements: Mapping[GroupKey, Placement] = {} if previous is None else previous.placements
        looked = placements if among is None else among
        at = (placements[group].moving_to for group in looked if group in placements)
        moving = Counter(gainer for gainer in at if gainer is not None)
        self._room = {
            worker: MAX_OPENING - count if count <= REFILL else 0
            for worker, count in moving.items()
        }

    def admits(self, gainer: str) -> bool:
        """Whether one more group may begin to move to `gainer`; then it counts."""
        room = self._room.get(gainer, MAX_OPENING)
        if room > 0:
            self._room[gainer] = room - 1
        return room > 0

    def wanted_since(self, group: GroupKey) -> float:
        """When the move of this group was first wanted."""
        return self._known.queued.get(group, self._now)

    def queue(self, group: GroupKey) -> None:
        """It waits its turn."""
        self._queued[group] = self.wanted_since(group)

    def overdue(self, since: float) -> bool:
        """Whether a move that began, or was first wanted, then is past its deadline."""
        return self._now - since >= self._deadline

    def stall(self, gainer: Peer) -> None:
        """It missed a deadline."""
        self._stalled[gainer.id, gainer.incarnation] = self._now

    def opened(self, gainer: Peer) -> None:
        """It acknowledged a group."""
        self._stalled.pop((gainer.id, gainer.incarnation), None)

    def stalls(self, gainer: Peer) -> bool:
        """Whether it missed a deadline lately and has opened nothing since."""
        return (gainer.id, gainer.incarnation) in self._stalled

    def backlog(self) -> Backlog:
        """For the next plan."""
        return Backlog(self._queued, self._stalled)
