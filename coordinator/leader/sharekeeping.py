"""The leader's hand on the stored shares: written behind the map that they follow from.

What is stored of a share serves a worker that starts, or has missed something, while no coordinator
tells it; a leader, new or old, works its shares out of the map. So nobody waits for them: packing
those of seventy workers takes longer than all else that a map must have before workers are told.
They follow after `REST_SECONDS`, when the workers have the map; of several maps in a row, as a
drain makes them, each share is packed once.

If the leader dies in between, the next one's first map brings all shares. If no coordinator is left
at all, a worker that starts finds its share of the map before, as it does where the lease is not in
the store (see `coordinator.leader.storing`). It serves what it holds by either.
"""

import asyncio
import logging
from collections.abc import Callable

from coordinator.election.contract import Term
from coordinator.leader.doubt import LeaseInDoubt
from fleet.clock import Clock
from fleet.errors import FormatError, StoreRefused, StoreUnavailable
from fleet.model import Share
from fleet.model.identity import NONE
from fleet.store.contract import Guard, Publication, Store
from fleet.telemetry import RateLimited

log = logging.getLogger(__name__)

REST_SECONDS = 0.5
"""From a map until its shares are stored, and between two tries: half of the time after which a
worker looks at its own."""


class ShareKeeper:
    """The stored shares of one term."""

    def __init__(self, store: Store, *, term: Callable[[], Term], clock: Clock) -> None:
        """`term` raises LeaseInDoubt while there is none."""
        self._store = store
        self._term = term
        self._clock = clock
        self._owed: dict[str, Share] = {}
        self._removed: set[str] = set()
        self._version = NONE
        self._wake = asyncio.Event()
        self._loud = RateLimited(log, clock)

    def owe(self, publication: Publication) -> None:
        """Its map is stored: its shares are to follow."""
        version = publication.shard_map.version
        if version.epoch != self._version.epoch:
            self._owed.clear()  # the first map of an epoch has all shares
        self._owed.update(publication.shares)
        self._removed.update(publication.removed_shares)
        self._removed -= publication.shares.keys()
        for worker in publication.removed_shares:
            self._owed.pop(worker, None)
        self._version = version
        self._wake.set()

    async def run(self) -> None:
        """Store what is owed, until cancelled."""
        while True:
            await self._wake.wait()
            await self._clock.sleep(REST_SECONDS)
            self._wake.clear()
            try:
                await self._pay()
            except LeaseInDoubt:
                self._wake.set()
            except (StoreRefused, StoreUnavailable, FormatError) as error:
                # Whoever leads instead is found out by the lease; this term ends with it.
                self._loud.warning("shares not stored, trying again", error=error)
                self._wake.set()

    async def _pay(self) -> None:
        term = self._term()
        shares, removed, version = self._owed, self._removed, self._version
        if version.epoch != term.epoch:
            return  # the first map of the new epoch is on its way
        self._owed, self._removed = {}, set()
        guard = Guard(term.leader.id, term.epoch)
        try:
            await self._store.publish_shares(guard, version, shares, sorted(removed))
        except Exception:
            later = self._owed.keys() | self._removed
            self._owed |= {w: share for w, share in shares.items() if w not in later}
            self._removed |= removed - later
            raise
