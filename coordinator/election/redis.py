"""The lease in the store: an Election over any `fleet.store.contract.Store`.

A term's deadline is by this process's own monotonic clock, from before its request was sent: the
store counts from when the request arrived, which is later, so this side always stops first. The
margin on top covers the acts that have passed their last check when the deadline comes.
"""

import asyncio
import secrets
from typing import Final

from coordinator.election.contract import Standing, Term, Timers
from fleet.clock import Clock
from fleet.model import LeaderInfo
from fleet.settings.model import ElectionSettings
from fleet.store.contract import Guard, Lease, Store

MARGIN_SHARE: Final = 0.05
"""Of the TTL: 0.1 s of 2 s, for clocks that run apart and an act that is under way."""


class StoreElection:
    """One candidate's side of the election."""

    def __init__(
        self, store: Store, me: LeaderInfo, settings: ElectionSettings, clock: Clock
    ) -> None:
        """Args:
        me: who this candidate is; ids must differ between candidates.
        """
        self._store = store
        self._me = me
        self._timers = Timers(settings.ttl_seconds, settings.renew_seconds)
        self._ttl = settings.ttl_seconds
        self._clock = clock
        self._pending: tuple[int, str] | None = None

    @property
    def timers(self) -> Timers:
        """See `Election.timers`."""
        return self._timers

    @property
    def in_store(self) -> bool:
        """See `Election.in_store`."""
        return True

    async def acquire(self, *, floor: int) -> Term | None:
        """See `Election.acquire`. Repeated after an unknown outcome it is the same request."""
        request = self._request(floor)
        sent = self._clock.monotonic()
        lease = await self._store.acquire(
            self._me, floor=floor, ttl_seconds=self._ttl, request=request
        )
        self._pending = None
        if lease.leader is None or lease.leader.id != self._me.id or lease.epoch <= floor:
            return None
        return Term(lease.leader, lease.epoch, self._deadline(sent))

    async def renew(self, term: Term) -> tuple[Term | None, Standing]:
        """See `Election.renew`."""
        sent = self._clock.monotonic()
        lease = await self._store.renew(_guard(term), ttl_seconds=self._ttl)
        standing = _standing(lease)
        if lease.leader is None or lease.leader.id != term.leader.id or lease.epoch != term.epoch:
            return None, standing
        return Term(term.leader, term.epoch, self._deadline(sent)), standing

    async def release(self, term: Term) -> None:
        """See `Election.release`."""
        await self._store.release(_guard(term))

    async def observe(self) -> Standing:
        """See `Election.observe`."""
        return _standing(await self._store.lease())

    async def changed(self) -> None:
        """See `Election.changed`: a look is cheap, and the store tells nothing by itself."""
        await asyncio.Event().wait()

    async def watch(self) -> None:
        """See `Election.watch`."""
        await asyncio.Event().wait()

    def _deadline(self, sent: float) -> float:
        return sent + self._ttl * (1.0 - MARGIN_SHARE)

    def _request(self, floor: int) -> str:
        """A new id, or the one whose outcome is unknown if the floor is still the same."""
        if self._pending is None or self._pending[0] != floor:
            self._pending = (floor, secrets.token_hex(8))
        return self._pending[1]


def _guard(term: Term) -> Guard:
    return Guard(term.leader.id, term.epoch)


def _standing(lease: Lease) -> Standing:
    return Standing(lease.leader, lease.epoch, lease.map_version)
