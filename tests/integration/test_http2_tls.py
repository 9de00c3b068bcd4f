"""TLS and plaintext on one port, over sockets and with stock clients."""

import asyncio
import logging
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import grpc.aio
import pytest

from epp_worker.http2 import Http2Limits, Http2Server
from fleet.certificates import Role
from fleet.certificates.authority import make_certificate
from tests.http2_peer import Recording
from tests.http2_tls import NAME, Authority, shake, started
from tests.integration.test_http2_grpcio import EOF, begin, channel_to, echo, until
from tests.tls_files import new_ca

LARGE = 5 * 1024 * 1024


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
    """A server that takes both."""
    server = await started(service, authority.tls())
    yield server
    await server.close(5)
    assert server.counters.connections_open == server.counters.connections_arriving == 0
    assert server.counters.streams_open == 0


async def closed(reader: asyncio.StreamReader) -> bytes:
    """What comes until the server closes, which it does within 10 s."""
    async with asyncio.timeout(10):
        try:
            return await reader.read()
        except (ConnectionResetError, ssl.SSLError):
            return b""


async def test_one_port_takes_both(server: Http2Server, authority: Authority) -> None:
    """At the same time, with the same answers."""
    async with authority.channel(server.port) as secure, channel_to(server) as plain:
        assert await echo(secure, b"a", b"b") == await echo(plain, b"a", b"b") == [b"a", b"b"]
    assert server.counters.tls_handshakes == 1
    assert server.counters.connections_total == 2


async def test_large_messages_both_ways_over_tls(server: Http2Server, authority: Authority) -> None:
    """Back-pressure of the socket passes through TLS."""
    messages = [bytes([n]) * LARGE for n in (1, 2)]
    async with authority.channel(server.port) as channel:
        assert await echo(channel, *messages) == messages


async def test_a_goaway_over_tls_loses_no_call(service: Recording, authority: Authority) -> None:
    """Open calls end in their own time, then the connection closes, with nothing cut."""
    server = await started(service, authority.tls())
    async with authority.channel(server.port) as channel:
        call = begin(channel)
        await call.write(b"one")
        assert await call.read() == b"one"
        closing = asyncio.create_task(server.close(10))
        await asyncio.sleep(0)
        await call.write(b"two")
        assert await call.read() == b"two"
        await call.done_writing()
        assert await call.read() is EOF
        assert await call.code() is grpc.StatusCode.OK
        await closing
    assert server.counters.connections_open == 0


@pytest.mark.parametrize("protocols", [(), ("h2", "http/1.1")])
async def test_serves_with_h2_or_without_alpn(
    server: Http2Server, authority: Authority, protocols: tuple[str, ...]
) -> None:
    """The server's SETTINGS arrive."""
    reader, writer = await shake(server.port, authority.client(*protocols))
    assert (await reader.readexactly(9))[3] == 4
    assert writer.get_extra_info("ssl_object").version() == "TLSv1.3"
    writer.close()


async def test_refuses_a_client_that_offers_no_h2(
    server: Http2Server, authority: Authority
) -> None:
    """By the alert that is for this, before any work; counted."""
    with pytest.raises(ssl.SSLError, match=r"(?i)no.application.protocol"):
        await shake(server.port, authority.client("http/1.1"))
    assert server.counters.tls_failed == {"no h2 in ALPN": 1}


async def test_refuses_tls_1_1(server: Http2Server, authority: Authority) -> None:
    """1.2 at least."""
    old = authority.client("h2")
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning):
        old.minimum_version = ssl.TLSVersion.TLSv1
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await shake(server.port, old)
    await until(lambda: bool(server.counters.tls_failed))


async def test_takes_tls_1_2(server: Http2Server, authority: Authority) -> None:
    """With the suites that HTTP/2 allows."""
    client = authority.client("h2")
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    reader, writer = await shake(server.port, client)
    assert (await reader.readexactly(9))[3] == 4
    writer.close()


async def test_a_gateway_that_verifies_is_served_and_a_mismatch_is_logged(
    server: Http2Server, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """kubernetes-sigs/gateway-api-inference-extension#582, nginx/nginx-gateway-fabric#3841: with a
    mounted certificate CA and name hold; a gateway that trusts another CA fails at once, and the
    worker's log says so."""
    async with authority.channel(server.port) as channel:
        assert await echo(channel, b"x") == [b"x"]
    with caplog.at_level(logging.WARNING, "epp_worker.http2"):
        stranger = authority.client("h2")
        other = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        other.load_verify_locations(cadata=new_ca().certificate.decode())
        with pytest.raises(ssl.SSLCertVerificationError):
            await shake(server.port, other)
        with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
            await asyncio.open_connection(
                "127.0.0.1", server.port, ssl=stranger, server_hostname="epp.ns.svc"
            )
        await until(lambda: sum(server.counters.tls_failed.values()) == 2)
    (record,) = {r.getMessage() for r in caplog.records if r.name == "epp_worker.http2"}
    assert record == "TLS handshake failed"


async def test_plaintext_is_refused_where_tls_is_required(
    service: Recording, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """gateway-api-inference-extension#582: a plaintext gateway fails at once, with a log line."""
    server = await started(service, authority.tls("require"))
    async with channel_to(server) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await echo(channel, b"x")
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert server.counters.plaintext_refused >= 1
    assert "plaintext refused: this port wants TLS" in caplog.text
    async with authority.channel(server.port) as channel:
        assert await echo(channel, b"x") == [b"x"]
    await server.close(1)


async def test_tls_is_refused_where_it_is_off(service: Recording, authority: Authority) -> None:
    """gateway-api-inference-extension#582: a TLS gateway fails at once instead of hanging."""
    server = await started(service, None)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        async with asyncio.timeout(20):
            await shake(server.port, authority.client("h2"))
    assert server.counters.connection_faults == {"PROTOCOL_ERROR": 1}
    await server.close(1)


async def test_a_client_ca_wants_a_certificate_of_it(
    service: Recording, authority: Authority
) -> None:
    """Mutual TLS: plaintext, no certificate and another CA's are refused, its own is served."""
    server = await started(service, authority.tls(client_ca=authority.files.ca_file))
    own = make_certificate(authority.ca, Role.COORDINATOR, "default", time.time())
    foreign = make_certificate(new_ca(), Role.COORDINATOR, "default", time.time())
    for pair in (None, foreign):
        async with authority.channel(server.port, pair=pair) as channel:
            with pytest.raises(grpc.aio.AioRpcError):
                await echo(channel, b"x")
    async with channel_to(server) as channel:
        with pytest.raises(grpc.aio.AioRpcError):
            await echo(channel, b"x")
    async with authority.channel(server.port, pair=own) as channel:
        assert await echo(channel, b"x") == [b"x"]
    assert service.handlers[0].messages == [b"x"]
    await server.close(1)


async def test_a_new_certificate_is_served_without_a_dropped_stream(
    service: Recording, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Open streams go on; who connects from now on sees the new one."""
    monkeypatch.setattr("fleet.certificates.serving.LOOK_SECONDS", 0.0)
    server = await started(service, authority.tls())
    async with authority.channel(server.port) as channel:
        call = begin(channel)
        await call.write(b"before")
        assert await call.read() == b"before"
        seen = []
        for _ in range(2):
            _, writer = await shake(server.port, authority.client("h2"))
            seen.append(writer.get_extra_info("ssl_object").getpeercert(True))
            writer.close()
            authority.renew()
        await call.write(b"after")
        assert await call.read() == b"after"
        await call.done_writing()
        assert await call.code() is grpc.StatusCode.OK
    assert seen[0] != seen[1]
    await server.close(1)


@pytest.mark.parametrize("said", [b"", b"\x16\x03\x01", b"\x16\x03\x01\x02\x00\x01\x00"])
async def test_who_says_nothing_is_closed(
    service: Recording, authority: Authority, said: bytes
) -> None:
    """After `preface_seconds`, also in the middle of a hello; no handshake was begun for it."""
    limits = Http2Limits(preface_seconds=0.2)
    server = await started(service, authority.tls(), limits)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(said)
    await until(lambda: server.counters.connections_arriving == 1)
    assert await closed(reader) == b""
    assert server.counters.connections_arriving == 0
    assert server.counters.connections_dead == 1
    assert server.counters.connections_total == 0
    assert server.counters.tls_failed == {}
    writer.close()
    await server.close(1)


async def test_a_hello_in_pieces_is_as_good_as_a_whole_one(
    server: Http2Server, authority: Authority
) -> None:
    """Waited for without a spin, then served; a client that goes in the middle is forgotten."""
    out, into = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = authority.client("h2").wrap_bio(into, out, server_hostname=NAME)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    hello = out.read()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    for at in range(0, len(hello), 100):
        writer.write(hello[at : at + 100])
        await writer.drain()
        await asyncio.sleep(0.002)
    async with asyncio.timeout(10):
        while True:
            try:
                client.do_handshake()
                break
            except ssl.SSLWantReadError:
                into.write(await reader.read(65536))
        writer.write(out.read())
        await until(lambda: server.counters.tls_handshakes == 1)
    writer.close()
    _, gone = await asyncio.open_connection("127.0.0.1", server.port)
    gone.write(hello[:50])
    await until(lambda: server.counters.connections_arriving == 1)
    gone.close()
    await until(lambda: server.counters.connections_arriving == 0)


async def test_a_handshake_that_does_not_go_on_is_given_up(
    service: Recording, authority: Authority
) -> None:
    """After `handshake_seconds`; and where all slots are taken, the oldest gives way."""
    limits = Http2Limits(handshake_seconds=3.0, max_handshakes=2)
    server = await started(service, authority.tls(), limits)
    out = ssl.MemoryBIO()
    stuck = authority.client("h2").wrap_bio(ssl.MemoryBIO(), out, server_hostname=NAME)
    with pytest.raises(ssl.SSLWantReadError):
        stuck.do_handshake()
    hello, held = out.read(), []
    for _ in range(2):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(hello)
        await reader.readexactly(5)
        held.append((reader, writer))
    async with asyncio.timeout(10):
        _, served = await shake(server.port, authority.client("h2"))
    for reader, writer in held:
        await closed(reader)
        writer.close()
    failed = server.counters.tls_failed
    assert failed["crowded out"] == 1
    assert failed["timeout"] == 1
    served.close()
    await server.close(1)


async def test_many_handshakes_at_once_are_all_served(
    service: Recording, authority: Authority
) -> None:
    """Two hundred clients at one moment: more than fit at a time, none refused."""
    limits = Http2Limits(max_handshakes=16, farewell_seconds=0.05)
    server = await started(service, authority.tls(), limits)
    context = authority.client("h2")
    async with asyncio.timeout(60):
        made = await asyncio.gather(*(shake(server.port, context) for _ in range(200)))
    await until(lambda: server.counters.connections_open == 200)
    assert server.counters.tls_failed == {}
    for _, writer in made:
        writer.close()
    await server.close(5)


async def test_connections_over_the_bound_are_closed_at_the_door(
    service: Recording, authority: Authority
) -> None:
    """Also those count that have said nothing yet."""
    server = await started(service, authority.tls(), Http2Limits(max_connections=3))
    silent = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(3)]
    await until(lambda: server.counters.connections_arriving == 3)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    assert await closed(reader) == b""
    assert server.counters.connections_refused == 1
    for _, each in (*silent, (reader, writer)):
        each.close()
    await server.close(1)
