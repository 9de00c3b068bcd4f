"""What is taken over from a stream, and what becomes of it when the stream ends."""

import asyncio
from collections.abc import Callable

import pytest

from epp_worker.handover.counts import StreamCounts
from epp_worker.handover.intake import SILENCE_SECONDS, Hearing, Intake
from epp_worker.wheel import Wheel
from fleet.control.state_messages import (
    MAX_GROUPS,
    Feed,
    GroupStart,
    MetricsRow,
    PoolNumber,
    PoolRows,
    encode_rows,
)
from fleet.errors import FormatError
from fleet.model import GroupKey, Hold, PoolId, PoolRef
from tests.prefix_standin import NAME, PrefixStandIn
from tests.state_pools import Estate

pytestmark = pytest.mark.looptime
ONE = "10.0.0.1:8000"
POOL = PoolId(PoolRef("ns", "a"), "uid")


class Ear:
    """One group that is held here, and those who speak of it."""

    def __init__(self, hold: Hold = Hold.STANDBY) -> None:
        loop = asyncio.get_running_loop()
        self.estate = Estate()
        self.key = self.estate.add("a", hold=hold)
        self.counts = StreamCounts()
        lane = Wheel(loop).lane(SILENCE_SECONDS)
        self.hearing = Hearing(self.estate.groups.get, lane=lane, now=loop.time, counts=self.counts)

    def stream(
        self, worker: str, life: str, wanted: Callable[[GroupKey], bool] = lambda _: True
    ) -> Intake:
        """A stream of that worker, with a snapshot that says nothing."""
        intake = self.hearing.open(worker, life, wanted, relay=False)
        intake.accept(Feed((GroupStart(self.key, (PoolNumber(1, POOL),)),)), 0)
        return intake

    def say(self, intake: Intake, counts: dict[str, int], number: int = 1) -> None:
        """So many requests are open on the first endpoint, by origin."""
        by_origin = {origin: {ONE: count} for origin, count in counts.items()}
        intake.accept(Feed(rows=(encode_rows(PoolRows(number, by_origin)),)), 0)

    def inflight(self) -> int:
        state = self.estate.pool(self.key).find(ONE)
        assert state is not None
        return state.inflight


async def test_whose_counts_are_taken() -> None:
    """The speaker's own, and of others those that are known to live: the dead stay dropped, and
    our own requests are not counted twice."""
    ear = Ear()
    ear.hearing.survivors({"life-c"}, ear.estate.groups.values())
    stream = ear.stream("b", "life-b")
    ear.say(stream, {"life-b": 1, "life-c": 2, "life-dead": 4, "life-me": 8})
    assert ear.inflight() == 3


async def test_rows_of_pools_that_are_not_here_are_passed_over() -> None:
    """Unknown numbers, another life of the pool, a group that is not wanted (any more)."""
    ear = Ear()
    stream = ear.stream("b", "life-b")
    ear.say(stream, {"life-b": 1}, number=2)
    other = PoolId(POOL.ref, "uid-2")
    stream.accept(Feed((GroupStart(ear.key, (PoolNumber(3, other),)),)), 0)
    ear.say(stream, {"life-b": 1}, number=3)
    unwanted = ear.stream("c", "life-c", wanted=lambda _: False)
    ear.say(unwanted, {"life-c": 1})
    assert ear.inflight() == 0


async def test_a_group_that_is_left_changes_no_more() -> None:
    """Late news of the former owner."""
    ear = Ear()
    stream = ear.stream("b", "life-b")
    ear.say(stream, {"life-b": 1})
    stream.leave(ear.key)
    ear.say(stream, {"life-b": 5})
    assert ear.inflight() == 1


async def test_a_silent_worker_is_believed_for_a_while() -> None:
    """Its stream broke: for 10 s its requests count on, then they are void."""
    ear = Ear()
    stream = ear.stream("b", "life-b")
    ear.say(stream, {"life-b": 2})
    stream.close()
    await asyncio.sleep(SILENCE_SECONDS - 0.1)
    assert ear.inflight() == 2
    await asyncio.sleep(0.2)
    assert ear.inflight() == 0


async def test_a_worker_that_speaks_again_is_not_cut_off() -> None:
    """The end of its old stream does not void what the new one says; the new one begins anew."""
    ear = Ear()
    stream = ear.stream("b", "life-b")
    ear.say(stream, {"life-b": 2})
    stream.close()
    await asyncio.sleep(1.0)
    ear.say(ear.stream("b", "life-b"), {"life-b": 3})
    assert ear.inflight() == 3
    await asyncio.sleep(SILENCE_SECONDS + 1.0)
    assert ear.inflight() == 3


async def test_the_dead_are_dropped_at_once_and_the_slots_are_told() -> None:
    """The leader no longer names that incarnation among the living."""
    ear = Ear()
    index = ear.estate.pool(ear.key).slots[NAME] = PrefixStandIn()
    groups = ear.estate.groups.values()
    ear.hearing.survivors({"life-b", "life-c"}, groups)
    stream = ear.stream("b", "life-b")
    ear.say(stream, {"life-b": 2, "life-c": 1})
    ear.hearing.survivors({"life-c"}, groups)
    assert ear.inflight() == 1
    assert index.cleared == ["life-b"]


async def test_an_owner_that_lets_go_takes_its_word_back() -> None:
    """It does not hold the group any more."""
    ear = Ear()
    stream = ear.stream("b", "life-b")
    ear.say(stream, {"life-b": 2})
    stream.accept(Feed(absent=(ear.key,)), 0)
    assert ear.inflight() == 0


async def test_a_peer_cannot_name_pools_without_bound() -> None:
    """Numbers are remembered for each stream."""
    ear = Ear()
    stream = ear.stream("b", "life-b")
    pools = tuple(PoolNumber(number, POOL) for number in range(MAX_GROUPS + 1))
    with pytest.raises(FormatError, match="more than 65536 pools"):
        stream.accept(Feed((GroupStart(ear.key, pools),)), 0)


@pytest.mark.parametrize("lie", [float("nan"), float("inf"), -1.0, 1e300])
async def test_numbers_that_no_scrape_would_take(lie: float) -> None:
    """They are not known, as if the model server had not said them: with NaN no endpoints compare,
    and the picker would fail at each pick."""
    ear = Ear()
    stream = ear.stream("b", "life-b")
    rows = PoolRows(1, metrics={ONE: MetricsRow(lie, 4.0, lie, 10, -(2**60), -3)})
    stream.accept(Feed(rows=(encode_rows(rows),)), 0)
    state = ear.estate.pool(ear.key).find(ONE)
    assert state is not None
    assert (state.waiting, state.running, state.kv) == (None, 4.0, None)
    assert (state.inflight_seen, state.failures) == (0, 0)
