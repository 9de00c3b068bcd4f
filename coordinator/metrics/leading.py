"""What the terms of one process count: plain numbers on the loop, read at a scrape."""

from collections.abc import Iterable

from coordinator.metrics.propagation import Propagation
from coordinator.metrics.steps import HandoverSteps
from coordinator.metrics.unowned import UnownedTime
from coordinator.planning.facts import CANCELLED, DEADLINE, DONE, GAINER_DEAD
from coordinator.routes.contract import WriteResult
from fleet.metrics import Histogram
from fleet.model import EpochVersion, GroupKey, Reason, ShardMap, Signal

MOVE_OUTCOMES = (DONE, DEADLINE, CANCELLED, GAINER_DEAD)
ROUTE_OUTCOMES = ("written", "unchanged", "refused", "failed")


class TermFigures:
    """All of them; they outlive the term.

    Attributes:
        moves: groups that changed hands or failed to, by reason and outcome.
        stale_route_writes: routes found that the leader had not written.
        verdicts: workers declared dead, by signal.
        route_writes: routes by what became of writing them.
        route_write_seconds: of one batch.
        placement_seconds: of placing all groups once.
        moves_pending: planned moves that wait for their turn or are under way.
        shares_asked_again: how often workers asked for all of a share that they had part of.
    """

    def __init__(self) -> None:
        # From 0 on: a rate does not see the first of what was not there before.
        self.moves = {
            (reason.value, outcome): 0
            for reason in Reason
            if reason is not Reason.KEPT
            for outcome in MOVE_OUTCOMES
        }
        self.stale_route_writes = 0
        self.verdicts = dict.fromkeys((signal.value for signal in Signal), 0)
        self.route_writes = dict.fromkeys(ROUTE_OUTCOMES, 0)
        self.route_write_seconds = Histogram()
        self.placement_seconds = Histogram()
        self.propagation = Propagation()
        self.steps = HandoverSteps()
        self.unowned = UnownedTime()
        self.moves_pending = 0
        self.shares_asked_again = 0
        self._map: ShardMap | None = None
        self._moving = 0

    def move(self, reason: Reason, outcome: str) -> None:
        """A group changed hands, or failed to."""
        key = (reason.value, outcome)
        self.moves[key] = self.moves.get(key, 0) + 1

    def stale_route_write(self) -> None:
        """A route was found that somebody else wrote."""
        self.stale_route_writes += 1

    def verdict(self, signal: Signal) -> None:
        """A worker was declared dead."""
        self.verdicts[signal.value] += 1

    def routes_written(self, result: WriteResult, seconds: float) -> None:
        """A batch of routes was written."""
        self.route_writes["written"] += len(result.written)
        self.route_writes["unchanged"] += len(result.unchanged)
        self.route_writes["refused"] += len(result.refused)
        self.route_write_seconds.observe(seconds)

    def routes_failed(self, count: int, seconds: float) -> None:
        """A batch of so many routes failed, wholly or in part."""
        self.route_writes["failed"] += count
        self.route_write_seconds.observe(seconds)

    def sent(self, version: EpochVersion, workers: Iterable[str], began: float) -> None:
        """A map is about to be sent to these workers; its publication began at `began`."""
        self.propagation.published(version, workers, began)

    def published(
        self, before: ShardMap | None, after: ShardMap, looked: Iterable[GroupKey], now: float
    ) -> None:
        """`after` is public; see `HandoverSteps.follow`."""
        self.steps.follow(before, after, looked, now)

    def acknowledged(self, worker: str, version: EpochVersion, now: float) -> None:
        """A worker has applied its share of this version."""
        self.propagation.acknowledged(worker, version, now)

    def look(self, shard_map: ShardMap | None, queued: int, now: float) -> None:
        """The term looked at the world, at monotonic `now`.

        Args:
            shard_map: the map that is public.
            queued: planned moves that wait for their turn.
        """
        self.unowned.look(shard_map, now)
        if shard_map is not None and shard_map is not self._map:
            self._map = shard_map
            self._moving = sum(p.moving_to is not None for p in shard_map.placements.values())
            self.propagation.keep(shard_map.incarnations.keys())
        self.moves_pending = queued + self._moving

    def rest(self) -> None:
        """The term is over: what was under way is the next leader's."""
        self.unowned.rest()
        self.propagation.rest()
        self.steps.rest()
        self._map, self._moving, self.moves_pending = None, 0, 0
