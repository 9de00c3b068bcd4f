"""Asks the health ports of workers that neither talk to us nor are spoken of by the store."""

import asyncio

from coordinator.membership import Membership
from coordinator.reach import WorkerReach
from fleet.clock import Clock
from fleet.model import Member

CHECKS_IN_FLIGHT = 64


class HealthChecks:
    """The checks of one term."""

    def __init__(
        self, membership: Membership, reach: WorkerReach, *, gap_seconds: float, clock: Clock
    ) -> None:
        """`gap_seconds` lie between two rounds."""
        self._membership = membership
        self._reach = reach
        self._gap_seconds = gap_seconds
        self._clock = clock
        self._limit = asyncio.Semaphore(CHECKS_IN_FLIGHT)

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            silent = self._membership.to_check(self._clock.monotonic())
            await asyncio.gather(*(self._check(member) for member in silent))
            await self._clock.sleep(self._gap_seconds)

    async def _check(self, member: Member) -> None:
        async with self._limit:
            answered = await self._reach.answers(member.addresses)
        now = self._clock.monotonic()
        self._membership.health_checked(member, answered=answered, now=now)
