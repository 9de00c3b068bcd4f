"""One gRPC call: messages out of DATA, answers into DATA, and how it may end.

A call goes open -> ending (the handler ended it, answers may still wait for windows) -> ended
(END_STREAM written) or, from anywhere, dead (reset by either side, or the connection is gone).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from epp_worker.http2 import frames, replies, statuses
from epp_worker.http2.bounds import Bound
from epp_worker.http2.carrier import Carrier
from epp_worker.http2.contract import Service, StreamHandler
from epp_worker.http2.errors import ErrorCode
from epp_worker.http2.flow import ReceiveWindow, Sender
from epp_worker.http2.headers import RequestHead
from epp_worker.http2.messages import Assembler, MessageFault, data_frame
from epp_worker.http2.queue import SendQueue

OPEN: Final = 0
ENDING: Final = 1
ENDED: Final = 2
DEAD: Final = 3

_MESSAGES_PER_TURN: Final = 128
"""Of one DATA frame; it may hold 3,276 empty ones, whose handling takes 20 ms."""

_INFLATED_PER_TURN: Final = 1024 * 1024
"""Inflating a message of 16 MiB takes 50 ms: at most one of those in a turn."""

_FITS_SLACK: Final = 1024
"""`fits` is asked about message bytes; this leaves room for some 200 five-byte prefixes."""


class Stream(Sender):
    """See `contract.GrpcStream`; the rest is for the connection."""

    __slots__ = (
        "_assembler",
        "_handler",
        "_headers_sent",
        "_left",
        "_on_sent",
        "_out",
        "_queue",
        "_receive",
        "_trailers",
        "connection",
        "ended_round",
        "head",
        "remote_closed",
        "state",
        "tick",
    )

    def __init__(self, connection: Carrier, stream_id: int, head: RequestHead, window: int) -> None:
        self.connection = connection
        self.stream_id = stream_id
        self.head = head
        self.window = window
        self.queued = 0
        self.in_line = False
        self.state = OPEN
        self.remote_closed = False
        self.ended_round = 0
        self.tick = 0
        self._left = head.content_length
        self._out = connection.out
        self._queue = SendQueue()
        self._trailers = b""
        self._headers_sent = False
        self._handler: StreamHandler | None = None
        self._on_sent: Callable[[], None] | None = None
        self._receive = ReceiveWindow(connection.shared.limits.stream_window)
        self._assembler = Assembler(connection.shared.budget, gzip=head.gzip)

    # What the handler sees.

    @property
    def authority(self) -> str:
        """`:authority` of this stream."""
        return self.head.authority

    @property
    def path(self) -> str:
        """`:path` of this stream."""
        return self.head.path

    @property
    def headers(self) -> Mapping[str, str]:
        """All other request headers."""
        return self.head.headers

    @property
    def answered(self) -> bool:
        """Whether anything was sent on this stream."""
        return self._headers_sent or self.state != OPEN

    def fits(self, size: int) -> bool:
        """Whether messages of `size` bytes would go out now, within all send windows."""
        need = size + _FITS_SLACK
        return not self.queued and need <= self.window and self._out.admits(need)

    def send(self, *messages: bytes) -> None:
        """Queue messages. On a stream that has ended or died: nothing happens."""
        self.send_all(messages)

    def send_all(self, messages: Sequence[bytes]) -> None:
        """As `send`: compiled code has a call with `*` make a list and two tuples."""
        if self.state != OPEN or not messages:
            return
        out = self._out
        if not self._headers_sent:
            self._headers_sent = True
            out.put(self.connection.headers_frame(self.stream_id, replies.RESPONSE_HEADERS))
        size = 5 * len(messages)
        for message in messages:
            size += len(message)
        if not self.queued and size <= self.window and size <= out.max_frame and out.admits(size):
            self.window -= size
            out.window -= size
            out.put(data_frame(self.stream_id, messages, size))
            return
        self._enqueue(messages, size)

    def end(self, status: int = statuses.OK, message: str = "") -> None:
        """Send trailers after all that is queued. Twice, or after death: nothing happens."""
        if self.state != OPEN:
            return
        self.state = ENDING
        self._handler = None
        self._let_go()
        self.connection.shared.counters.streams_total[status] += 1
        make = replies.trailers if self._headers_sent else replies.trailers_only
        self._headers_sent = True
        self._trailers = make(status, message)
        if not self.queued:
            self.drained()

    def when_sent(self, callback: Callable[[], None]) -> None:
        """See `GrpcStream.when_sent`."""
        self._on_sent = callback
        if not self.queued:
            self.drained()

    def hold_back(self, *, on: bool) -> None:
        """See `GrpcStream.hold_back`."""
        increment = self._receive.hold_back(on=on)
        if increment and self.state == OPEN:
            self._out.put(frames.window_update(self.stream_id, increment))

    # What the connection does.

    def begin(self, service: Service | None) -> None:
        """Hand the call to its service."""
        head = self.head
        if head.refusal is not None:
            self._refuse(head.refusal)
            return
        if service is None:
            self.end(statuses.UNIMPLEMENTED, f"unknown method {head.path}")
            return
        if head.unserved is not None:
            self.end(*head.unserved)
            return
        if head.timeout is not None:
            self.connection.shared.deadlines.add(self, head.timeout)
        try:
            handler = service(self)
        except Exception as error:  # noqa: BLE001 - a service's fault must not spread
            self._failed(error)
            return
        if self.state == OPEN:
            self._handler = handler

    def received(self, size: int, data: bytes, start: int, end: int) -> bytes:
        """DATA: `size` bytes for flow control, of which data[start:end] are content.

        Returns:
            What is to be received again in the connection's next turn, since these were many
            messages for one; nearly always nothing.
        """
        if self._left is not None:
            self._left -= end - start
            if self._left < 0:
                self.connection.reset(self.stream_id, ErrorCode.PROTOCOL_ERROR)
                return b""
        increment = self._receive.take(size)
        if increment:
            if self.state != OPEN or increment < 0:
                # A client that is still uploading long after our end is told to stop.
                overrun = self.state == OPEN
                code = ErrorCode.FLOW_CONTROL_ERROR if overrun else ErrorCode.NO_ERROR
                self.connection.reset(self.stream_id, code)
                return b""
            self._out.put(frames.window_update(self.stream_id, increment))
        if self.state != OPEN:
            return b""
        budget = self.connection.shared.budget
        if budget.held + end - start > budget.max_held:
            budget.make_room(end - start, self)
        left = self._hand_over(data, start, end)
        if self.state != OPEN:
            self._let_go()
        elif not left:
            rest = self._assembler.cut_short(end)
            self._receive.untake(len(rest))
            if self._left is not None:
                self._left += len(rest)
            return rest
        elif self._assembler.partial:
            budget.waiting.pop(self, None)
            budget.waiting[self] = None
        elif budget.waiting:
            budget.waiting.pop(self, None)
        return b""

    def _hand_over(self, data: bytes, start: int, end: int) -> int:
        """Give the handler the messages that are complete; how many more it would have taken."""
        left = _MESSAGES_PER_TURN
        whole = self._assembler.whole(data, start, end)
        try:
            if whole is not None and self._handler is not None:
                self._handler.received(whole)
                return left
            for message in self._assembler.feed(data, start, end):
                handler = self._handler
                if handler is None:
                    break
                handler.received(message)
                left -= 1
                if self._assembler.inflated >= _INFLATED_PER_TURN:
                    left = 0
                if not left:
                    break
        except MessageFault as fault:
            self.connection.shared.counters.hit(fault.bound)
            self._give_up(fault.status, str(fault))
        except Exception as error:  # noqa: BLE001 - a handler's fault must not spread
            self._failed(error)
        return left

    def starve(self) -> None:
        """See `messages.Waiting.starve`."""
        self.connection.shared.counters.hit(Bound.PARTIAL_MESSAGES)
        self._give_up(statuses.RESOURCE_EXHAUSTED, statuses.NO_ROOM)

    def expired(self) -> None:
        """See `deadlines.Expiring.expired`."""
        if self.queued:
            # What waits for the client's windows is in the way of a status.
            self.connection.reset(self.stream_id, ErrorCode.CANCEL)
        else:
            self._give_up(statuses.DEADLINE_EXCEEDED, statuses.TOO_LATE)

    def half_closed(self) -> None:
        """The client sent END_STREAM."""
        if self._left:
            self.connection.reset(self.stream_id, ErrorCode.PROTOCOL_ERROR)
            return
        self.remote_closed = True
        if self.state == ENDED:
            self.connection.forget(self.stream_id)
            return
        if self.state != OPEN:
            return
        if self._assembler.partial:
            self._give_up(statuses.INTERNAL, "the client closed in the middle of a message")
            return
        handler = self._handler
        if handler is None:
            return
        try:
            handler.half_closed()
        except Exception as error:  # noqa: BLE001 - a handler's fault must not spread
            self._failed(error)

    def kill(self) -> None:
        """Reset by either side, or the connection is gone."""
        state = self.state
        if state == DEAD:
            return
        self.state = DEAD
        self._out.hold(-self.queued)
        self.queued = 0
        self._queue.clear()
        self._on_sent = None
        self._let_go()
        if state in (OPEN, ENDING):
            self.connection.settled()
        if state == OPEN:
            self.connection.shared.counters.streams_total[statuses.CANCELLED] += 1
            self._abort_handler()

    def grant(self, increment: int) -> None:
        """The peer opens this stream's window."""
        if not increment:
            self.connection.reset(self.stream_id, ErrorCode.PROTOCOL_ERROR)
        elif self.window + increment > frames.MAX_WINDOW:
            self.connection.reset(self.stream_id, ErrorCode.FLOW_CONTROL_ERROR)
        else:
            self.window += increment
            if self.queued:
                self._out.enqueue(self)
                self._out.pump()

    def take(self, size: int) -> bytes:
        """The next `size` bytes of the queue, for one DATA frame."""
        self.queued -= size
        return self._queue.take(size)

    def drained(self) -> None:
        """Nothing is queued any more: the end follows, if it was asked for."""
        if self._on_sent is not None:
            callback, self._on_sent = self._on_sent, None
            callback()
        if self.state != ENDING:
            return
        self.state = ENDED
        end = frames.FLAG_END_STREAM
        self._out.put(
            self.connection.headers_frame(self.stream_id, self._trailers, end)
            if self._trailers
            else frames.frame(frames.DATA, end, self.stream_id)
        )
        self.connection.settled()
        if self.remote_closed:
            self.connection.forget(self.stream_id)
        else:
            self.ended_round = self.connection.round

    # Inside.

    def _let_go(self) -> None:
        """Of the message that is not complete, and of the deadline."""
        if self.tick:
            self.connection.shared.deadlines.drop(self)
        self._assembler.clear()
        waiting = self.connection.shared.budget.waiting
        if waiting:
            waiting.pop(self, None)

    def _enqueue(self, messages: Sequence[bytes], size: int) -> None:
        self._queue.add_messages(messages)
        self.queued += size
        self._out.hold(size)
        if self.queued > self.connection.shared.limits.max_stream_send_bytes:
            self.connection.overflowed(self.stream_id)
            return
        self._out.enqueue(self)
        self._out.pump()
        self.connection.check_overfull()

    def _refuse(self, refusal: replies.Refusal) -> None:
        """Answer what is no gRPC call as plain HTTP."""
        self.state = ENDING
        self.connection.shared.counters.http_refused += 1
        size = len(refusal.body)
        if not size:
            self._trailers = refusal.block
            self.drained()
            return
        self._headers_sent = True
        out = self._out
        out.put(self.connection.headers_frame(self.stream_id, refusal.block))
        self._queue.add(refusal.body)
        self.queued = size
        out.hold(size)
        out.enqueue(self)
        out.pump()

    def _give_up(self, status: int, message: str) -> None:
        handler, self._handler = self._handler, None
        self.end(status, message)
        self._handler = handler
        self._abort_handler()

    def _failed(self, error: Exception) -> None:
        self.connection.shared.handler_failed("handler failed", self.head.path, error)
        self._give_up(statuses.INTERNAL, "internal error")

    def _abort_handler(self) -> None:
        handler, self._handler = self._handler, None
        if handler is None:
            return
        try:
            handler.aborted()
        except Exception as error:  # noqa: BLE001 - a handler's fault must not spread
            self.connection.shared.handler_failed("aborted() failed", self.head.path, error)
