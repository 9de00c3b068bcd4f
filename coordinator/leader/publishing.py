"""One map becomes public: store, then routes, then workers, with nothing waited for in between.
A map that relieves nobody (first placements, the beginning of planned moves) goes to the workers
before the routes: they open their pools while thousands of routes are looked at or written.

In that order a leader that lost its lease is stopped by the store before it touches anything else
(where the lease is there; else the store is written behind, see `coordinator.leader.storing`), and
gateways follow a fail-over before the workers' acknowledgements are in. A planned move needs no
other order: its gainer opens the pools by an earlier map, which leaves routes as they are.

The store is the map's own: the workers' shares get there when the workers have them.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

from coordinator.election.contract import Term
from coordinator.leader.linkset import Links
from coordinator.leader.routekeeping import RouteKeeper
from coordinator.leader.storing import Storing
from coordinator.metrics.leading import TermFigures
from coordinator.planning import Change
from coordinator.planning.facts import CANCELLED, DONE, GAINER_DEAD
from coordinator.planning.shares import Shares
from fleet.clock import Clock
from fleet.model import Reason, RingSpec, ShardMap, Share
from fleet.store.contract import Move, Publication

log = logging.getLogger(__name__)

MOST_TOLD = 20
"""Moves of one map that have a log line each; the audit stream has them all."""


class Publisher:
    """What this term has made public, and how it makes the next map so."""

    def __init__(
        self,
        *,
        store: Storing,
        routes: RouteKeeper,
        links: Links,
        term: Callable[[], Term],
        count_move: Callable[[Reason, str], None],
        clock: Clock,
        figures: TermFigures | None = None,
    ) -> None:
        self._store = store
        self._routes = routes
        self._links = links
        self._term = term
        self._count_move = count_move
        self._figures = figures or TermFigures()
        self._clock = clock
        self._shares: Mapping[str, Share] = {}
        self._next = Shares()

    async def publish(
        self, shard_map: ShardMap, ring: RingSpec, changes: Sequence[Change], *, whole: bool
    ) -> None:
        """Make `shard_map` public.

        Args:
            whole: write every share, also those that did not change (the store may have lost them).

        Raises:
            StoreRefused: somebody else leads.
            StoreUnavailable: unknown; nothing was told to anybody but, perhaps, the store.
        """
        self._term()
        began = self._clock.monotonic()
        moves = self._moves(changes, shard_map)  # decided by now, and not made public yet
        shares, changed = self._next.next(shard_map, whole=whole)
        publication = Publication(
            shard_map,
            ring,
            {worker: shares[worker] for worker in shares if worker in changed},
            removed_shares=[worker for worker in self._shares if worker not in shares],
            moves=moves,
        )
        await self._store.write(publication)
        self._shares = shares
        self._figures.sent(shard_map.version, changed, began)
        renewed = whole and not changes  # of a new term, or after a doubt: nothing has begun
        relieves = renewed or any(change.source for change in changes)
        if not relieves:
            await self._assign(changed)
        await self._routes.follow(shard_map)
        if relieves:
            await self._assign(changed)
        self._tell(shard_map, changes, whole=whole)

    async def _assign(self, changed: Collection[str]) -> None:
        self._links.assign(self._shares, changed)
        await asyncio.sleep(0)  # they send before anything else is looked at: a plan takes 10 ms

    def _moves(self, changes: Sequence[Change], shard_map: ShardMap) -> list[Move]:
        deaths = {dead.id: dead.why for dead in shard_map.dead}  # the latest of each id
        finished = self._clock.wall()
        return [
            Move(
                group=str(change.group),
                source=change.source,
                target=change.target,
                reason=change.reason.value,
                version=shard_map.version,
                started=change.started,
                finished=finished,
                outcome=change.outcome,
                why=deaths.get(_deceased(change), ""),
            )
            for change in changes
        ]

    def _tell(self, shard_map: ShardMap, changes: Sequence[Change], *, whole: bool) -> None:
        tell_moves([each for each in changes if each.source], shard_map)
        summary: Counter[str] = Counter()
        for change in changes:
            self._count_move(change.reason, change.outcome)
            summary[f"{change.reason.value}_{change.outcome}"] += 1
        log.log(
            logging.INFO if changes or whole else logging.DEBUG,
            "map published",
            extra={"version": str(shard_map.version), "groups": len(shard_map.placements)}
            | dict(summary),
        )


def tell_moves(moves: Sequence[Change], shard_map: ShardMap) -> None:
    """A line for each of the first few moves, those that failed first."""
    for change in sorted(moves, key=lambda each: each.outcome in (DONE, CANCELLED))[:MOST_TOLD]:
        bad = change.outcome not in (DONE, CANCELLED)
        log.log(
            logging.WARNING if bad else logging.INFO,
            "move failed" if bad else "group moved",
            extra={
                "group": str(change.group),
                "source": change.source,
                "target": change.target,
                "reason": change.reason.value,
                "outcome": change.outcome,
                "version": str(shard_map.version),
            },
        )
    if len(moves) > MOST_TOLD:
        log.info("moves left out", extra={"count": len(moves) - MOST_TOLD})


def _deceased(change: Change) -> str:
    """Whose death caused the change; "" if nobody's did."""
    if change.outcome == GAINER_DEAD:
        return change.target
    return change.source if change.reason is Reason.OWNER_DEAD else ""
