"""The near side of a forwarded stream, message by message, against an owner that the test plays."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from epp_worker.forwarding.budget import Bytes
from epp_worker.forwarding.calls import UNAVAILABLE, End
from epp_worker.forwarding.stream import LOST, UNSENT_BYTES, ForwardedStream
from epp_worker.http2.contract import GrpcStream, StreamHandler
from tests.worker_fakes import FakeStream, settle

LOST_END = End(UNAVAILABLE, "connection reset", said=False)


class FakeCall:
    """An owner: takes messages while `takes` is set, says what the test puts into `says`."""

    def __init__(self) -> None:
        self.takes = asyncio.Event()
        self.takes.set()
        self.says: asyncio.Queue[bytes | End] = asyncio.Queue()
        self.got: list[bytes] = []
        self.finished = False
        self.cancelled = False
        self.read = 0

    async def send(self, message: bytes) -> bool:
        await self.takes.wait()
        self.got.append(message)
        return True

    async def finish(self) -> None:
        self.finished = True

    async def receive(self) -> bytes | End:
        said = await self.says.get()
        self.read += 1
        return said

    def cancel(self) -> None:
        self.cancelled = True


class Kept:
    """What a stream becomes that is held again."""

    def __init__(self) -> None:
        self.events: list[bytes | str] = []

    def received(self, message: bytes) -> None:
        self.events.append(message)

    def half_closed(self) -> None:
        self.events.append("half-closed")

    def aborted(self) -> None:
        self.events.append("aborted")


class FakeDesk:
    """Notes what became of the stream."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.held = Kept()

    def passed_on(self) -> None:
        self.said.append("passed on")

    def failed(self) -> None:
        self.said.append("failed")

    def again(self, stream: GrpcStream) -> StreamHandler:
        self.said.append("again")
        return self.held


class Bench:
    """One forwarded stream that runs."""

    def __init__(self, most: int = 10_000_000) -> None:
        self.stream = FakeStream("a")
        self.call = FakeCall()
        self.desk = FakeDesk()
        self.bytes = Bytes(most)
        self.forwarded = ForwardedStream(self.stream, self.call, self.desk, self.bytes)


@asynccontextmanager
async def bench(most: int = 10_000_000) -> AsyncIterator[Bench]:
    made = Bench(most)
    task = asyncio.create_task(made.forwarded.run())
    made.forwarded.stop = task.cancel
    try:
        yield made
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert made.call.cancelled
    assert made.bytes.held == 0 or made.stream.ended is None


async def test_messages_and_the_half_close_go_up_and_answers_come_down() -> None:
    """In order; the end is the owner's own, and nothing is held then."""
    async with bench() as made:
        made.forwarded.received(b"1")
        made.forwarded.received(b"2")
        made.forwarded.half_closed()
        await settle()
        assert (made.call.got, made.call.finished) == ([b"1", b"2"], True)
        for said in (b"a", b"b", End(3, "bad", said=True)):
            made.call.says.put_nowait(said)
        await settle()
        assert made.stream.sent == [b"a", b"b"]
        assert made.stream.ended == (3, "bad")
        assert made.desk.said == ["passed on"]
        assert made.bytes.held == 0


async def test_a_gateway_is_held_back_while_much_waits_for_the_owner() -> None:
    """And let go on when half of that is taken."""
    async with bench() as made:
        made.call.takes.clear()
        part = b"x" * (UNSENT_BYTES // 4)
        seen = []
        for _ in range(5):
            made.forwarded.received(part)
            seen.append(made.stream.held_back)
        made.call.takes.set()
        await settle()
        assert [*seen, made.stream.held_back] == [*[False] * 4, True, False]
        assert len(made.call.got) == 5


async def test_an_owner_is_read_no_faster_than_the_gateway_takes() -> None:
    """One answer ahead."""
    async with bench() as made:
        made.stream.full = True
        for _ in range(5):
            made.call.says.put_nowait(b"a")
        await settle()
        assert made.call.read == 1
        made.stream.drain()
        await settle()
        assert made.call.read == 5


@pytest.mark.parametrize(
    "end", [LOST_END, End(UNAVAILABLE, "full", said=True), End(12, "no such method", said=False)]
)
async def test_before_the_first_answer_all_of_it_is_held_again(end: End) -> None:
    """What the owner got, what it did not get, and whatever comes later."""
    async with bench() as made:
        made.forwarded.received(b"1")
        await settle()
        made.call.takes.clear()
        made.forwarded.received(b"2")
        made.forwarded.half_closed()
        made.call.says.put_nowait(end)
        await settle()
        assert made.desk.said == ["again"]
        assert made.desk.held.events == [b"1", b"2", "half-closed"]
        made.forwarded.received(b"3")
        made.forwarded.aborted()
        assert made.desk.held.events[3:] == [b"3", "aborted"]
        assert made.stream.ended is None
        assert made.bytes.held == 0


@pytest.mark.parametrize("end", [LOST_END, End(0, "", said=False), End(1, "", said=False)])
async def test_after_the_first_answer_a_lost_owner_is_the_end(end: End) -> None:
    """Never OK, whatever the transport says: the owner itself did not."""
    async with bench() as made:
        made.forwarded.received(b"1")
        made.call.says.put_nowait(b"a")
        made.call.says.put_nowait(end)
        await settle()
        assert made.stream.ended == (UNAVAILABLE, LOST)
        assert made.desk.said == ["passed on"]


async def test_what_may_not_be_kept_any_more_is_not_held_again() -> None:
    """Another stream needed the room: this one lives on its owner alone."""
    async with bench(most=2000) as made:
        made.forwarded.received(b"x" * 1000)
        await settle()
        assert made.bytes.take(1500)
        assert made.bytes.held == 1500
        made.call.says.put_nowait(LOST_END)
        await settle()
        assert made.stream.ended == (UNAVAILABLE, LOST)
        assert made.desk.said == ["failed"]
        made.bytes.give_back(1500)


async def test_more_than_may_wait_ends_the_stream() -> None:
    """The owner does not take it, and nobody has anything to spare."""
    async with bench(most=2000) as made:
        made.call.takes.clear()
        made.forwarded.received(b"x" * 1500)
        made.forwarded.received(b"x" * 1500)
        assert made.stream.ended is not None
        assert made.stream.ended[0] == UNAVAILABLE
        assert made.desk.said == ["failed"]
        made.forwarded.received(b"x" * 1500)
        made.forwarded.half_closed()
        await settle()
        assert made.bytes.held == 0


@pytest.mark.parametrize(("answers", "said"), [(0, ["failed"]), (1, ["passed on"])])
async def test_a_gateway_that_resets_ends_the_call(answers: int, said: list[str]) -> None:
    """It counts as failed only if nobody had answered."""
    async with bench() as made:
        made.forwarded.received(b"1")
        for _ in range(answers):
            made.call.says.put_nowait(b"a")
        await settle()
        made.forwarded.aborted()
        await settle()
        assert made.call.cancelled
        assert made.desk.said == said
        assert made.stream.ended is None
        assert made.bytes.held == 0
