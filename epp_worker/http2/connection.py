"""One gateway's connection: bytes in, frames to their functions, one write per turn of the loop.

`data_received` walks the frames in place and calls one function of a table per frame (see
`inbound`). A peer's fault raises `ConnectionFault`, which is answered by GOAWAY and the end; a
stream's fault only resets that stream.
"""

import asyncio
import logging
from collections import deque
from typing import Final, cast

from epp_worker.http2 import frames, inbound, replies, settings
from epp_worker.http2.bounds import Bound
from epp_worker.http2.errors import ConnectionFault, ErrorCode, PrefaceFault
from epp_worker.http2.farewell import Farewell, Step
from epp_worker.http2.flood import FloodGuard
from epp_worker.http2.flow import Outbox, ReceiveWindow
from epp_worker.http2.headers import HeadDecoder
from epp_worker.http2.liveness import Liveness, Pulse
from epp_worker.http2.reader import FrameReader
from epp_worker.http2.receiver import Receiver
from epp_worker.http2.shared import Shared
from epp_worker.http2.stream import ENDED, Stream
from epp_worker.http2.timers import Ticket
from fleet.model.identity import host_port

_REMEMBERED: Final = 128
"""Ids of streams closed last, to tell a late frame from a wrong one."""


_KILLED_PER_TURN: Final = 64
"""Streams of a connection that is gone, whose handlers are told in one turn of the loop."""

_FAULTS: Final = frozenset(
    (
        ErrorCode.PROTOCOL_ERROR,
        ErrorCode.FLOW_CONTROL_ERROR,
        ErrorCode.STREAM_CLOSED,
        ErrorCode.FRAME_SIZE_ERROR,
    )
)
"""A peer that has us reset its streams by such faults might as well reset them itself."""


class Connection(Receiver):
    """An `asyncio.Protocol` by its methods, but no heir of it: compiled code would be slower. See
    `contract.GrpcConnection`; all the rest is for the room itself.

    Attributes:
        out: the way out.
        streams: every stream that either side has not closed yet.
        open_streams: those whose end we have not written yet.
        round: grows with every liveness check; ages streams that the client leaves half open.
        closing: nothing more is read or answered.
        again: a frame to be read before anything else, in the next turn.
    """

    __slots__ = (
        "_reader",
        "_size_update",
        "_transport",
        "open_streams",
        "peer_table",
        "ticket",
    )

    def __init__(self, shared: Shared) -> None:
        limits = shared.limits
        now = shared.loop.time
        self.shared = shared
        self.ticket: Ticket | None = None
        self.peer = ""
        self.streams: dict[int, Stream] = {}
        self.open_streams = 0
        self.last_id = 0
        self.round = 0
        self.closing = False
        self.table = inbound.FIRST
        self.block = None
        self.closed_ids: deque[int] = deque(maxlen=_REMEMBERED)
        self.reset_ids: deque[int] = deque(maxlen=_REMEMBERED)
        self.decoder = HeadDecoder(shared.heads, limits.max_header_list_bytes)
        self.receive = ReceiveWindow(limits.connection_window)
        self.initial_window = frames.DEFAULT_WINDOW
        self.peer_table = frames.DEFAULT_TABLE_SIZE
        self.farewell = Farewell(limits)
        self.liveness = Liveness(limits, now())
        window = limits.flood_window
        self.idle_frames = FloodGuard(Bound.IDLE_FRAMES, limits.max_idle_frames, window, now)
        self.unanswered_resets = FloodGuard(
            Bound.UNANSWERED_RESETS, limits.max_unanswered_resets, window, now
        )
        self.idle_updates = 0
        self._size_update = True
        self.again = b""

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say our SETTINGS, unless the server is full."""
        self._transport = cast(asyncio.Transport, transport)
        shared = self.shared
        limits = shared.limits
        self._reader = FrameReader(self, shared, self._transport)
        limit = limits.max_connection_send_bytes
        self.out = Outbox(self._transport, shared.loop, limit, shared.unsent)
        self.peer = _host_port(transport.get_extra_info("peername"))
        full = len(self.shared.connections) >= limits.max_connections
        self.shared.joined(self)
        if full:
            self.shared.counters.connections_refused += 1
            self.shared.counters.hit(Bound.CONNECTIONS)
            self.abort()
            return
        self._transport.set_write_buffer_limits(high=limits.write_high_water)
        self.out.put(settings.opening(limits))
        self.rearm()

    def data_received(self, data: bytes) -> None:
        """Frames, in whatever pieces the network made of them."""
        if self.closing:
            return
        self.liveness.heard = True
        whole = self._reader.gather(data)
        if whole is not None:
            self.work(whole, 0)

    def work(self, data: bytes, at: int) -> None:
        """Read data[at:] and write, in one piece, what it makes us say."""
        out = self.out
        out.due = True  # what this read makes us say leaves with the flush below
        try:
            self._reader.read(data, at)
        except ConnectionFault as fault:
            self.fail(fault)
        else:
            out.flush()
            if out.paused:
                self.check_overfull()

    def eof_received(self) -> None:
        """The client will send no more: the transport closes."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Gone, for whatever reason: every call dies with it."""
        del exc
        self.closing = True
        self._kill_streams()
        self.out.close()
        self.shared.left(self)

    def pause_writing(self) -> None:
        """The socket is full."""
        self.out.pause()

    def resume_writing(self) -> None:
        """The socket has room again."""
        self.out.resume()

    # contract.GrpcConnection

    def go_away(self) -> None:
        """Begin a two-phase GOAWAY. Idempotent."""
        if not self.closing:
            self._do(self.farewell.begin(self.shared.loop.time()))

    # For the timer

    def check(self, now: float) -> float | None:
        """Do what time has made due."""
        if self.closing:
            self._transport.abort()
            return None
        step = self.farewell.check(now, self.open_streams)
        self._do(step)
        if step is Step.CLOSE:
            return None
        if now >= self.liveness.due and not self._feel_pulse(now):
            return None
        return min(self.liveness.due, self.farewell.due)

    def rearm(self) -> None:
        """Tell the timer about a due time that may have come nearer."""
        self.shared.timers.at(min(self.liveness.due, self.farewell.due), self)

    # For frames and streams

    def headers_frame(self, stream_id: int, block: bytes, flags: int = 0) -> bytes:
        """A HEADERS frame with a block of `replies`."""
        if self._size_update:
            self._size_update = False
            block = replies.TABLE_SIZE_ZERO + block
        return frames.frame(frames.HEADERS, frames.FLAG_END_HEADERS | flags, stream_id, block)

    def table_changed(self, size: int) -> None:
        """The peer's decoder has another table size: a smaller one wants a size update."""
        if size < self.peer_table:
            self._size_update = True
        self.peer_table = size

    def round_trip(self) -> None:
        """The PING after our first GOAWAY was answered."""
        self._do(self.farewell.round_trip(self.shared.loop.time(), self.open_streams))

    def opened(self, stream: Stream) -> None:
        """A new stream."""
        self.streams[stream.stream_id] = stream
        self.shared.unused.pop(self, None)
        self.shared.streams_held += 1
        self.open_streams += 1
        self.shared.counters.streams_open += 1

    def settled(self) -> None:
        """A stream's end was written, or it died."""
        self.open_streams -= 1
        self.shared.counters.streams_open -= 1
        if not self.open_streams and self.farewell.final:
            self.farewell.emptied(self.shared.loop.time())
            self.rearm()

    def forget(self, stream_id: int) -> None:
        """Both sides have closed it."""
        if self.streams.pop(stream_id, None) is not None:
            self.shared.streams_held -= 1
            self.closed_ids.append(stream_id)

    def reset(self, stream_id: int, code: ErrorCode) -> None:
        """End a stream by RST_STREAM; if it is closed already, do nothing.

        Raises:
            ConnectionFault: for a peer's fault alone: there were too many of them.
        """
        stream = self.streams.get(stream_id)
        if stream is None:
            return
        answered = stream.answered
        self.forget(stream_id)
        self.refuse(stream_id, code)
        stream.kill()
        if code in _FAULTS and not answered:
            self.unanswered_resets.hit()

    def refuse(self, stream_id: int, code: ErrorCode) -> None:
        """RST_STREAM for a stream that we hold nothing of."""
        self.reset_ids.append(stream_id)
        self.out.put(frames.rst_stream(stream_id, code))

    def overflowed(self, stream_id: int) -> None:
        """A stream holds more answers than its bound. The reset comes after the handler is done."""
        self.shared.counters.send_overflows += 1
        self.shared.counters.hit(Bound.STREAM_SEND)
        self.shared.loop.call_soon(self.reset, stream_id, ErrorCode.ENHANCE_YOUR_CALM)

    def check_overfull(self) -> None:
        """End the connection, soon, if the peer makes us hold too much; or, if all peers together
        do, the connection that holds most."""
        if self.closing:
            return
        self.out.note_buffer()
        if self.out.overfull():
            self.shared.loop.call_soon(self.cut_off, Bound.CONNECTION_SEND)
            return
        unsent = self.shared.unsent
        if unsent.held > unsent.limit and not unsent.relieving:
            unsent.relieving = True
            fullest = max(self.shared.connections, key=lambda each: each.out.held)
            self.shared.loop.call_soon(fullest.cut_off, Bound.SEND)

    def cut_off(self, bound: Bound) -> None:
        """End the connection because its peer does not read what we answer."""
        self.shared.unsent.relieving = False
        if not self.closing:
            self.shared.counters.send_overflows += 1
            reason = "answers are not being read"
            self.fail(ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, reason, bound))

    def fail(self, fault: ConnectionFault) -> None:
        """Say why, and close."""
        if self.closing:
            return
        counts = self.shared.counters.connection_faults
        counts[fault.code.name] = counts.get(fault.code.name, 0) + 1
        self.shared.counters.hit(fault.bound)
        self.shared.warn.log(
            logging.INFO,
            "connection fault",
            key=fault.code.name,
            extra={"peer": self.peer, "code": fault.code.name, "reason": str(fault)},
        )
        if not isinstance(fault, PrefaceFault):
            self.out.put(frames.goaway(self.last_id, fault.code, str(fault)))
        self.shut()

    def shut(self) -> None:
        """Close after what was put is written; a peer that does not read is cut off later."""
        if self.closing:
            return
        self.closing = True
        self._kill_streams()
        self.out.flush()
        self.out.close()
        self._transport.close()
        self.shared.timers.at(
            self.shared.loop.time() + self.shared.limits.keepalive_timeout_seconds, self
        )

    def abort(self) -> None:
        """Close at once; what is not written is lost."""
        self.closing = True
        self._kill_streams()
        self.out.close()
        self._transport.abort()

    # Inside

    def _do(self, step: Step) -> None:
        if step is Step.ANNOUNCE:
            self.out.put(frames.goaway(frames.MAX_STREAM_ID, ErrorCode.NO_ERROR))
            self.out.put(frames.ping(frames.GOAWAY_PING))
        elif step is Step.FINISH:
            self.out.put(frames.goaway(self.last_id, ErrorCode.NO_ERROR))
        elif step is Step.CLOSE:
            self.shut()
            return
        else:
            return
        self.rearm()

    def _feel_pulse(self, now: float) -> bool:
        """Whether the connection lives on."""
        pulse = self.liveness.check(now)
        if pulse is Pulse.DEAD:
            self.shared.warn.log(logging.INFO, "peer is silent", extra={"peer": self.peer})
            greeted = self.liveness.greeted
            bound = Bound.KEEPALIVE if greeted else Bound.PREFACE
            self.shared.counters.connections_dead += 1
            self.shared.counters.hit(bound)
            self.abort()
            return False
        if pulse is Pulse.ASK:
            self.out.put(frames.ping(frames.KEEPALIVE_PING))
        else:
            self.round += 1
            self._sweep()
        return True

    def _sweep(self) -> None:
        """Reset what the client still has half open a whole round after our end."""
        stale = [
            stream
            for stream in self.streams.values()
            if stream.state == ENDED and stream.ended_round < self.round - 1
        ]
        for stream in stale:
            self.reset(stream.stream_id, ErrorCode.NO_ERROR)

    def _kill_streams(self) -> None:
        doomed = list(self.streams.values())
        self.streams.clear()
        self.shared.streams_held -= len(doomed)
        for stream in doomed[_KILLED_PER_TURN:]:
            self.out.hold(-stream.queued)
            stream.queued = 0
        self._kill(doomed)

    def _kill(self, doomed: list[Stream]) -> None:
        """A connection may have thousands of streams, whose ends take 40 us each."""
        for stream in doomed[:_KILLED_PER_TURN]:
            stream.kill()
        rest = doomed[_KILLED_PER_TURN:]
        if rest:
            self.shared.loop.call_soon(self._kill, rest)


def _host_port(address: object) -> str:
    if not isinstance(address, tuple) or len(address) < 2:
        return ""
    return host_port(str(address[0]), address[1])
