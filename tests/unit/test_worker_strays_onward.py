"""Streams that wait and go on to another worker, come back from one, or came from one."""

import asyncio

import pytest

from epp_worker.forwarding.rules import Past
from epp_worker.http2.contract import StreamHandler
from epp_worker.strays import HELD_BYTES, UNAVAILABLE, HeldStream, StrayBounds, StrayGate
from epp_worker.wheel import Wheel
from tests.worker_fakes import FakeStream

pytestmark = pytest.mark.looptime


class Onward:
    """Takes streams of the authorities that it knows; notes what they bring."""

    def __init__(self, *authorities: str) -> None:
        self.authorities = authorities
        self.asked: list[str] = []
        self.events: list[bytes | str] = []

    def __call__(self, held: HeldStream) -> StreamHandler | None:
        self.asked.append(held.authority)
        return self if held.authority in self.authorities else None

    def received(self, message: bytes) -> None:
        self.events.append(message)

    def half_closed(self) -> None:
        self.events.append("half-closed")

    def aborted(self) -> None:
        self.events.append("aborted")


def gate(size: int = 10_000_000) -> StrayGate:
    """Streams wait for 5 s; none opens here."""
    wheel = Wheel(asyncio.get_running_loop())
    bounds = StrayBounds(10, size)
    return StrayGate(bounds, wheel.lane(5.0), wheel.lane(55.0), lambda _: False)


async def test_what_waits_is_passed_on_with_all_that_it_brought() -> None:
    """It is not the gate's to count, and nothing of it is held any more."""
    strays = gate()
    handler = strays.hold(FakeStream("a"))
    handler.received(b"headers")
    handler.half_closed()
    strays.hold(FakeStream("b"))
    onward = Onward("a")
    strays.forward(onward)
    handler.aborted()
    assert onward.events == [b"headers", "half-closed", "aborted"]
    assert len(strays) == 1
    assert strays.counts.held == strays.counts.failed == 0


async def test_of_new_streams_of_one_authority_one_is_asked_about() -> None:
    """Nobody takes it, so nobody takes the next; those that were tried before are looked at."""
    strays = gate()
    for _ in range(3):
        strays.hold(FakeStream("a"))
    onward = Onward()
    strays.forward(onward)
    assert onward.asked == ["a"]
    now = strays.now()
    for _ in range(2):
        strays.hold(FakeStream("b"), Past(now).after("w1", "i1"))
    strays.forward(onward)
    assert onward.asked[1:] == ["a", "b", "b"]


async def test_a_stream_that_comes_back_waits_for_the_rest_of_its_time() -> None:
    """5 s in all, of which 3 have gone."""
    strays = gate()
    past = Past(strays.now()).after("w1", "i1")
    await asyncio.sleep(3.0)
    stream = FakeStream("a")
    strays.hold(stream, past)
    await asyncio.sleep(1.9)
    assert len(strays) == 1
    await asyncio.sleep(0.2)
    assert stream.ended is not None
    assert stream.ended[0] == UNAVAILABLE
    assert strays.counts.failed == 1


async def test_one_that_comes_back_too_late_is_refused_at_once() -> None:
    """As soon as the loop turns."""
    strays = gate()
    past = Past(strays.now()).after("w1", "i1")
    await asyncio.sleep(6.0)
    stream = FakeStream("a")
    strays.hold(stream, past)
    await asyncio.sleep(0.01)
    assert stream.ended is not None
    assert strays.counts.failed == 1


async def test_streams_of_other_workers_are_held_and_not_counted() -> None:
    """They count where the gateway is: served, given up, or too late."""
    strays = gate()
    past = Past(strays.now(), onward=False)
    served, gone, late = (strays.hold(FakeStream(name), past) for name in ("a", "b", "c"))
    onward = Onward("a")
    strays.release(lambda stream: onward if stream.authority == "a" else None)
    served.received(b"more")
    gone.aborted()
    late.received(b"headers")
    await asyncio.sleep(6.0)
    assert onward.events == [b"more"]
    assert len(strays) == strays.bytes == 0
    counts = strays.counts
    assert (counts.served, counts.forwarded, counts.held, counts.failed) == (0, 0, 0, 0)


async def test_a_stream_that_brings_much_while_it_waits_is_held_back() -> None:
    """Its window is opened again when somebody takes it."""
    strays = gate()
    stream = FakeStream("a")
    handler = strays.hold(stream)
    seen = []
    for _ in range(2):
        handler.received(b"x" * (HELD_BYTES // 2))
        seen.append(stream.held_back)
    strays.forward(Onward("a"))
    assert [*seen, stream.held_back] == [False, True, False]
