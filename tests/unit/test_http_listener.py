"""An HTTP listener keeps its bounds, lets newcomers in, and repeats nothing that a peer said."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from fleet.http_listener import HttpListener, listen_http
from fleet.listening import ACCEPTED_PER_TURN

DEADLINE = 5.0
REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


async def hello(_: web.Request) -> web.Response:
    """Answer."""
    return web.Response(text="hello")


@pytest.fixture
async def listener() -> AsyncIterator[HttpListener]:
    """A listener that holds four connections."""
    app = web.Application()
    app.router.add_get("/", hello)
    listener = await listen_http(app, "127.0.0.1", 0, max_connections=4)
    yield listener
    await listener.close()


class Peer:
    """A connection by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, port: int) -> "Peer":
        """Open it."""
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def ask(self, request: bytes) -> bytes:
        """What comes back; empty if the connection was closed."""
        self._writer.write(request)
        try:
            async with asyncio.timeout(DEADLINE):
                return await self._reader.read(1000)
        except ConnectionError:
            return b""

    def close(self) -> None:
        """Close it."""
        self._writer.close()


async def test_idle_connections_lock_nobody_out(listener: HttpListener) -> None:
    """The oldest connection goes when there are too many; the newest is served."""
    peers = []
    for _ in range(10):
        peers.append(await Peer.connect(listener.port))
        assert b"hello" in await peers[-1].ask(REQUEST)
    alive = [bool(await peer.ask(REQUEST)) for peer in peers]
    assert alive == [False] * 6 + [True] * 4
    for peer in peers:
        peer.close()


async def test_a_burst_of_connections_is_bounded_too(listener: HttpListener) -> None:
    """All that come in one turn of the loop push out as many; only those that came with the last
    one may be too many for a moment."""
    burst = [socket.create_connection(("127.0.0.1", listener.port), 5) for _ in range(100)]
    peer = await Peer.connect(listener.port)
    assert b"hello" in await peer.ask(REQUEST)
    for one in burst:
        one.setblocking(False)
    left = sum(map(is_open, burst))
    peer.close()
    for one in burst:
        one.close()
    assert left <= 4 + ACCEPTED_PER_TURN


def is_open(one: socket.socket) -> bool:
    """Whether the other side has not closed it."""
    try:
        return bool(one.recv(1))
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


async def test_a_malformed_request_is_not_quoted(
    listener: HttpListener, caplog: pytest.LogCaptureFixture
) -> None:
    """A token in a header that is no header must not reach the log, nor a traceback each time."""
    caplog.set_level(logging.DEBUG)
    for _ in range(3):
        peer = await Peer.connect(listener.port)
        answer = await peer.ask(
            b"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer s3cret\0\r\n\r\n"
        )
        assert answer.startswith(b"HTTP/1.0 400 ")
        peer.close()
    told = [record for record in caplog.records if record.name != "asyncio"]
    assert [record.getMessage() for record in told] in ([], ["malformed HTTP request"])
    assert "s3cret" not in caplog.text
    assert "Traceback" not in caplog.text


async def test_a_faulty_handler_is_still_told_of(caplog: pytest.LogCaptureFixture) -> None:
    """Only what peers get wrong is kept short."""

    async def broken(_: web.Request) -> web.Response:
        raise RuntimeError("our own fault")

    app = web.Application()
    app.router.add_get("/", broken)
    listener = await listen_http(app, "127.0.0.1", 0)
    peer = await Peer.connect(listener.port)
    assert (await peer.ask(REQUEST)).startswith(b"HTTP/1.1 500 ")
    peer.close()
    await listener.close()
    assert "our own fault" in caplog.text


async def test_a_taken_port_is_an_error_and_closing_twice_is_not(listener: HttpListener) -> None:
    """Nothing is left half open."""
    with pytest.raises(OSError):
        await listen_http(web.Application(), "127.0.0.1", listener.port)
    await listener.close()
    await listener.close()
