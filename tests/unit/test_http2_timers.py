"""The shared timer, and the limits that are checked when they are made."""

import pytest

from epp_worker.http2 import Http2Limits
from epp_worker.http2.timers import CHECKED_PER_TURN, Ticket, Timers
from fleet.errors import SettingsError
from tests.http2_peer import FakeLoop


class Item:
    """Looked at; wants another look after `again` seconds."""

    def __init__(self, loop: FakeLoop, again: float | None = None) -> None:
        self.loop = loop
        self.again = again
        self.ticket: Ticket | None = None
        self.looks: list[float] = []

    def check(self, now: float) -> float | None:
        """Note the time."""
        self.looks.append(now - 1000)
        return None if self.again is None else now + self.again


def test_each_is_looked_at_when_due_in_order() -> None:
    """Times of the loop; an earlier wish replaces a later one, a later one changes nothing."""
    loop = FakeLoop()
    timers = Timers(loop)
    early, late, moved = Item(loop), Item(loop), Item(loop)
    timers.at(1010, late)
    timers.at(1020, moved)
    timers.at(1005, early)
    timers.at(1002, moved)
    timers.at(1030, early)
    loop.advance(100)
    assert (early.looks, late.looks, moved.looks) == ([5], [10], [2])


def test_repeats_as_long_as_asked() -> None:
    """The next time is what the look returns."""
    loop = FakeLoop()
    timers = Timers(loop)
    item = Item(loop, again=30)
    timers.at(1010, item)
    loop.advance(75)
    assert item.looks == [10, 40, 70]
    timers.forget(item)
    loop.advance(100)
    assert item.looks == [10, 40, 70]


def test_a_look_may_forget_and_a_closed_timer_is_silent() -> None:
    """The heap keeps no reference to what was forgotten."""
    loop = FakeLoop()
    timers = Timers(loop)
    first, second = Item(loop), Item(loop)
    timers.at(1001, first)
    ticket = first.ticket
    timers.at(1002, second)
    timers.forget(first)
    assert ticket is not None
    assert ticket.holder is None
    timers.close()
    loop.advance(10)
    assert (first.looks, second.looks) == ([], [])


def test_an_item_that_is_always_due_does_not_stop_the_loop() -> None:
    """A look that asks for the past gets its next turn only when time has moved."""
    loop = FakeLoop()
    timers = Timers(loop)
    item = Item(loop, again=-5)
    timers.at(1001, item)
    loop.advance(1)
    assert len(item.looks) == 1


def test_limits_that_cannot_work_are_all_named() -> None:
    """One line each, with the field."""
    with pytest.raises(SettingsError) as caught:
        Http2Limits(max_streams=0, stream_window=1000, connection_window=1 << 31)
    assert caught.value.problems == (
        "http2.max_streams: must be at least 1, is 0",
        "http2.stream_window: must be at least 65535, is 1000",
        "http2.connection_window: must be at most 2147483647, is 2147483648",
    )


def test_many_due_at_once_take_several_turns() -> None:
    """Thousands of connections that die together must not hold up the living ones."""
    loop = FakeLoop()
    timers = Timers(loop)
    items = [Item(loop) for _ in range(150)]
    for item in items:
        timers.at(1001, item)
    loop.now = 1001.0
    timers._run()
    assert sum(len(item.looks) for item in items) == CHECKED_PER_TURN
    loop.advance(0)
    assert all(item.looks == [1] for item in items)
