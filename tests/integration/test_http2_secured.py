"""Connections over TLS, byte by byte: what our transport makes of a peer that does as it likes."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from epp_worker.http2 import Http2Limits, Http2Server, frames
from tests.http2_peer import Client, Recording
from tests.http2_tls import NAME, Authority, shake, started
from tests.integration.test_http2_grpcio import until

MIB = 1024 * 1024
LARGE = 16 * MIB


@pytest.fixture
def service() -> Recording:
    """The echo service."""
    return Recording()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """A CA, and a worker's files."""
    return Authority(tmp_path)


@pytest.fixture
async def server(service: Recording, authority: Authority) -> AsyncIterator[Http2Server]:
    """A server whose connections are all gone in the end."""
    server = await started(service, authority.tls())
    yield server
    await until(lambda: server.counters.connections_open == 0)
    await server.close(5)
    assert server.held_bytes() == {"messages": 0, "unsent": 0}


class Peer:
    """A TLS client by hand: OpenSSL between two pieces of memory, and a socket.

    Attributes:
        tls: the client.
    """

    def __init__(self, context: ssl.SSLContext, session: ssl.SSLSession | None = None) -> None:
        self._into, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._into, self._out, server_hostname=NAME, session=session)

    async def connect(self, server: Http2Server, first: bytes = b"") -> None:
        """Shake hands; `first` is sent together with the end of it."""
        small = socket.socket()
        small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        small.setblocking(False)
        await asyncio.get_running_loop().sock_connect(small, ("127.0.0.1", server.port))
        self._reader, self._writer = await asyncio.open_connection(sock=small)
        while True:
            try:
                self.tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self._writer.write(self._out.read())
                self._into.write(await self._reader.read(65_536))
        self.write(first)

    def write(self, data: bytes) -> None:
        """Encrypt and send."""
        if data:
            self.tls.write(data)
        self._writer.write(self._out.read())

    def write_raw(self, data: bytes) -> None:
        """Send as it is."""
        self._writer.write(data)

    async def read(self) -> bytes:
        """What comes next; nothing at its end."""
        while True:
            try:
                return self.tls.read(65_536)
            except ssl.SSLZeroReturnError:
                return b""
            except ssl.SSLWantReadError:
                data = await self._reader.read(65_536)
                if not data:
                    return b""
                self._into.write(data)

    async def ended(self) -> bool:
        """Whether the server has closed its side of the socket, and said nothing more."""
        return await self._reader.read() == b""

    def say_bye(self) -> None:
        """close_notify."""
        with contextlib.suppress(ssl.SSLWantReadError):
            self.tls.unwrap()
        self._writer.write(self._out.read())

    def end(self) -> None:
        """A FIN, without a word."""
        self._writer.write_eof()

    def close(self) -> None:
        """Without ceremony."""
        self._writer.transport.abort()


async def calls(peer: Peer, client: Client, body: bytes) -> bytes:
    """One echo."""
    stream_id = client.open()
    client.send(stream_id, body, end=True)
    while not client.answers[stream_id].ended:
        peer.write(client.out())
        client.receive(await peer.read())
    return b"".join(client.answers[stream_id].messages)


async def test_what_comes_with_the_end_of_the_handshake_is_read(
    server: Http2Server, authority: Authority
) -> None:
    """A client sends its preface and its first call at once with its Finished."""
    client, peer = Client(), Peer(authority.client("h2"))
    stream_id = client.open()
    client.send(stream_id, b"early", end=True)
    async with asyncio.timeout(10):
        await peer.connect(server, client.out())
        while not client.answers[stream_id].ended:
            client.receive(await peer.read())
            peer.write(client.out())
    assert client.answers[stream_id].messages == [b"early"]
    peer.close()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_gateway_that_comes_back_resumes_its_session(
    server: Http2Server, authority: Authority, version: ssl.TLSVersion
) -> None:
    """With the ticket of its last connection: no certificate is sent or verified again."""
    context = authority.client("h2")
    context.minimum_version = context.maximum_version = version
    session = None
    for reused in (False, True, True):
        peer = Peer(context, session)
        async with asyncio.timeout(10):
            await peer.connect(server)
            assert await calls(peer, Client(), b"x") == b"x"
        assert peer.tls.session_reused is reused
        session = peer.tls.session
        peer.close()


async def test_a_peer_that_does_not_read_is_waited_for(
    server: Http2Server, service: Recording, authority: Authority
) -> None:
    """12 MiB of answers into a small socket: the server stops writing, and all of it arrives."""
    client, peer = Client(), Peer(authority.client("h2"))
    async with asyncio.timeout(20):
        await peer.connect(server)
        assert await calls(peer, client, b"x") == b"x"
        stream_id = client.open()
        grants = frames.window_update(0, LARGE) + frames.window_update(stream_id, LARGE)
        peer.write(client.out() + grants)
        await until(lambda: len(service.handlers) == 2)
        stream = service.handlers[1].stream
        for _ in range(192):
            stream.send(bytes(64 * 1024))
            await asyncio.sleep(0)
        await until(lambda: server.held_bytes()["unsent"] > 0)
        got = 0
        while got < 12 * MIB:
            data = await peer.read()
            assert data
            got += len(data)
    peer.close()


async def test_a_peer_that_says_good_bye_is_answered_so(
    server: Http2Server, authority: Authority
) -> None:
    """close_notify for close_notify, then the end; also a FIN alone ends the connection."""
    for leave in (Peer.say_bye, Peer.end):
        peer = Peer(authority.client("h2"))
        async with asyncio.timeout(10):
            await peer.connect(server)
            assert await calls(peer, Client(), b"x") == b"x"
            leave(peer)
            while await peer.read():
                pass
            assert await peer.ended()
        await until(lambda: server.counters.connections_open == 0)
        peer.close()


async def test_the_last_words_arrive_before_the_end(
    server: Http2Server, authority: Authority
) -> None:
    """A broken protocol is answered by GOAWAY and close_notify, whatever more the peer sends."""
    peer = Peer(authority.client("h2"))
    heard = b""
    async with asyncio.timeout(10):
        await peer.connect(server)
        peer.write(frames.PREFACE + frames.ping(b"12345678") + bytes(30_000))
        while data := await peer.read():
            heard += data
            peer.write(bytes(1_000))
    kinds = []
    while heard:
        size = int.from_bytes(heard[:3], "big")
        kinds.append(heard[3])
        heard = heard[9 + size :]
    assert kinds[-1] == frames.GOAWAY
    peer.close()


async def test_who_does_not_close_is_cut_off(service: Recording, authority: Authority) -> None:
    """After our good-bye a peer has `keepalive_timeout_seconds` for its own."""
    limits = Http2Limits(keepalive_timeout_seconds=0.2)
    server = await started(service, authority.tls(), limits)
    peer = Peer(authority.client("h2"))
    async with asyncio.timeout(10):
        await peer.connect(server)
        peer.write(b"no preface at all, but long enough")
        while await peer.read():
            pass
        await until(lambda: server.counters.connections_open == 0)
    peer.close()
    await server.close(1)


@pytest.mark.parametrize(
    "garbage", [b"\x17\x03\x03\x00\x20" + bytes(32), b"GET / HTTP/1.1\r\n\r\n"]
)
async def test_garbage_ends_the_connection_alone(
    server: Http2Server, authority: Authority, garbage: bytes
) -> None:
    """A record that nobody encrypted, or none at all."""
    good, bad = Peer(authority.client("h2")), Peer(authority.client("h2"))
    client = Client()
    async with asyncio.timeout(10):
        await good.connect(server)
        await bad.connect(server)
        assert await calls(good, client, b"x") == b"x"
        bad.write_raw(garbage)
        await until(lambda: server.counters.connections_open == 1)
        assert await calls(good, client, b"y") == b"y"
    good.close()
    bad.close()


async def test_a_reset_in_the_middle_is_the_end(server: Http2Server, authority: Authority) -> None:
    """As with plaintext: calls die, nothing is logged as a fault of ours."""
    reader, writer = await shake(server.port, authority.client("h2"))
    assert await reader.readexactly(9)
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    writer.transport.abort()
    await until(lambda: server.counters.connections_open == 0)
    assert server.counters.handler_errors == 0
