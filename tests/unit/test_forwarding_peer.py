"""The far side: a peer's call as a stream, its pace, and how many there may be."""

import asyncio
import logging
from typing import Any

import grpc
import pytest

from epp_worker.forwarding.calls import GROUP_KEY, SAID_KEY
from epp_worker.forwarding.peer_stream import UNSENT_BYTES, PeerStream
from epp_worker.forwarding.service import ForwardService
from epp_worker.http2.counters import Counters
from fleet.clock import SystemClock
from fleet.model import GroupKey
from fleet.telemetry import RateLimited
from tests.worker_fakes import settle

GROUP = GroupKey("ns", "a-epp", 9002)


class Refused(Exception):
    """A call was ended by `abort`."""


class FakeContext:
    """A call of a peer that the test plays."""

    def __init__(self, metadata: dict[str, str] | None = None) -> None:
        self.metadata = {GROUP_KEY: str(GROUP)} if metadata is None else metadata
        self.says: asyncio.Queue[object] = asyncio.Queue()
        self.takes = asyncio.Event()
        self.takes.set()
        self.over = False
        self.got: list[bytes] = []
        self.code: object = None
        self.details = ""
        self.trailing: dict[str, str] = {}

    def peer(self) -> str:
        return "ipv4:10.0.0.1:40000"

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return tuple(self.metadata.items())

    async def read(self) -> object:
        return await self.says.get()

    async def write(self, message: bytes) -> None:
        await self.takes.wait()
        if self.over:
            raise asyncio.InvalidStateError("RPC already finished.")
        self.got.append(message)

    def set_code(self, code: object) -> None:
        self.code = code

    def set_details(self, details: str) -> None:
        self.details = details

    def set_trailing_metadata(self, trailing: tuple[tuple[str, str], ...]) -> None:
        self.trailing = dict(trailing)

    async def abort(self, code: grpc.StatusCode, _: str) -> None:
        raise Refused(code)


class Handler:
    """Echoes; `end` ends the stream, `fail` is a fault of ours."""

    def __init__(self, stream: PeerStream) -> None:
        self.stream = stream
        self.events: list[bytes | str] = []

    def received(self, message: bytes) -> None:
        self.events.append(message)
        if message == b"fail":
            raise RuntimeError("a prompt")
        if message == b"end":
            self.stream.end(5, "why")
        else:
            self.stream.send(message)

    def half_closed(self) -> None:
        self.events.append("half-closed")
        self.stream.end()

    def aborted(self) -> None:
        self.events.append("aborted")


class Bench:
    """A service over `Handler`s."""

    def __init__(self, most: int = 10) -> None:
        self.handlers: list[Handler] = []
        self.counters = Counters()
        limited = RateLimited(logging.getLogger(__name__), SystemClock())
        self.service = ForwardService(self.begin, self.counters, limited, None, most)

    def begin(self, stream: PeerStream) -> Handler:
        self.handlers.append(Handler(stream))
        return self.handlers[-1]

    async def call(self, context: FakeContext) -> "asyncio.Task[None]":
        untyped: Any = context
        task = asyncio.create_task(self.service.serve(None, untyped))
        await settle()
        return task


async def test_a_call_is_served_like_a_stream_and_counted_like_one() -> None:
    """The authority names its group; the end is marked as the owner's own."""
    made, context = Bench(), FakeContext()
    task = await made.call(context)
    assert made.handlers[0].stream.authority == "a-epp.ns.svc:9002"
    assert (made.counters.streams_open, made.service.open) == (1, 1)
    for said in (b"1", b"2", None):
        context.says.put_nowait(said)
    await task
    assert context.got == [b"1", b"2"]
    assert made.handlers[0].events == [b"1", b"2", "half-closed"]
    assert (context.code, context.trailing) == (grpc.StatusCode.OK, {SAID_KEY: "1"})
    assert (made.counters.streams_open, made.service.open) == (0, 0)
    assert made.counters.streams_total[0] == 1


async def test_the_end_comes_after_all_that_was_said() -> None:
    """Nothing is given to the handler any more."""
    made, context = Bench(), FakeContext()
    context.takes.clear()
    task = await made.call(context)
    for said in (b"1", b"end", b"2"):
        context.says.put_nowait(said)
    await settle()
    context.takes.set()
    await task
    assert context.got == [b"1"]
    assert (context.code, context.details) == (grpc.StatusCode.NOT_FOUND, "why")
    assert made.handlers[0].events == [b"1", b"end"]


async def test_a_peer_that_goes_is_a_reset() -> None:
    """Its call is cancelled by the transport."""
    made, context = Bench(), FakeContext()
    task = await made.call(context)
    context.says.put_nowait(b"1")
    await settle()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert made.handlers[0].events == [b"1", "aborted"]
    assert made.counters.streams_total[1] == 1
    assert made.counters.streams_open == 0


async def test_an_answer_for_a_peer_that_is_gone_is_no_fault() -> None:
    """It is a reset like any other; nothing is logged as a fault."""
    made, context = Bench(), FakeContext()
    context.over = True
    task = await made.call(context)
    context.says.put_nowait(b"1")
    await task
    assert made.handlers[0].events == [b"1", "aborted"]
    assert made.counters.streams_total[1] == 1
    assert made.counters.handler_errors == 0


async def test_a_fault_of_ours_ends_its_own_stream_only() -> None:
    """INTERNAL, without a word of what was said."""
    made, context = Bench(), FakeContext()
    task = await made.call(context)
    context.says.put_nowait(b"fail")
    await task
    assert (context.code, context.details) == (grpc.StatusCode.INTERNAL, "internal error")
    assert made.handlers[0].events == [b"fail", "aborted"]
    assert made.counters.handler_errors == 1


async def test_nothing_is_read_while_much_waits_for_the_peer() -> None:
    """Nor while the handler holds the peer back."""
    made, context = Bench(), FakeContext()
    context.takes.clear()
    task = await made.call(context)
    handler, part = made.handlers[0], b"x" * (UNSENT_BYTES // 2)
    for _ in range(5):
        context.says.put_nowait(part)
    await settle()
    assert len(handler.events) == 3
    told: list[bool] = []
    handler.stream.when_sent(lambda: told.append(True))
    assert (told, handler.stream.fits(0)) == ([], False)
    handler.stream.hold_back(on=True)
    context.takes.set()
    await settle()
    assert (told, handler.stream.fits(0)) == ([True], True)
    assert len(handler.events) == 3
    handler.stream.hold_back(on=False)
    await settle()
    assert len(handler.events) == 5
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_more_streams_than_may_be_are_refused_at_once() -> None:
    """Without the mark of the owner: the forwarder holds them."""
    made = Bench(most=1)
    first = await made.call(FakeContext())
    context = FakeContext()
    refused = await made.call(context)
    with pytest.raises(Refused, match="RESOURCE_EXHAUSTED"):
        await refused
    assert context.trailing == {}
    assert (len(made.handlers), made.service.open) == (1, 1)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert made.service.open == 0
