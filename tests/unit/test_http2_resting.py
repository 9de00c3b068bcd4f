"""Nobody rests for ever: whatever happens in whatever order, once the loop has nothing more to do
every connection reads, every message has been handed on, and nothing is held.

Both places where work waits are in it: a connection that has read more than fits into its turn, and
messages in their groups' lines.
"""

from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from epp_worker.http2 import Http2Limits, frames
from epp_worker.http2.connection import Connection
from epp_worker.http2.contract import GrpcStream, StreamHandler
from epp_worker.turns import Line, PacedStream, Turns
from tests.attackers import literals
from tests.http2_peer import FakeTransport, Recorder, Wire, grpc, raw
from tests.http2_peer import request_headers as head

HELLO = frames.PREFACE + frames.settings({4: frames.MAX_WINDOW})
HELLO += frames.window_update(0, frames.MAX_WINDOW - frames.DEFAULT_WINDOW)
GROUPS = 3
SIZES = st.sampled_from((0, 900, 16_000, 40_000, 70_000, 300_000))
LIMITS = Http2Limits(stream_window=1 << 20, connection_window=1 << 24)


class Handler(Recorder):
    """Takes its time, may break, and may end its stream by itself.

    Attributes:
        seconds: that each message takes.
        doomed: "break" or "end" with the next message.
        late: messages after its stream was aborted.
    """

    def __init__(self, world: "World", stream: GrpcStream) -> None:
        super().__init__(stream)
        self.answers = False
        self.seconds = 0.0001
        self.doomed = ""
        self.late = 0
        self._world = world

    def received(self, message: bytes) -> None:
        """As `doomed` says."""
        self._world.wire.loop.now += self.seconds
        self.late += self.aborts
        if self.doomed == "break":
            raise RuntimeError("a fault of ours")
        super().received(message[:8])
        if self.doomed == "end":
            self.stream.end()


class Call:
    """A stream, from both sides."""

    def __init__(self, peer: "Peer", stream_id: int, handler: Handler) -> None:
        self.peer = peer
        self.stream_id = stream_id
        self.handler = handler
        self.sent: list[bytes] = []
        self.window = LIMITS.stream_window
        self.alive = True

    def send(self, size: int) -> None:
        """A message, if the window has room for it, as a client does it."""
        content = grpc(b"%08d" % len(self.sent) + b"x" * size)
        if len(content) > self.window:
            return
        self.window -= len(content)
        self.sent.append(b"%08d" % len(self.sent))
        parts = [content[at : at + 16_384] for at in range(0, len(content), 16_384)]
        self.peer.say(b"".join(raw(frames.DATA, 0, self.stream_id, part) for part in parts))


class Peer:
    """A connection; what it says waits while the server does not read."""

    def __init__(self, world: "World") -> None:
        world.wire.connect()
        self.connection: Connection = world.wire.connection
        self.transport: FakeTransport = world.wire.transport
        self.unread = bytearray(HELLO)
        self.next = 1
        self.here = True

    def say(self, data: bytes) -> None:
        """Put it into the socket."""
        if self.here:
            self.unread += data

    def deliver(self, *, under_way: bool = False) -> bool:
        """One read of the server's, if it reads, or was about to when it paused; whether it did."""
        reads = self.transport.reading or under_way
        if not (self.here and reads and self.unread and not self.gone()):
            return False
        data = bytes(self.unread[: 256 * 1024])
        del self.unread[: len(data)]
        self.connection.data_received(data)
        return True

    def gone(self) -> bool:
        """Whether either side has ended it."""
        return not self.here or self.transport.closed

    def lose(self) -> None:
        """Cut it."""
        self.here = False
        self.unread.clear()
        self.connection.connection_lost(None)


class World(RuleBasedStateMachine):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.wire = Wire(limits=LIMITS)
        self.wire.lose()
        self.lines = [Line() for _ in range(GROUPS)]
        loop = self.wire.loop
        self.turns = Turns(self._soon, loop.time)
        self.handlers: list[Handler] = []
        self.group = 0
        self.wire.service.make = self._serve
        self.peers: list[Peer] = []
        self.calls: list[Call] = []

    def _soon(self, callback: Callable[[], None]) -> None:
        self.wire.loop.call_soon(callback)

    def _serve(self, stream: GrpcStream) -> StreamHandler:
        handler = Handler(self, stream)
        self.handlers.append(handler)
        paced: PacedStream = self.turns.pace(stream, self.lines[self.group], handler)
        return paced

    def _turn(self) -> None:
        """What was due when it began, as a loop does it."""
        due, self.wire.loop._soon = self.wire.loop._soon, []
        for callback in due:
            callback()

    @initialize()
    def two_connections_are_here(self) -> None:
        """With streams of two groups on each."""
        for _ in range(2):
            self.a_connection_comes()
        for number in range(8):
            self.a_stream_opens(number, number // 2 % 2, (4e-4, 1e-4)[number % 2])

    @rule()
    def a_connection_comes(self) -> None:
        """Up to three."""
        if len([peer for peer in self.peers if not peer.gone()]) < 3:
            self.peers.append(Peer(self))

    @precondition(lambda self: self.peers)
    @rule(
        which=st.integers(0, 9),
        group=st.integers(0, GROUPS - 1),
        seconds=st.sampled_from((1e-6, 1e-4, 4e-4, 5e-3)),
    )
    def a_stream_opens(self, which: int, group: int, seconds: float) -> None:
        """Of some group."""
        peer = self.peers[which % len(self.peers)]
        while peer.deliver() or self.wire.loop._soon:
            self._turn()
        if peer.gone():
            return
        self.group = group
        count = len(self.handlers)
        block = literals(head())
        peer.say(raw(frames.HEADERS, frames.FLAG_END_HEADERS, peer.next, block))
        while len(self.handlers) == count:
            assert peer.deliver() or self.wire.loop._soon
            self._turn()
        self.handlers[-1].seconds = seconds
        self.calls.append(Call(peer, peer.next, self.handlers[-1]))
        peer.next += 2

    @precondition(lambda self: self.calls)
    @rule(
        which=st.integers(0, 99),
        sizes=st.lists(SIZES, min_size=1, max_size=12),
        reset=st.booleans(),
    )
    def messages_come(self, which: int, sizes: list[int], reset: bool) -> None:
        """On one stream, which may be reset right after them; one read of them."""
        call = self.calls[which % len(self.calls)]
        if call.alive:
            for size in sizes:
                call.send(size)
            if reset:
                self.a_stream_ends(which, "reset")
        call.peer.deliver()

    @precondition(lambda self: self.calls)
    @rule(which=st.integers(0, 99), how=st.sampled_from(("reset", "break", "end")))
    def a_stream_ends(self, which: int, how: str) -> None:
        """By the client's reset, or by what its handler does with the next message."""
        call = self.calls[which % len(self.calls)]
        if how == "reset" and call.alive:
            call.peer.say(frames.rst_stream(call.stream_id, 8))
        else:
            call.handler.doomed = how
        call.alive = False

    @precondition(lambda self: self.peers)
    @rule(which=st.integers(0, 9), under_way=st.booleans())
    def bytes_arrive(self, which: int, under_way: bool) -> None:
        """One read."""
        self.peers[which % len(self.peers)].deliver(under_way=under_way)

    @precondition(lambda self: self.peers)
    @rule(which=st.integers(0, 9), how=st.sampled_from(("lose", "shut", "abort")))
    def a_connection_goes(self, which: int, how: str) -> None:
        """By either side, at any moment."""
        peer = self.peers[which % len(self.peers)]
        for call in self.calls:
            if call.peer is peer:
                call.alive = False
        if not peer.here:
            return
        if how == "shut":
            peer.connection.shut()
        elif how == "abort":
            peer.connection.abort()
        else:
            peer.lose()

    @rule(turns=st.integers(1, 4), seconds=st.sampled_from((0.0, 1e-4, 0.01)))
    def turns_pass(self, turns: int, seconds: float) -> None:
        """Of the loop; the machine may be slow."""
        for _ in range(turns):
            self.wire.loop.now += seconds
            self._turn()

    @invariant()
    def what_is_held_is_what_waits(self) -> None:
        """The gauges are sums."""
        assert self.turns.held == sum(line.held for line in self.lines) >= 0
        assert all(line.held >= 0 for line in self.lines)
        assert self.wire.shared.resting >= 0

    def teardown(self) -> None:
        """Nothing more happens: within as many turns as there can be messages all is done."""
        for _ in range(20_000):
            delivered = [peer.deliver() for peer in self.peers]
            if not any(delivered) and not self.wire.loop._soon:
                break
            self._turn()
        assert not self.wire.loop._soon
        assert self.turns.held == 0
        assert [line.held for line in self.lines] == [0] * GROUPS
        assert self.wire.shared.resting == 0
        for peer in self.peers:
            if not peer.gone():
                assert peer.transport.reading
                assert not peer.unread
        for call in self.calls:
            got = call.handler.messages
            assert got == call.sent[: len(got)]
            assert not call.handler.late
            if call.alive and not call.peer.gone():
                assert got == call.sent
                stream = call.peer.connection.streams[call.stream_id]
                assert not stream._receive._held_back


World.TestCase.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None, database=None, derandomize=True
)
TestNobodyRestsForEver = World.TestCase


def test_a_fault_of_ours_in_a_later_turn_ends_the_connection() -> None:
    """A transport hears what fails while it hands on a read, not what fails in a turn after it:
    the connection would never read again."""
    wire = Wire()

    class Slow(Recorder):
        """A handler to whom each message takes 0.6 ms."""

        def received(self, message: bytes) -> None:
            """Let time pass."""
            del message
            wire.loop.now += 0.0006

    wire.service.make = Slow
    wire.feed(HELLO)
    opened = raw(frames.HEADERS, frames.FLAG_END_HEADERS, 1, literals(head()))
    wire.connection.data_received(opened + raw(frames.DATA, 0, 1, grpc(b"x" * 100)) * 3)
    assert not wire.transport.reading
    wire.connection.table = ()  # whatever comes next
    with pytest.raises(IndexError):
        wire.loop.run()
    assert wire.transport.aborted
    assert wire.shared.resting == 0
