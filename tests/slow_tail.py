"""A TCP proxy that lets the last of an HTTP/2 server's words to some streams arrive late.

The last DATA frame of such a stream and its trailers come together, after everything else: as on a
network that is slow, or loses a packet, just then. The frames of other streams overtake them, which
is lawful as long as the server's header blocks do not rest on one another (no dynamic table).
"""

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

_DATA, _HEADERS, _END = 0, 1, 1
_PATIENCE_SECONDS = 0.02
"""A DATA frame after which nothing comes for so long was not the last one."""


class _Frames:
    """One connection's way from the server to its client."""

    def __init__(self, writer: asyncio.StreamWriter, delay: Callable[[], float]) -> None:
        self._writer = writer
        self._delay = delay
        self._rest = b""
        self._held: dict[int, bytes] = {}
        self._loop = asyncio.get_running_loop()

    def feed(self, data: bytes) -> None:
        """Pass whole frames on, or hold them."""
        data = self._rest + data
        at = 0
        while len(data) - at >= 9:
            size = int.from_bytes(data[at : at + 3])
            if len(data) - at < 9 + size:
                break
            kind, flags = data[at + 3], data[at + 4]
            (stream,) = struct.unpack_from(">I", data, at + 5)
            self._frame(kind, flags, stream, data[at : at + 9 + size])
            at += 9 + size
        self._rest = data[at:]

    def _frame(self, kind: int, flags: int, stream: int, frame: bytes) -> None:
        if kind == _DATA:
            self._release(stream)
            self._held[stream] = frame
            self._loop.call_later(_PATIENCE_SECONDS, self._let_go, stream, frame)
        elif kind == _HEADERS and flags & _END:
            last = self._held.pop(stream, b"") + frame
            self._loop.call_later(self._delay(), self._write, last)
        else:
            self._write(frame)

    def _let_go(self, stream: int, frame: bytes) -> None:
        if self._held.get(stream) is frame:
            self._release(stream)

    def _release(self, stream: int) -> None:
        self._write(self._held.pop(stream, b""))

    def _write(self, data: bytes) -> None:
        if data and not self._writer.is_closing():
            self._writer.write(data)


@asynccontextmanager
async def slow_tail(server: str, delay: Callable[[], float]) -> AsyncIterator[str]:
    """Where to find `server` (`host:port`) with its last words late by `delay()` seconds."""
    host, _, port = server.rpartition(":")
    tasks: set[asyncio.Task[None]] = set()

    async def carry(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, feed: Callable[[bytes], None]
    ) -> None:
        try:
            while data := await reader.read(2**16):
                feed(data)
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind, out = await asyncio.open_connection(host, int(port))
        for task in (
            asyncio.create_task(carry(reader, out, out.write)),
            asyncio.create_task(carry(behind, writer, _Frames(writer, delay).feed)),
        ):
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    listener = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    finally:
        listener.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
