"""TLS records that say nothing: changes of keys, one after the other, cost as much as calls do."""

import asyncio
import contextlib
import socket
import ssl
from typing import Any

import pytest

from epp_worker.http2.handshakes.secured import Room, Secured

DEADLINE = 20.0
IDLE_BYTES = 64 * 1024


class Records:
    """Stands for a TLS object: `worth` bytes come out of each 64 that went in."""

    def __init__(self, incoming: ssl.MemoryBIO, worth: int) -> None:
        self._incoming = incoming
        self._worth = worth
        self._left = 0

    def read(self, size: int, into: memoryview) -> int:
        self._left += len(self._incoming.read()) * self._worth // 64
        if not self._left:
            raise ssl.SSLWantReadError
        size = min(size, self._left)
        into[:size] = bytes(size)
        self._left -= size
        return size

    def unwrap(self) -> None:
        """Nothing is said."""


class Shaken:
    """A handshake that is done."""

    def __init__(self, worth: int) -> None:
        self.incoming = ssl.MemoryBIO()
        self.outgoing = ssl.MemoryBIO()
        self.unsent = b""
        self._records = Records(self.incoming, worth)

    def tls(self) -> Records:
        return self._records


class Heard(asyncio.Protocol):
    """Counts what comes."""

    def __init__(self) -> None:
        self.bytes = 0
        self.lost = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self.bytes += len(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()


async def sent(worth: int, size: int) -> tuple[Heard, int, int]:
    """Send so many bytes of records; what was heard, what the peer took, how often it was idle."""
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    idle: list[None] = []
    shaken: Any = Shaken(worth)
    heard = Heard()
    taken = 0
    with theirs:
        # A pair of sockets of the machine's own knows no TCP_NODELAY.
        link: Any = Quiet(ours)
        transport = Secured(Room(loop, 1.0, lambda: idle.append(None)), link, shaken, ("h", 1))
        transport.begin(heard)
        with contextlib.suppress(OSError):
            async with asyncio.timeout(DEADLINE):
                while taken < size:
                    piece = bytes(min(4096, size - taken))
                    await loop.sock_sendall(theirs, piece)
                    taken += len(piece)
        theirs.shutdown(socket.SHUT_WR)
        async with asyncio.timeout(DEADLINE):
            await heard.lost.wait()
    return heard, taken, len(idle)


class Quiet:
    """A socket without options."""

    def __init__(self, inner: socket.socket) -> None:
        self._inner = inner

    def setsockopt(self, *_: Any) -> None:
        """Not here."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@pytest.mark.parametrize("worth", [0, 1, 15])
async def test_records_that_say_nothing_end_the_connection(worth: int) -> None:
    """And it is counted; a byte here and there is no excuse."""
    _, taken, idle = await sent(worth, 64 * IDLE_BYTES)
    assert idle == 1
    assert taken < 64 * IDLE_BYTES


@pytest.mark.parametrize("worth", [16, 63])
async def test_small_records_are_no_such(worth: int) -> None:
    """A byte in four is what records of the smallest frames are worth."""
    heard, taken, idle = await sent(worth, 8 * IDLE_BYTES)
    assert (taken, idle) == (8 * IDLE_BYTES, 0)
    assert heard.bytes == 8 * IDLE_BYTES * worth // 64
