"""How a term's maps get into the store: before anything else, or behind everything else.

Where the lease is in the store, the map is written first: a leader that lost its lease is stopped
there before it touches anything else. Its shares follow (`coordinator.leader.sharekeeping`). Where
the lease is elsewhere the store is a copy that workers and followers can do without for a while: it
is written behind, as soon as it answers, and in whole after every doubt. Its own fence is the
stored epoch then.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from coordinator.election.contract import Term
from coordinator.leader.doubt import LeadershipLost, LeaseInDoubt
from coordinator.leader.sharekeeping import ShareKeeper
from coordinator.planning import shares_of
from fleet.clock import Clock
from fleet.errors import FormatError, StoreRefused, StoreUnavailable
from fleet.model import EpochVersion, RingSpec, ShardMap, Share
from fleet.model.identity import NONE
from fleet.store.contract import MAX_MOVES, Guard, Move, Publication, Store
from fleet.telemetry import RateLimited

log = logging.getLogger(__name__)


class Storing(Protocol):
    """Takes what is to be stored."""

    async def write(self, publication: Publication) -> None:
        """Store it, now or later.

        Raises:
            StoreRefused: somebody else leads.
            StoreUnavailable: unknown; nothing else may be made public.
        """
        ...


class StoreFirst:
    """Returns when the map is stored; its shares follow."""

    def __init__(self, store: Store, term: Callable[[], Term], shares: ShareKeeper) -> None:
        self._store = store
        self._term = term
        self._shares = shares

    async def write(self, publication: Publication) -> None:
        """See `Storing.write`."""
        term = self._term()
        alone = replace(publication, shares={}, removed_shares=())
        guard = Guard(term.leader.id, term.epoch)
        await self._store.publish(guard, alone)
        self._shares.owe(publication, guard)


class StoreLag:
    """Since when the newest map has been waiting for the store; of all terms of one process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: float | None = None

    def waits(self) -> None:
        """A map waits; an older one may have waited before."""
        if self._since is None:
            self._since = self._clock.monotonic()

    def ends(self) -> None:
        """None waits."""
        self._since = None

    def seconds(self) -> float:
        """For how long one waits; 0 if none does."""
        return 0.0 if self._since is None else self._clock.monotonic() - self._since


class StoreBehind:
    """Returns at once; `run` stores the newest map, all moves, and every share that may be old."""

    def __init__(
        self,
        store: Store,
        *,
        term: Callable[[], Term],
        saw: Callable[[EpochVersion], None],
        again: Callable[[], None],
        look_seconds: float,
        clock: Clock,
        lag: StoreLag | None = None,
    ) -> None:
        """Args:
        term: the term; raises LeaseInDoubt while there is none.
        saw: told of an epoch found in the store that is above the term's.
        again: asks for another map, under a higher version.
        look_seconds: how often the store is asked what it has.
        lag: told how far the store is behind.
        """
        self._store = store
        self._term = term
        self._saw = saw
        self._again = again
        self._look_seconds = look_seconds
        self._clock = clock
        self._map: ShardMap | None = None
        self._ring: RingSpec | None = None
        self._stored = NONE
        self._unsure = NONE
        self._shares: dict[str, Share] = {}
        self._removed: set[str] = set()
        self._moves: list[Move] = []
        self._whole = True
        self._wake = asyncio.Event()
        self._loud = RateLimited(log, clock)
        self._lag = lag or StoreLag(clock)

    async def write(self, publication: Publication) -> None:
        """See `Storing.write`; raises nothing."""
        self._map, self._ring = publication.shard_map, publication.ring
        self._shares.update(publication.shares)
        self._removed.update(publication.removed_shares)
        self._moves = [*self._moves, *publication.moves][-MAX_MOVES:]
        self._lag.waits()
        self._wake.set()

    async def run(self) -> None:
        """Store, and look whether it is still stored, until cancelled.

        Raises:
            LeadershipLost: somebody else leads by a lease in the store.
        """
        try:
            await self._keep_up()
        finally:
            self._lag.ends()

    async def _keep_up(self) -> None:
        while True:
            good = False
            try:
                await self._look()
                if self._map is not None and self._map.version > self._stored:
                    await self._store_it(self._map)
                good = True
            except LeaseInDoubt:
                pass  # what is due stays due
            except (StoreUnavailable, FormatError) as error:
                self._whole = True
                self._loud.warning("map not stored, trying again", error=error)
            except StoreRefused as error:
                self._refused(error)
            await self._pause(early=good)

    async def _pause(self, *, early: bool) -> None:
        """Until the next look is due or, if it may be `early`, there is something to store."""
        timer = asyncio.create_task(self._clock.sleep(self._look_seconds))
        news = asyncio.create_task(self._wake.wait())
        waits = {timer, news} if early else {timer}
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in (timer, news):
                wait.cancel()
            await asyncio.wait({timer, news})
        self._wake.clear()

    async def _look(self) -> None:
        """Whether the store has what we stored: it may have been emptied or rolled back."""
        found = await self._store.lease()
        if found.leader is not None:
            raise LeadershipLost(f"{found.leader.id} leads by a lease in the store")
        version = found.map_version or NONE
        if max(found.epoch, version.epoch) > self._term().epoch:
            self._saw(EpochVersion(max(found.epoch, version.epoch), 0))
        if self._unsure != NONE and version == self._unsure:
            self._moves = [m for m in self._moves if m.version > self._unsure]
        self._unsure = NONE
        if version < self._stored:
            log.warning("stored map rolled back", extra={"stored": str(version)})
            self._stored, self._whole = NONE, True
            self._lag.waits()

    async def _store_it(self, shard_map: ShardMap) -> None:
        term = self._term()
        if self._ring is None or shard_map.version.epoch != term.epoch:
            return  # a map of the new epoch is on its way
        shares = shares_of(shard_map) if self._whole else self._shares
        removed = self._removed - shard_map.incarnations.keys()
        publication = Publication(
            shard_map,
            self._ring,
            {w: share for w, share in shares.items() if w in shard_map.incarnations},
            removed_shares=sorted(removed),
            moves=self._moves,
        )
        self._shares, self._removed = {}, removed
        self._unsure = shard_map.version
        guard = Guard(term.leader.id, term.epoch, elsewhere=True)
        await self._store.publish(guard, publication)
        if self._whole:
            log.info("map stored in whole", extra={"version": str(shard_map.version)})
        self._stored, self._unsure, self._whole = shard_map.version, NONE, False
        if self._map is shard_map:
            self._lag.ends()
        self._removed -= removed
        self._moves = [move for move in self._moves if move.version > shard_map.version]

    def _refused(self, error: StoreRefused) -> None:
        self._whole = True
        term = self._term_or_none()
        if term is None or error.holder is not None:
            return  # the next look tells who leads
        self._loud.warning("map refused by the store", error=error)
        if error.epoch > term.epoch:
            self._saw(EpochVersion(error.epoch, 0))
        else:
            self._again()

    def _term_or_none(self) -> Term | None:
        try:
            return self._term()
        except LeaseInDoubt:
            return None
