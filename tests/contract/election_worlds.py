"""Coordinators that do nothing but lead, for tests of the election."""

import asyncio
import contextlib
import random

from coordinator.election.candidate import Candidate
from coordinator.election.contract import Standing
from coordinator.election.leadership import Leadership
from coordinator.election.redis import StoreElection
from fleet.model import LeaderInfo
from fleet.settings.model import ElectionSettings
from fleet.store.contract import Store


class LoopClock:
    """The event loop's own time, virtual where the test's loop is."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def wall(self) -> float:
        return self.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))


class Coordinator:
    """A candidate over a store, writing down when its leader's work starts and ends."""

    def __init__(
        self, name: str, store: Store, trace: list[str], settings: ElectionSettings
    ) -> None:
        self.info = LeaderInfo(name, f"{name}:8080", f"{name}:8081")
        self.known_epoch = 0
        self.rolled_back: list[Standing] = []
        self._trace = trace
        clock = LoopClock()
        self.candidate = Candidate(
            StoreElection(store, self.info, settings, clock),
            clock,
            settings,
            floor=self._floor,
            lead=self._lead,
            rng=random.Random(name),
            me=name,
            on_rollback=self.rolled_back.append,
        )
        self._task = asyncio.create_task(self.candidate.run())

    def leads(self) -> bool:
        leadership = self.candidate.leadership()
        return leadership is not None and leadership.valid()

    @property
    def epoch(self) -> int:
        leadership = self.candidate.leadership()
        return leadership.epoch if leadership is not None else 0

    async def stop(self) -> None:
        """What SIGTERM does."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _floor(self) -> int:
        return self.known_epoch

    async def _lead(self, leadership: Leadership) -> None:
        self._trace.append(f"{self.info.id} starts {leadership.epoch}")
        try:
            await asyncio.Event().wait()
        finally:
            self._trace.append(f"{self.info.id} ends")


async def until_one_leads(fleet: list[Coordinator], *, seconds: float = 20.0) -> Coordinator:
    """The one that leads, as soon as exactly one does; fails after `seconds`."""
    async with asyncio.timeout(seconds):
        while True:
            leading = [coordinator for coordinator in fleet if coordinator.leads()]
            assert len(leading) <= 1, "two leaders"
            if leading:
                return leading[0]
            await asyncio.sleep(0.01)
