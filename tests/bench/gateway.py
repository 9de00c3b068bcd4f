"""A fast gateway for benchmarks: bytes made beforehand, one connection, many streams."""

import asyncio
import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import Self, cast

from epp_worker.http2 import frames
from epp_worker.process import PATH
from tests.attackers import literals
from tests.http2_peer import grpc, raw, request_headers
from tests.unit import extproc_messages as make

_HELLO = (
    frames.PREFACE
    + frames.settings({1: 0, 4: frames.MAX_WINDOW})
    + frames.window_update(0, frames.MAX_WINDOW - frames.DEFAULT_WINDOW)
)
_TABLE_OF_SIZE_0 = b"\x20"
"""With it, blocks need not be decoded again."""

_FRAME = 16_384
_INITIAL_WINDOW = 4

_setting = struct.Struct(">HI").unpack_from
_head = struct.Struct(">BHBBI").unpack_from


def body_of(size: int) -> bytes:
    """A chat completion of about `size` bytes."""
    return b'{"model": "m", "messages": [{"role": "user", "content": "' + b"a" * size + b'"}]}'


def request(body: bytes, *, end: bool = True) -> tuple[bytes, ...]:
    """A request's messages: headers, pieces of 64 KiB, and the end."""
    pieces = [body[at : at + 65_536] for at in range(0, len(body), 65_536)]
    messages = [make.request_headers()] + [make.request_body(piece) for piece in pieces]
    if end:
        messages.append(make.request_body(b"", end_of_stream=True))
    return tuple(messages)


class Call:
    """One stream.

    Attributes:
        first: seconds until the first answer; done: all that was asked for has come back.
    """

    __slots__ = ("began", "done", "first", "got", "over", "unsent", "want", "window")

    def __init__(
        self, want: int, window: int, began: float, over: Callable[["Call"], None] | None
    ) -> None:
        self.window = window
        self.unsent: deque[bytes] = deque()
        self.began = began
        self.want = want
        self.got = 0
        self.first: float | None = None
        self.over = over
        self.done: asyncio.Future[None] | None = None


class GatewayLink(asyncio.Protocol):
    """One connection to a worker.

    Attributes:
        failed: streams that were reset or ended without an answer.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._next = 1
        self._rest = b""
        self._owed = 0
        self._window = self._initial = frames.DEFAULT_WINDOW
        self._table_updated = False
        self._trip: asyncio.Future[None] | None = None
        self._blocks: dict[str, bytes] = {}
        self.calls: dict[int, Call] = {}
        self.failed = 0
        self.lost = False
        self.goaway: int | None = None

    @classmethod
    async def connect(cls, address: str) -> Self:
        """Connect to `host:port`, and say hello."""
        host, _, port = address.rpartition(":")
        loop = asyncio.get_running_loop()
        _, link = await loop.create_connection(cls, host, int(port))
        return link

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(_HELLO)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.lost = True
        for stream_id in tuple(self.calls):
            self._end(stream_id, good=False)
        if self._trip is not None and not self._trip.done():
            self._trip.set_exception(ConnectionError())

    def begin(
        self,
        authority: str,
        messages: Sequence[bytes],
        want: int,
        over: Callable[[Call], None] | None = None,
    ) -> int:
        """Open a stream and send messages; it is over once `want` bytes have come back."""
        stream_id = self._next
        self._next += 2
        self.calls[stream_id] = Call(want, self._initial, self._loop.time(), over)
        block = self._blocks.get(authority)
        if block is None:
            block = literals(request_headers(path=PATH, authority=authority))
            self._blocks[authority] = block
        if not self._table_updated:
            self._table_updated = True
            block = _TABLE_OF_SIZE_0 + block
        head = raw(frames.HEADERS, frames.FLAG_END_HEADERS, stream_id, block)
        self.transport.write(head)
        self.send(stream_id, grpc(*messages))
        return stream_id

    def send(self, stream_id: int, content: bytes) -> None:
        """Send on a stream as its windows open."""
        call = self.calls[stream_id]
        call.unsent.extend(content[at : at + _FRAME] for at in range(0, len(content), _FRAME))
        self._pump(stream_id, call)

    def _pump(self, stream_id: int, call: Call) -> None:
        out = []
        while call.unsent and len(call.unsent[0]) <= min(call.window, self._window):
            part = call.unsent.popleft()
            call.window -= len(part)
            self._window -= len(part)
            out.append(raw(frames.DATA, 0, stream_id, part))
        if out:
            self.transport.write(b"".join(out))

    def _granted(self, stream_id: int, increment: int) -> None:
        if stream_id:
            call = self.calls.get(stream_id)
            if call is not None:
                call.window += increment
                self._pump(stream_id, call)
            return
        self._window += increment
        for each, call in tuple(self.calls.items()):
            if call.unsent:
                self._pump(each, call)

    def _settings(self, payload: bytes) -> None:
        for at in range(0, len(payload), 6):
            name, value = _setting(payload, at)
            if name == _INITIAL_WINDOW:
                grown, self._initial = value - self._initial, value
                for each in tuple(self.calls):
                    self._granted(each, grown)

    async def pick(self, authority: str, messages: Sequence[bytes]) -> float:
        """Seconds from the request to its first answer; reset after it, as Envoy does.

        Raises:
            ConnectionError: there was none.
        """
        if self.lost:
            raise ConnectionError
        call = self.calls[self.begin(authority, messages, 1)]
        call.done = self._loop.create_future()
        async with asyncio.timeout(60):
            await call.done
        if call.first is None:
            raise ConnectionError
        return call.first

    async def round_trip(self) -> None:
        """Everything that was sent so far has been read."""
        if self.lost:
            raise ConnectionError
        self._trip = self._loop.create_future()
        self.transport.write(frames.ping(b"roundtrp"))
        async with asyncio.timeout(60):
            await self._trip

    def reset(self, stream_id: int) -> None:
        """Cancel a stream."""
        if self.calls.pop(stream_id, None) is not None:
            self.transport.write(frames.rst_stream(stream_id, 8))

    def close(self) -> None:
        """Cut the connection."""
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._rest:
            data = self._rest + data
        at, end = 0, len(data)
        while end - at >= 9:
            high, low, kind, flags, stream_id = _head(data, at)
            size = high << 16 | low
            if at + 9 + size > end:
                break
            self._frame(kind, flags, stream_id, data, at + 9, size)
            at += 9 + size
        self._rest = data[at:]
        if self._owed > 1 << 24:
            self.transport.write(frames.window_update(0, self._owed))
            self._owed = 0

    def _frame(
        self, kind: int, flags: int, stream_id: int, data: bytes, at: int, size: int
    ) -> None:
        if kind == frames.DATA:
            self._owed += size
            call = self.calls.get(stream_id)
            if call is not None:
                if call.first is None:
                    call.first = self._loop.time() - call.began
                call.got += size
                if call.got >= call.want:
                    self._end(stream_id, good=True)
        elif kind == frames.PING and not flags & frames.FLAG_ACK:
            self.transport.write(frames.ping(data[at : at + size], ack=True))
        elif kind == frames.PING and self._trip is not None and not self._trip.done():
            self._trip.set_result(None)
        elif kind == frames.WINDOW_UPDATE:
            self._granted(stream_id, int.from_bytes(data[at : at + 4], "big"))
        elif kind == frames.SETTINGS and not flags & frames.FLAG_ACK:
            self._table_updated = False
            self.transport.write(frames.SETTINGS_ACK)
            self._settings(data[at : at + size])
        elif kind == frames.GOAWAY:
            self.goaway = int.from_bytes(data[at + 4 : at + 8], "big")
        elif stream_id and (kind == frames.RST_STREAM or flags & frames.FLAG_END_STREAM):
            self._end(stream_id, good=False)

    def _end(self, stream_id: int, *, good: bool) -> None:
        call = self.calls.pop(stream_id, None)
        if call is None:
            return
        self.failed += not good
        if good:
            self.transport.write(frames.rst_stream(stream_id, 8))
        if call.done is not None and not call.done.done():
            call.done.set_result(None)
        if call.over is not None:
            call.over(call)
