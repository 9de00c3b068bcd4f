"""What a term reads from the store: the map to begin with, and the workers' beats.

Where the lease is in the store, a term begins with the store's answer. Where it is elsewhere, the
store may be away for as long as it likes: the term begins with what its process remembers and with
what workers say, and hears what the store remembers once that is back. It begins with neither
while somebody leads by a lease in the store: a fleet that changes its kind of election is led by
one at a time.
"""

import logging
from collections.abc import Callable, Sequence

from coordinator.election.contract import Term
from coordinator.leader.doubt import LeaseInDoubt
from coordinator.leader.signals import Signals
from fleet.clock import Clock
from fleet.errors import FormatError, StoreRefused, StoreUnavailable
from fleet.model import Member, ShardMap
from fleet.model.identity import NONE
from fleet.store.contract import Guard, Store
from fleet.telemetry import RateLimited

log = logging.getLogger(__name__)


class StoreWatch:
    """One term's look at the store.

    Attributes:
        recalled: whether the store has said which map it has (an unreadable one is none).
    """

    def __init__(
        self,
        store: Store,
        *,
        signals: Signals,
        term: Callable[[], Term],
        in_store: bool,
        recall: Callable[[ShardMap], None],
        overtake: Callable[[int], None],
        tick_seconds: float,
        clock: Clock,
    ) -> None:
        """Args:
        in_store: whether the lease is in this store.
        recall: told of the stored map, once.
        overtake: told of the epoch that the store has when the term begins.
        """
        self.recalled = False
        self._store = store
        self._signals = signals
        self._term = term
        self._in_store = in_store
        self._recall = recall
        self._overtake = overtake
        self._tick_seconds = tick_seconds
        self._clock = clock
        self._to_forget: list[Member] = []
        self._loud = RateLimited(log, clock)

    def forget(self, members: Sequence[Member]) -> None:
        """Have the store forget these dead, as soon as it can."""
        self._to_forget.extend(members)

    async def begin(self) -> None:
        """Return once the stored map was told, or may come later."""
        while not self.recalled:
            try:
                if self._in_store or await self._may_lead():
                    await self._read_map()
                else:
                    await self._clock.sleep(self._tick_seconds)
            except StoreUnavailable as error:
                if not self._in_store:
                    log.warning("store away, beginning without it", extra={"error": str(error)})
                    return
                self._loud.warning("map not read, trying again", error=error)
                await self._clock.sleep(self._tick_seconds)

    async def run(self) -> None:
        """Read beats every tick until cancelled."""
        while True:
            try:
                if not self.recalled:
                    await self._read_map()
                # Told before anything else is asked: a beat that is read and kept grows old.
                self._signals.beats(await self._store.members())
                await self._forget_dead()
            except (StoreUnavailable, FormatError) as error:
                self._signals.membership.store_unknown()
                self._loud.warning("store unknown", error=error)
            except (StoreRefused, LeaseInDoubt):
                pass  # the next renewal tells, or the next map
            self._signals.wake()
            await self._clock.sleep(self._tick_seconds)

    async def _may_lead(self) -> bool:
        """Whether nobody leads by a lease in the store, as while the fleet changes its kind of
        election. An epoch that the store has already was given there: ours must be another one."""
        try:
            found = await self._store.lease()
        except FormatError as error:
            log.error("the store's lease is unreadable, ignored", exc_info=error)
            return True
        if found.leader is not None:
            self._loud.warning("a lease in the store is held, waiting for its end")
            return False
        self._overtake(found.epoch)
        return True

    async def _read_map(self) -> None:
        try:
            stored = await self._store.shard_map(NONE)
        except FormatError as error:
            log.error("stored map is unreadable, ignored", exc_info=error)
            stored = None
        self.recalled = True
        if stored is not None:
            self._recall(stored)

    async def _forget_dead(self) -> None:
        while self._to_forget:
            member = self._to_forget[-1]
            term = self._term()
            guard = Guard(term.leader.id, term.epoch, elsewhere=not self._in_store)
            await self._store.forget(guard, member.id, member.incarnation)
            self._to_forget.pop()
