"""The leader's hand on the stored shares: written behind the map that they follow from.

What is stored of a share serves a worker that starts, or has missed something, while no coordinator
tells it; a leader, new or old, works its shares out of the map. So nobody waits for them: packing
those of seventy workers takes longer than all else that a map must have before workers are told.
They follow after `REST_SECONDS`, when the workers have the map; of several maps in a row, as a
drain makes them, each share is packed once.

A term that is ended in good order leaves nothing owed. If the leader dies in between, the next
one's first map brings all shares. If no coordinator is left at all then, a worker that starts finds
its share of the map before, as it does where the lease is not in the store (see
`coordinator.leader.storing`). It serves what it holds by either.
"""

import asyncio
import contextlib
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
        self._guard = Guard("", 0)
        self._wake = asyncio.Event()
        self._loud = RateLimited(log, clock)

    def owe(self, publication: Publication, guard: Guard) -> None:
        """Its map is stored, by `guard`: its shares are to follow."""
        version = publication.shard_map.version
        if version.epoch != self._version.epoch:
            self._owed.clear()  # the first map of an epoch has all shares
        self._owed.update(publication.shares)
        self._removed.update(publication.removed_shares)
        self._removed -= publication.shares.keys()
        for worker in publication.removed_shares:
            self._owed.pop(worker, None)
        self._version, self._guard = version, guard
        self._wake.set()

    async def run(self) -> None:
        """Store what is owed, until cancelled; then what still is."""
        try:
            await self._keep_up()
        finally:
            # The lease may count for nothing here any more. Where it is kept it is given up after
            # this, and there the write is looked at once more.
            if self._owed or self._removed:
                with contextlib.suppress(StoreRefused, StoreUnavailable, FormatError):
                    await self._write()

    async def _keep_up(self) -> None:
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
        if self._version.epoch == self._term().epoch:
            await self._write()  # else the first map of the new epoch is on its way

    async def _write(self) -> None:
        shares, removed = self._owed, self._removed
        self._owed, self._removed = {}, set()
        try:
            await self._store.publish_shares(self._guard, self._version, shares, sorted(removed))
        except BaseException:
            later = self._owed.keys() | self._removed
            self._owed |= {w: share for w, share in shares.items() if w not in later}
            self._removed |= removed - later
            raise
