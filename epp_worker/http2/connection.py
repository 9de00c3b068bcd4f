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
from epp_worker.http2.errors import ConnectionFault, ErrorCode, PrefaceFault
from epp_worker.http2.farewell import Farewell, Step
from epp_worker.http2.flood import FloodGuard
from epp_worker.http2.flow import Outbox, ReceiveWindow
from epp_worker.http2.headers import HeadDecoder
from epp_worker.http2.liveness import Liveness, Pulse
from epp_worker.http2.shared import Shared
from epp_worker.http2.stream import ENDED, Stream
from epp_worker.http2.timers import Ticket

_REMEMBERED: Final = 128
"""Ids of streams closed last, to tell a late frame from a wrong one."""

_TURN_SECONDS: Final = 0.003
"""All connections that have more to do work this long, together, in one turn of the loop; what they
have read beyond waits for the next turn, after everybody else's. One read of 256 KiB may hold
37,000 messages: 0.4 s of work."""

_LEAST_SECONDS: Final = 0.0005
"""But each at least this long: changing from one to the next costs something too."""

_NOTHING: Final = (b"", 0)

_LONG_FRAME: Final = 64
"""Bytes of a frame after which the clock is read; after shorter ones, only now and then."""


class Connection(asyncio.Protocol):
    """See `contract.GrpcConnection`; all the rest is for the room itself.

    Attributes:
        out: the way out.
        streams: every stream that either side has not closed yet.
        open_streams: those whose end we have not written yet.
        round: grows with every liveness check; ages streams that the client leaves half open.
        closing: nothing more is read or answered.
        again: a frame to be read before anything else, in the next turn.
    """

    __slots__ = (
        "_have",
        "_later",
        "_need",
        "_pieces",
        "_preface_seen",
        "_resting",
        "_size_update",
        "_transport",
        "again",
        "block",
        "closed_ids",
        "closing",
        "decoder",
        "farewell",
        "idle_frames",
        "initial_window",
        "last_id",
        "liveness",
        "open_streams",
        "out",
        "peer",
        "peer_table",
        "receive",
        "reset_ids",
        "round",
        "shared",
        "streams",
        "table",
        "ticket",
        "unanswered_resets",
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
        self.block: inbound.OpenBlock | None = None
        self.closed_ids: deque[int] = deque(maxlen=_REMEMBERED)
        self.reset_ids: deque[int] = deque(maxlen=_REMEMBERED)
        self.decoder = HeadDecoder(shared.heads, limits.max_header_list_bytes)
        self.receive = ReceiveWindow(limits.connection_window)
        self.initial_window = frames.DEFAULT_WINDOW
        self.peer_table = frames.DEFAULT_TABLE_SIZE
        self.farewell = Farewell(limits)
        self.liveness = Liveness(limits, now())
        window = limits.flood_window
        self.idle_frames = FloodGuard("idle frames", limits.max_idle_frames, window, now)
        self.unanswered_resets = FloodGuard(
            "resets of unanswered streams", limits.max_unanswered_resets, window, now
        )
        self._size_update = True
        self._preface_seen = False
        self.again = b""
        self._later = _NOTHING
        self._resting = False
        self._pieces: list[bytes] = []
        self._have = 0
        self._need = 0

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say our SETTINGS, unless the server is full."""
        self._transport = cast(asyncio.Transport, transport)
        limits = self.shared.limits
        shared = self.shared
        limit = limits.max_connection_send_bytes
        self.out = Outbox(self._transport, shared.loop, limit, shared.unsent)
        self.peer = _host_port(transport.get_extra_info("peername"))
        full = len(self.shared.connections) >= limits.max_connections
        self.shared.joined(self)
        if full:
            self.shared.counters.connections_refused += 1
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
        if self._resting:  # a transport may have had this read under way when we paused it
            self._pieces.append(data)
            return
        if self._pieces:
            self._pieces.append(data)
            self._have += len(data)
            if self._have < self._need:
                return
            data = b"".join(self._pieces)
            self._pieces.clear()
        self._work(data)

    def _work(self, data: bytes, at: int = 0) -> None:
        out = self.out
        out.due = True  # what this read makes us say leaves with the flush below
        try:
            self._read(data, at)
        except ConnectionFault as fault:
            self.fail(fault)
        else:
            out.flush()
            if out.paused:
                self.check_overfull()

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

    def forget(self, stream: Stream) -> None:
        """Both sides have closed it."""
        if self.streams.pop(stream.stream_id, None) is not None:
            self.shared.streams_held -= 1
            self.closed_ids.append(stream.stream_id)

    def reset(self, stream: Stream, code: ErrorCode) -> None:
        """End a stream by RST_STREAM; if it is closed already, do nothing."""
        if self.streams.get(stream.stream_id) is stream:
            self.forget(stream)
            self.refuse(stream.stream_id, code)
            stream.kill()

    def refuse(self, stream_id: int, code: ErrorCode) -> None:
        """RST_STREAM for a stream that we hold nothing of."""
        self.reset_ids.append(stream_id)
        self.out.put(frames.rst_stream(stream_id, code))

    def overflowed(self, stream: Stream) -> None:
        """A stream holds more answers than its bound. The reset comes after the handler is done."""
        self.shared.counters.send_overflows += 1
        self.shared.loop.call_soon(self.reset, stream, ErrorCode.ENHANCE_YOUR_CALM)

    def check_overfull(self) -> None:
        """End the connection, soon, if the peer makes us hold too much; or, if all peers together
        do, the connection that holds most."""
        if self.closing:
            return
        self.out.note_buffer()
        if self.out.overfull():
            self.shared.loop.call_soon(self.cut_off)
            return
        unsent = self.shared.unsent
        if unsent.held > unsent.limit and not unsent.relieving:
            unsent.relieving = True
            fullest = max(self.shared.connections, key=lambda each: each.out.held)
            self.shared.loop.call_soon(fullest.cut_off)

    def cut_off(self) -> None:
        """End the connection because its peer does not read what we answer."""
        self.shared.unsent.relieving = False
        if not self.closing:
            self.shared.counters.send_overflows += 1
            self.fail(ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "answers are not being read"))

    def fail(self, fault: ConnectionFault) -> None:
        """Say why, and close."""
        if self.closing:
            return
        counts = self.shared.counters.connection_faults
        counts[fault.code.name] = counts.get(fault.code.name, 0) + 1
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

    def _read(self, data: bytes, at: int) -> None:
        end = len(data)
        if not self._preface_seen:
            at = self._read_preface(data)
            if not at:
                return
        need = frames.HEAD_BYTES
        now = self.shared.loop.time
        until = now() + max(_TURN_SECONDS / (1 + self.shared.resting), _LEAST_SECONDS)
        walked = 0
        while end - at >= frames.HEAD_BYTES:
            high, low, kind, flags, stream_id = frames.read_head(data, at)
            size = high << 16 | low
            if size > frames.MIN_MAX_FRAME:
                raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, f"frame of {size} bytes")
            start = at + frames.HEAD_BYTES
            stop = start + size
            if stop > end:
                need = stop - at
                break
            at = stop
            self.table[kind](self, flags, stream_id & frames.MAX_STREAM_ID, data, start, stop)
            walked += 1
            if self.again:
                again, self.again = self.again, b""
                self._rest(again + data[at:], 0)
                return
            if (size >= _LONG_FRAME or not walked & 15) and at < end and now() >= until:
                self._rest(data, at)
                return
        if at < end:
            self._keep(data[at:], need)

    def _read_preface(self, data: bytes) -> int:
        """Where frames begin; 0 if the preface is not complete."""
        size = len(frames.PREFACE)
        if data[:size] != frames.PREFACE[: len(data)]:
            raise PrefaceFault
        if len(data) < size:
            self._keep(data, size)
            return 0
        self._preface_seen = True
        return size

    def _keep(self, rest: bytes, need: int) -> None:
        """Hold what is no whole frame yet; nothing is looked at before `need` bytes are here."""
        self._pieces.append(rest)
        self._have = len(rest)
        self._need = need

    def _rest(self, data: bytes, at: int) -> None:
        """Let all others have their turn before the rest of what was read, data[at:]."""
        self._later = (data, at)
        self._resting = True
        self.shared.resting += 1
        self._transport.pause_reading()
        self.shared.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self.shared.resting -= 1
        if self.closing:
            return
        (data, at), self._later = self._later, _NOTHING
        if self._pieces:
            data, at = b"".join((data[at:], *self._pieces)), 0
            self._pieces.clear()
        self._resting = False
        self._work(data, at)
        if not self._resting and not self.closing:
            self._transport.resume_reading()

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
            self.shared.counters.connections_dead += 1
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
            self.reset(stream, ErrorCode.NO_ERROR)

    def _kill_streams(self) -> None:
        streams = list(self.streams.values())
        self.streams.clear()
        self.shared.streams_held -= len(streams)
        for stream in streams:
            stream.kill()


def _host_port(address: object) -> str:
    if not isinstance(address, tuple) or len(address) < 2:
        return ""
    host, port = str(address[0]), address[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
