"""A leadership before long work: the lease is renewed first where much of it is used."""

import asyncio

import pytest

from coordinator.election.contract import Term
from coordinator.election.leadership import LONG_GROUPS, PATIENCE_SECONDS, Leadership
from fleet.model import LeaderInfo
from tests.contract.election_worlds import LoopClock

pytestmark = pytest.mark.looptime

ME = LeaderInfo("c0", "h:1", "h:2")


class Held:
    """A lease of two seconds, which counts how often it is asked to be renewed."""

    def __init__(self, *, answers_after: float | None = 0.01) -> None:
        self.clock = LoopClock()
        self.asked = 0
        self._answers_after = answers_after
        self.leadership = Leadership(self.clock, self._term(), ttl_seconds=2.0, renew=self._renew)

    def _term(self) -> Term:
        return Term(ME, 1, self.clock.monotonic() + 2.0)

    def _renew(self) -> None:
        self.asked += 1
        if self._answers_after is not None:
            asyncio.get_running_loop().call_later(
                self._answers_after, lambda: self.leadership.renewed(self._term())
            )

    async def refreshed(self, groups: int = LONG_GROUPS) -> float:
        """How long it took."""
        began = self.clock.monotonic()
        await self.leadership.refresh(groups)
        return self.clock.monotonic() - began


async def test_a_lease_that_is_fresh_is_not_renewed() -> None:
    """0.6 of 2 seconds are used: what is left outlasts the work."""
    held = Held()
    await asyncio.sleep(0.6)
    assert await held.refreshed() == 0.0
    assert held.asked == 0


async def test_a_lease_of_which_a_third_is_used_is_renewed_first() -> None:
    """It returns with the answer."""
    held = Held()
    await asyncio.sleep(0.7)
    assert await held.refreshed() == pytest.approx(0.01)
    assert held.asked == 1
    assert held.leadership.remaining() == pytest.approx(2.0)


async def test_without_an_answer_the_leader_goes_on() -> None:
    """The lease may be enough, and every act looks at it anyway."""
    held = Held(answers_after=None)
    await asyncio.sleep(1.0)
    assert await held.refreshed() == pytest.approx(PATIENCE_SECONDS)
    assert held.asked == 1


async def test_for_few_groups_nothing_is_waited_for() -> None:
    """Planning them takes no time."""
    held = Held()
    await asyncio.sleep(1.0)
    assert await held.refreshed(LONG_GROUPS - 1) == 0.0
    assert held.asked == 0
