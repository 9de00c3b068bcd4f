"""Streams that wait for a group: within bounds, in order, and never answered by guessing."""

import asyncio
from collections.abc import Container

import pytest

from epp_worker.http2.contract import GrpcStream, StreamHandler
from epp_worker.strays import RELEASED, HeldStream, StrayBounds, StrayGate
from epp_worker.wheel import Wheel
from tests.worker_fakes import FakeStream

UNAVAILABLE = 14
pytestmark = pytest.mark.looptime


class Recorder:
    """The handler of a stream that is served at last."""

    def __init__(self, stream: GrpcStream) -> None:
        self.stream = stream
        self.events: list[bytes | str] = []

    def received(self, message: bytes) -> None:
        self.events.append(message)

    def half_closed(self) -> None:
        self.events.append("half_closed")

    def aborted(self) -> None:
        self.events.append("aborted")


class Desk:
    """Serves the authorities in `open`."""

    def __init__(self, *authorities: str) -> None:
        self.open = set(authorities)
        self.served: list[Recorder] = []

    def __call__(self, stream: GrpcStream) -> StreamHandler | None:
        if stream.authority not in self.open:
            return None
        self.served.append(Recorder(stream))
        return self.served[-1]


def gate(streams: int = 10, size: int = 1000, opening: Container[str] = frozenset()) -> StrayGate:
    """A gate of 5 s, or 60 s for authorities in `opening`."""
    wheel = Wheel(asyncio.get_running_loop())
    return StrayGate(
        StrayBounds(streams, size), wheel.lane(5.0), wheel.lane(55.0), lambda a: a in opening
    )


async def test_a_held_stream_is_served_with_all_that_it_brought() -> None:
    """Messages and half-close come to the session in their order; later ones go straight on."""
    strays = gate()
    handler = strays.hold(FakeStream("a"))
    handler.received(b"headers")
    handler.received(b"body")
    handler.half_closed()
    desk = Desk("a")
    strays.release(desk)
    handler.received(b"later")
    handler.aborted()
    assert desk.served[0].events == [b"headers", b"body", "half_closed", b"later", "aborted"]
    assert (strays.counts.held, strays.counts.failed) == (1, 0)
    assert (len(strays), strays.bytes) == (0, 0)


async def test_only_streams_of_the_group_that_came_are_served() -> None:
    """The others wait on."""
    strays = gate()
    a, b = FakeStream("a"), FakeStream("b")
    strays.hold(a)
    strays.hold(b)
    desk = Desk("b")
    strays.release(desk)
    assert [one.stream for one in desk.served] == [b]
    assert len(strays) == 1


async def test_a_group_that_never_comes_ends_in_unavailable() -> None:
    """After 5 s, never earlier, never with OK, and nothing is sent before."""
    strays = gate()
    stream = FakeStream("svc.ns:9002")
    strays.hold(stream).received(b"headers")
    await asyncio.sleep(4.99)
    assert len(strays) == 1
    await asyncio.sleep(0.1)
    assert stream.ended is not None
    status, reason = stream.ended
    assert status == UNAVAILABLE
    assert "in time" in reason and "svc.ns:9002" in reason
    assert stream.sent == []
    assert (strays.counts.failed, len(strays), strays.bytes) == (1, 0, 0)


async def test_a_group_that_opens_here_is_waited_for_longer() -> None:
    """Its pods are being listed: 5 s end nothing, and it is served whenever the list is here."""
    strays = gate(opening={"a"})
    held, other = FakeStream("a"), FakeStream("b")
    strays.hold(held).received(b"headers")
    strays.hold(other)
    await asyncio.sleep(59.9)
    assert held.ended is None
    assert other.ended is not None and other.ended[0] == UNAVAILABLE
    desk = Desk("a")
    strays.release(desk)
    assert desk.served[0].events == [b"headers"]
    await asyncio.sleep(10.0)
    assert held.ended is None
    assert (strays.counts.held, strays.counts.failed, len(strays)) == (1, 1, 0)


async def test_a_list_that_never_comes_ends_in_unavailable() -> None:
    """After 60 s in all, and the reason says what was waited for."""
    strays = gate(opening={"a"})
    stream = FakeStream("a")
    strays.hold(stream)
    await asyncio.sleep(59.9)
    assert len(strays) == 1
    await asyncio.sleep(0.2)
    assert stream.ended is not None
    assert stream.ended[0] == UNAVAILABLE
    assert "not listed in time" in stream.ended[1]
    assert (strays.counts.failed, len(strays)) == (1, 0)


async def test_a_hold_that_goes_ends_the_longer_wait() -> None:
    """Whoever is past the 5 s is refused then; who came later has the 5 s like anybody else."""
    opening = {"a"}
    strays = gate(opening=opening)
    early, late = FakeStream("a"), FakeStream("a")
    strays.hold(early)
    await asyncio.sleep(8.0)
    strays.hold(late)
    opening.clear()
    strays.release(Desk())
    assert early.ended is not None and early.ended[0] == UNAVAILABLE
    await asyncio.sleep(4.9)
    assert (len(strays), strays.counts.failed) == (1, 1)
    await asyncio.sleep(0.2)
    assert late.ended is not None
    assert strays.counts.failed == 2


async def test_thousands_of_streams_go_on_in_several_turns_of_the_loop() -> None:
    """256 a turn; those whose time runs out meanwhile are served too, and nothing is lost."""
    strays = gate(streams=1000)
    streams = [FakeStream("a") for _ in range(600)]
    handlers = [strays.hold(stream) for stream in streams]
    desk = Desk("a")
    strays.release(desk)
    assert (len(desk.served), len(strays)) == (RELEASED, 600 - RELEASED)
    strays.release(desk)  # another change in the same turn
    assert len(desk.served) == 2 * RELEASED
    for handler in handlers:
        assert isinstance(handler, HeldStream)
        handler.expired()
    await asyncio.sleep(0)
    assert [one.stream for one in desk.served] == streams
    assert (len(strays), strays.counts.held, strays.counts.failed) == (0, 600, 0)


async def test_streams_of_opening_groups_count_like_all_that_wait() -> None:
    """The bounds hold for them, too, and a reset after the 5 s frees the place."""
    strays = gate(streams=1, opening={"a"})
    handler = strays.hold(FakeStream("a"))
    await asyncio.sleep(6.0)
    refused = FakeStream("a")
    strays.hold(refused)
    assert refused.ended is not None
    handler.aborted()
    await asyncio.sleep(60.0)
    assert (len(strays), strays.bytes) == (0, 0)


async def test_more_streams_than_may_wait_are_refused_at_once() -> None:
    """The bound holds, and a place that is freed can be taken."""
    strays = gate(streams=2)
    handlers = [strays.hold(FakeStream("a")) for _ in range(2)]
    third = FakeStream("a")
    strays.hold(third)
    assert third.ended is not None and third.ended[0] == UNAVAILABLE
    assert "too many" in third.ended[1]
    handlers[0].aborted()
    fourth = FakeStream("a")
    strays.hold(fourth)
    assert fourth.ended is None


async def test_more_bytes_than_may_wait_end_the_stream_that_brings_them() -> None:
    """The others keep theirs."""
    strays = gate(size=100 + 2 * 64)  # a message counts as 64 bytes beside its own
    first, second = FakeStream("a"), FakeStream("a")
    strays.hold(first).received(b"x" * 60)
    handler = strays.hold(second)
    handler.received(b"x" * 41)
    assert first.ended is None
    assert second.ended is not None and second.ended[0] == UNAVAILABLE
    handler.received(b"x")
    assert strays.bytes == 60 + 64


async def test_made_up_names_leave_room_for_real_ones() -> None:
    """Streams of pools that nobody has may take half of the places and of the bytes."""
    strays = gate(streams=10, size=1280)
    made_up = [FakeStream(f"x{number}") for number in range(6)]
    handlers = [strays.hold(stream, known=False) for stream in made_up]
    assert [stream.ended is None for stream in made_up] == [True] * 5 + [False]
    real = [FakeStream("a") for _ in range(6)]
    real_handlers = [strays.hold(stream) for stream in real]
    assert [stream.ended is None for stream in real] == [True] * 5 + [False]
    for handler in handlers[:2]:  # 320 bytes each, with the 64 that a message counts beside
        handler.received(b"x" * 256)
    handlers[2].received(b"x")
    assert made_up[2].ended is not None
    real_handlers[0].received(b"x" * 576)
    assert real[0].ended is None
    assert strays.bytes == 2 * 320 + 640
    handlers[0].aborted()
    late = FakeStream("y")
    strays.hold(late, known=False).received(b"x" * 256)
    assert late.ended is None


async def test_a_fault_of_one_waiting_stream_does_not_keep_others_from_being_served() -> None:
    """It ends INTERNAL and gives up what it holds."""
    strays = gate()
    broken, good = FakeStream("a"), FakeStream("a")
    strays.hold(broken).received(b"x")
    strays.hold(good).received(b"y")

    class Faulty(Recorder):
        """A handler with a fault."""

        def received(self, message: bytes) -> None:
            raise RuntimeError("a fault")

    def serve(stream: GrpcStream) -> StreamHandler:
        return Faulty(stream) if stream is broken else Recorder(stream)

    strays.release(serve)
    assert broken.ended is not None
    assert broken.ended[0] == 13
    assert good.ended is None
    assert (len(strays), strays.bytes) == (0, 0)


async def test_a_reset_while_waiting_frees_everything() -> None:
    """The normal end of an Envoy stream; nothing is sent to the dead stream later."""
    strays = gate()
    stream = FakeStream("a")
    handler = strays.hold(stream)
    handler.received(b"x")
    handler.aborted()
    await asyncio.sleep(10.0)
    assert stream.ended is None
    assert (len(strays), strays.bytes) == (0, 0)
