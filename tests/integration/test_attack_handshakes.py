"""Handshakes under attack: neither thousands that are half done nor thousands of silent connections
from one address keep a gateway at another one waiting."""

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from epp_worker.http2 import Http2Limits, Http2Server
from tests.http2_peer import Recording
from tests.http2_tls import NAME, Authority, started
from tests.integration.test_http2_grpcio import until

ATTACKER, GATEWAY = "127.0.0.2", "127.0.0.1"
PLACES = 64
HANDSHAKE_SECONDS = 60.0
"""No test waits for it: whoever is served in time was not served because somebody's time was up."""


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """A CA, and a worker's files."""
    return Authority(tmp_path)


@contextlib.asynccontextmanager
async def served(authority: Authority, limits: Http2Limits) -> AsyncIterator[Http2Server]:
    """A server that is attacked."""
    server = await started(Recording(), authority.tls(), limits)
    try:
        yield server
    finally:
        await server.close(1)


def hello(context: ssl.SSLContext) -> bytes:
    """What a client says first."""
    out = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), out, server_hostname=NAME)
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return out.read()


async def attack(server: Http2Server, said: bytes, count: int) -> list[socket.socket]:
    """Connections from one address that say this and nothing more."""
    loop = asyncio.get_running_loop()
    made = []
    for _ in range(count):
        one = socket.socket()
        one.setblocking(False)
        one.bind((ATTACKER, 0))
        await loop.sock_connect(one, ("127.0.0.1", server.port))
        await loop.sock_sendall(one, said)
        made.append(one)
    return made


async def come_back(server: Http2Server, context: ssl.SSLContext) -> float:
    """Seconds until a gateway has shaken hands and heard the server's SETTINGS."""
    began = time.monotonic()
    async with asyncio.timeout(HANDSHAKE_SECONDS / 4):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1",
            server.port,
            ssl=context,
            server_hostname=NAME,
            local_addr=(GATEWAY, 0),
        )
        assert (await reader.readexactly(9))[3] == 4
    writer.transport.abort()
    return time.monotonic() - began


async def test_handshakes_that_do_not_go_on_keep_no_other_address_out(
    authority: Authority,
) -> None:
    """All places are taken, and ten times as many wait for one: a gateway elsewhere is served at
    once, again and again; each time the attacker's oldest gives way, and nobody else."""
    limits = Http2Limits(max_handshakes=PLACES, handshake_seconds=HANDSHAKE_SECONDS)
    client = authority.client("h2")
    async with served(authority, limits) as server:
        held = await attack(server, hello(client), 10 * PLACES)
        await until(lambda: server.counters.connections_arriving == 0)
        for _ in range(20):
            await come_back(server, client)
        assert server.counters.tls_handshakes == 20
        assert set(server.counters.tls_failed) == {"crowded out"}
        assert server.counters.tls_failed["crowded out"] <= 20
        for one in held:
            one.close()


async def test_noise_in_handshakes_keeps_no_other_address_waiting(authority: Authority) -> None:
    """An address whose handshakes fail as fast as it can make them: the others' go on."""
    client = authority.client("h2")
    broken = hello(client) + b"\x17\x03\x03\x00\x02xx"
    async with served(authority, Http2Limits()) as server:
        calm = asyncio.Event()

        async def make_noise() -> None:
            while not calm.is_set():
                for one in await attack(server, broken, 50):
                    one.close()

        noise = asyncio.create_task(make_noise())
        await until(lambda: sum(server.counters.tls_failed.values()) > 100)
        for _ in range(20):
            await come_back(server, client)
        assert not noise.done()
        calm.set()
        await noise
        assert server.counters.tls_handshakes == 20


@pytest.mark.parametrize("part", [0, 20, None])
async def test_a_full_port_takes_whoever_comes_from_elsewhere(
    authority: Authority, part: int | None
) -> None:
    """All connections that there may be are of one address, and silent, or stuck in their hellos or
    in their handshakes: a gateway's takes the place of the oldest of them; one more of theirs is
    refused."""
    limits = Http2Limits(max_connections=PLACES, handshake_seconds=HANDSHAKE_SECONDS)
    client = authority.client("h2")
    async with served(authority, limits) as server:
        held = await attack(server, hello(client)[:part], PLACES)
        refused = server.counters.connections_refused
        (late,) = await attack(server, b"", 1)
        await until(lambda: server.counters.connections_refused > refused)
        for _ in range(5):
            await come_back(server, client)
        assert server.counters.tls_handshakes == 5
        for one in (*held, late):
            one.close()
