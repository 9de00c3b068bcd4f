"""What a worker exchanges with the store: its beats, and the share as a repair.

The store is never on the way of a pick, and its absence is no fault of the worker: it is said now
and then, and tried again.
"""

import asyncio
import logging
import random
from collections.abc import Callable

from epp_worker.holds import Ruling
from fleet.errors import FleetError
from fleet.model import Member, Share
from fleet.store.contract import Store
from fleet.telemetry import RateLimited

log = logging.getLogger(__name__)

JITTER = 0.1
"""A beat comes this share earlier or later, so that workers spread over time."""


class Beats:
    """Writes the member to the store every heartbeat, and at once when asked to."""

    def __init__(
        self,
        store: Store,
        member: Callable[[], Member],
        *,
        heartbeat_seconds: float,
        rng: random.Random,
        limited: RateLimited,
    ) -> None:
        self._store = store
        self._member = member
        self._heartbeat_seconds = heartbeat_seconds
        self._rng = rng
        self._limited = limited
        self._wake = asyncio.Event()
        self._reachable: bool | None = None

    def interval(self) -> float:
        """Seconds until the next beat: the heartbeat, give or take a tenth."""
        return self._heartbeat_seconds * self._rng.uniform(1 - JITTER, 1 + JITTER)

    def now(self) -> None:
        """Beat at once: what the member says has changed in a way that others wait for."""
        self._wake.set()

    async def run(self) -> None:
        """Beat until cancelled."""
        while True:
            await self.once()
            try:
                async with asyncio.timeout(self.interval()):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()

    async def once(self) -> None:
        """One beat; a store that does not answer is said and borne."""
        try:
            await self._store.beat(self._member())
        except FleetError as error:
            self._reachable = False
            self._limited.warning("store unreachable, beat not written", error=error)
            return
        if self._reachable is not True:
            self._reachable = True
            log.info("store reachable")


class ShareRepair:
    """Reads this worker's share from the store: at the start, and as a repair.

    Attributes:
        read_at: loop time at which the store last had a share that is not newer than what is held,
            or became what is held; -inf before.
    """

    def __init__(
        self,
        store: Store,
        worker: str,
        apply: Callable[[Share], Ruling],
        *,
        poll_seconds: float,
        limited: RateLimited,
    ) -> None:
        self._store = store
        self._worker = worker
        self._apply = apply
        self._poll_seconds = poll_seconds
        self._limited = limited
        self.read_at = float("-inf")

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await self.once()
            await asyncio.sleep(self._poll_seconds)

    async def once(self) -> None:
        """One look. No share is no information: nothing is dropped for it."""
        try:
            share = await self._store.share(self._worker)
        except FleetError as error:
            self._limited.warning("share not read from the store", error=error)
            return
        if share is None:
            return
        ruling = self._apply(share)
        if ruling in (Ruling.APPLY, Ruling.NOT_NEWER):
            self.read_at = asyncio.get_running_loop().time()
        if ruling is Ruling.APPLY:
            log.info("share repaired from the store", extra={"map": str(share.version)})
