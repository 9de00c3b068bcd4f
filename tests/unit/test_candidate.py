"""A candidate against an election that is played by the test, in virtual time."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator

import pytest

from coordinator.election.candidate import Candidate
from coordinator.election.contract import Standing, Term, Timers
from coordinator.election.leadership import LONG_GROUPS, Leadership
from fleet.errors import StoreRefused, StoreUnavailable
from fleet.model import LeaderInfo

ME = LeaderInfo("me", "me:1", "me:2")
OTHER = LeaderInfo("other", "o:1", "o:2")
TIMERS = Timers(ttl_seconds=2.0, renew_seconds=0.5)

pytestmark = pytest.mark.looptime


class LoopClock:
    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def wall(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))


class Played:
    """An election whose state the test sets; writes down what is asked of it."""

    def __init__(self) -> None:
        self.holder: LeaderInfo | None = None
        self.epoch = 0
        self.available = True
        self.hangs = False
        self.refuses = False
        self.expires_in: float | None = None
        self.news = asyncio.Event()
        self.looks: list[float] = []
        self.trace: list[str] = []

    @property
    def timers(self) -> Timers:
        return TIMERS

    @property
    def in_store(self) -> bool:
        return True

    async def changed(self) -> None:
        await self.news.wait()

    async def watch(self) -> None:
        await asyncio.Event().wait()

    async def acquire(self, *, floor: int) -> Term | None:
        await self._answer()
        if self.refuses:
            raise StoreRefused("too high", holder=None, epoch=self.epoch)
        if self.holder not in (None, ME):
            return None
        self.holder, self.epoch = ME, max(self.epoch, floor) + 1
        self.trace.append(f"acquired {self.epoch}")
        return Term(ME, self.epoch, LoopClock().monotonic() + 1.9)

    async def renew(self, term: Term) -> tuple[Term | None, Standing]:
        await self._answer()
        standing = Standing(self.holder, self.epoch)
        if (self.holder, self.epoch) != (ME, term.epoch):
            return None, standing
        return Term(ME, term.epoch, LoopClock().monotonic() + 1.9), standing

    async def release(self, term: Term) -> None:
        self.trace.append(f"released {term.epoch}")
        if (self.holder, self.epoch) == (ME, term.epoch):
            self.holder = None

    async def observe(self) -> Standing:
        self.looks.append(LoopClock().monotonic())
        await self._answer()
        self.news.clear()
        return Standing(self.holder, self.epoch, expires_in=self.expires_in)

    async def _answer(self) -> None:
        if self.hangs:
            await asyncio.Event().wait()
        if not self.available:
            raise StoreUnavailable("played")


class Play:
    """A running candidate and what its work does."""

    def __init__(self) -> None:
        self.election = Played()
        self.fails = False
        self.floor = 0
        self.candidate = Candidate(
            self.election,
            LoopClock(),
            floor=self._floor,
            lead=self._lead,
            rng=random.Random(1),
        )
        self.task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.task = asyncio.create_task(self.candidate.run())

    @property
    def trace(self) -> list[str]:
        return self.election.trace

    def leadership(self) -> Leadership:
        leadership = self.candidate.leadership()
        assert leadership is not None
        return leadership

    async def stop(self) -> None:
        assert self.task is not None
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task

    async def _floor(self) -> int:
        return self.floor

    async def _lead(self, leadership: Leadership) -> None:
        self.trace.append("works")
        try:
            if self.fails:
                raise ValueError("the work is broken")
            await asyncio.Event().wait()
        finally:
            self.trace.append("stopped")


@pytest.fixture
async def play() -> AsyncIterator[Play]:
    play = Play()
    yield play
    await play.stop()


async def test_a_free_lease_is_taken_at_once(play: Play) -> None:
    """With the floor that was handed in; then it is renewed and never acquired again."""
    play.floor = play.election.epoch = 4
    play.start()
    await asyncio.sleep(0.01)
    assert play.trace == ["acquired 5", "works"]
    await asyncio.sleep(10.0)
    assert play.trace == ["acquired 5", "works"]
    assert play.leadership().valid()
    assert play.leadership().epoch == 5


async def test_stopping_ends_the_work_before_the_release(play: Play) -> None:
    """Order: work stopped, then released."""
    play.start()
    await asyncio.sleep(1.0)
    await play.stop()
    assert play.trace == ["acquired 1", "works", "stopped", "released 1"]
    assert play.candidate.leadership() is None


async def test_unknown_keeps_the_term_until_its_deadline(play: Play) -> None:
    """Renewed at 0.5 for the last time: valid until 0.5 + 1.9 = 2.4, then the work is stopped."""
    play.start()
    await asyncio.sleep(0.6)
    play.election.available = False
    await asyncio.sleep(1.75)  # 2.35
    assert play.leadership().valid()
    assert play.trace == ["acquired 1", "works"]
    await asyncio.sleep(0.1)  # 2.45
    assert play.candidate.leadership() is None
    assert play.trace == ["acquired 1", "works", "stopped", "released 1"]


async def test_a_renewal_that_hangs_does_not_outlive_the_deadline(play: Play) -> None:
    """The request is still open at the deadline: the work is stopped all the same."""
    play.start()
    await asyncio.sleep(0.6)
    play.election.hangs = True
    await asyncio.sleep(1.75)
    assert play.leadership().valid()
    await asyncio.sleep(0.1)
    assert play.candidate.leadership() is None
    assert "stopped" in play.trace


async def test_a_short_outage_changes_nothing(play: Play) -> None:
    """Unknown for less than the term: the same term goes on."""
    play.start()
    await asyncio.sleep(0.6)
    play.election.available = False
    await asyncio.sleep(1.0)
    play.election.available = True
    await asyncio.sleep(5.0)
    assert play.trace == ["acquired 1", "works"]
    assert play.leadership().valid()


async def test_a_lease_of_somebody_else_ends_the_term(play: Play) -> None:
    """Found on the next renewal; the work stops and the other's lease is left alone."""
    play.start()
    await asyncio.sleep(0.6)
    play.election.holder, play.election.epoch = OTHER, 2
    await asyncio.sleep(0.5)
    assert play.candidate.leadership() is None
    assert play.trace == ["acquired 1", "works", "stopped", "released 1"]
    assert play.election.holder == OTHER
    await asyncio.sleep(5.0)
    assert play.candidate.standing() == Standing(OTHER, 2)


async def test_an_epoch_of_which_only_routes_tell_was_somebodys(play: Play) -> None:
    """The store restarted empty, and this process never saw the lease of who may act still: the
    lease is taken when that holder's has surely run out, and not before."""
    play.floor = 6
    play.start()
    await asyncio.sleep(TIMERS.ttl_seconds - 0.1)
    assert play.trace == []
    await asyncio.sleep(1.0)
    assert play.trace == ["acquired 7", "works"]


async def test_a_holder_that_was_never_seen_is_waited_for_anew(play: Play) -> None:
    """The home was emptied, somebody led for a moment, and it was emptied again: of that holder
    only its routes tell, and it may act as long as any other."""
    play.election.holder, play.election.epoch = OTHER, 5
    play.start()
    await asyncio.sleep(0.1)
    play.election.holder, play.election.epoch = None, 0
    await asyncio.sleep(TIMERS.ttl_seconds - 0.1)
    play.floor = 6
    await asyncio.sleep(TIMERS.ttl_seconds - 0.1)
    assert play.trace == []
    await asyncio.sleep(1.0)
    assert play.trace == ["acquired 7", "works"]


async def test_a_lease_that_is_gone_is_taken_again_higher(play: Play) -> None:
    """The store restarted empty: the holder goes on, above its own epoch, without a stop."""
    play.floor = play.election.epoch = 6
    play.start()
    await asyncio.sleep(0.6)
    play.floor = 0
    play.election.holder, play.election.epoch = None, 0
    await asyncio.sleep(0.5)
    assert play.trace == ["acquired 7", "works", "acquired 8"]
    assert play.leadership().valid()
    assert play.leadership().epoch == 8


async def test_a_reported_epoch_is_overtaken_at_once(play: Play) -> None:
    """Without waiting for the next renewal; a lower report does nothing."""
    play.start()
    await asyncio.sleep(0.6)
    play.candidate.require_epoch_above(0)
    play.candidate.require_epoch_above(9)
    await asyncio.sleep(0.01)
    assert play.leadership().epoch == 10
    assert play.trace == ["acquired 1", "works", "acquired 10"]


async def test_a_refused_epoch_resigns(play: Play) -> None:
    """Refused = resign: the work stops, the lease is given up."""
    play.start()
    await asyncio.sleep(0.6)
    play.election.refuses = True
    play.candidate.require_epoch_above(2**50)
    await asyncio.sleep(0.1)
    assert play.candidate.leadership() is None
    assert play.trace == ["acquired 1", "works", "stopped", "released 1"]


async def test_an_unknown_answer_to_a_raise_keeps_the_term(play: Play) -> None:
    """The store is away while a higher epoch is reported: tried again at the next renewal."""
    play.start()
    await asyncio.sleep(0.6)
    play.election.available = False
    play.candidate.require_epoch_above(9)
    await asyncio.sleep(0.2)
    assert play.leadership().valid()
    play.election.available = True
    await asyncio.sleep(0.5)
    assert play.leadership().epoch == 10
    assert play.trace == ["acquired 1", "works", "acquired 10"]


async def test_broken_work_resigns_and_backs_off(play: Play) -> None:
    """Released at once; campaigned again after one second, not before."""
    play.fails = True
    play.start()
    await asyncio.sleep(0.9)
    assert play.trace == ["acquired 1", "works", "stopped", "released 1"]
    play.fails = False
    await asyncio.sleep(0.2)
    assert play.trace[4:] == ["acquired 2", "works"]


async def test_a_free_lease_is_seen_within_a_renewal_interval(play: Play) -> None:
    """Followers look every 0.5 s +-10 %, and take over as soon as they see it free."""
    play.election.holder, play.election.epoch = OTHER, 3
    play.start()
    await asyncio.sleep(5.0)
    assert play.trace == []
    play.election.holder = None
    await asyncio.sleep(0.56)
    assert play.trace == ["acquired 4", "works"]


async def test_an_election_out_of_reach_is_tried_again(play: Play) -> None:
    """Unknown at the start: no lead, no crash, and it leads when there is an answer."""
    play.election.available = False
    play.start()
    await asyncio.sleep(10.0)
    assert play.candidate.leadership() is None
    play.election.available = True
    await asyncio.sleep(0.56)
    assert play.leadership().epoch == 1


async def test_an_emptied_lease_is_left_to_its_holder_for_one_ttl(play: Play) -> None:
    """Its holder may still act: a follower waits 2 s, then takes it above what it remembers."""
    play.election.holder, play.election.epoch = OTHER, 7
    play.start()
    await asyncio.sleep(3.0)
    play.election.holder, play.election.epoch = None, 0
    await asyncio.sleep(1.9)
    assert play.trace == []
    await asyncio.sleep(1.2)
    assert play.trace == ["acquired 8", "works"]


async def test_the_last_holder_does_not_wait_for_itself(play: Play) -> None:
    """Away for longer than the term and back empty: the ex-holder leads at the next look."""
    play.start()
    await asyncio.sleep(0.6)
    play.election.available = False
    await asyncio.sleep(5.0)
    assert play.candidate.leadership() is None
    play.election.holder, play.election.epoch, play.election.available = None, 0, True
    await asyncio.sleep(0.56)
    assert play.leadership().epoch == 2


async def test_a_follower_looks_when_it_is_told_of_a_change(play: Play) -> None:
    """A release is followed in the same moment, not at the next look."""
    play.election.holder, play.election.epoch = OTHER, 1
    play.start()
    await asyncio.sleep(1.01)
    before = len(play.election.looks)
    play.election.holder = None
    play.election.news.set()
    await asyncio.sleep(0.001)
    assert len(play.election.looks) == before + 1
    assert play.trace == ["acquired 2", "works"]


async def test_news_that_cannot_be_looked_at_are_no_reason_to_hurry(play: Play) -> None:
    """The lease's home told of a change and is away: one look per renewal time, not a storm."""
    play.election.news.set()
    play.election.available = False
    play.start()
    await asyncio.sleep(5.0)
    assert 8 <= len(play.election.looks) <= 13


async def test_a_follower_looks_when_the_lease_runs_out(play: Play) -> None:
    """0.1 s from now by its own clock: no need to wait for the next look."""
    play.election.holder, play.election.epoch, play.election.expires_in = OTHER, 1, 0.1
    play.start()
    await asyncio.sleep(0.15)
    assert play.election.looks[1] - play.election.looks[0] == pytest.approx(0.101)


async def test_a_leader_may_have_its_lease_renewed_before_its_time(play: Play) -> None:
    """Half of it is used: it is renewed when the leader asks, not when that is due."""
    play.start()
    await asyncio.sleep(0.01)
    leadership = play.leadership()
    leadership.renewed(Term(ME, leadership.epoch, LoopClock().monotonic() + 1.0))
    began = LoopClock().monotonic()
    await leadership.refresh(LONG_GROUPS)
    assert LoopClock().monotonic() == began
    assert leadership.remaining() == pytest.approx(1.9)
