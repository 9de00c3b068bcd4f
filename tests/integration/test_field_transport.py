"""What went wrong in the transports of others: streams without number, large bodies, GOAWAY."""

import asyncio
from pathlib import Path

import pytest

from epp_worker.http2 import Http2Limits, Http2Server
from tests.http2_peer import Client, Recording, Wire, exchange, grpc
from tests.http2_tls import Authority, started
from tests.integration.test_http2_grpcio import begin, channel_to, echo, until

MIB = 1024 * 1024


def test_three_thousand_streams_stay_open_on_one_connection() -> None:
    """llm-d/llm-d#1582, envoyproxy/ai-gateway#1884: an ext_proc stream lives as long as its
    request, so a gateway's thread holds thousands; none is refused, and the bound is announced."""
    wire, client = Wire(), Client()
    exchange(wire, client)
    assert client.h2.remote_settings.max_concurrent_streams == 4096
    ids = [client.open() for _ in range(3000)]
    exchange(wire, client)
    assert wire.counters.streams_open == 3000
    assert wire.counters.streams_refused == 0
    for stream_id in ids:
        client.send(stream_id, b"x", end=True)
    exchange(wire, client)
    assert {client.answers[stream_id].status for stream_id in ids} == {0}


@pytest.mark.parametrize("secure", [False, True], ids=["plaintext", "tls"])
async def test_a_large_body_keeps_nobody_waiting(tmp_path: Path, secure: bool) -> None:
    """envoyproxy/ai-gateway#1428, envoyproxy/envoy#41090: while 10 MiB bodies arrive, one after
    another, small calls on another connection go on; a gateway waits 200 ms for each message."""
    authority = Authority(tmp_path)
    server = await started(
        Recording(), authority.tls(), Http2Limits(max_message_bytes=12 * MIB, farewell_seconds=0.05)
    )

    large, small = (authority.channel(server.port) if secure else channel_to(server) for _ in "ab")
    async with large, small:
        await echo(small, b"x")
        upload = asyncio.create_task(echo(large, *[bytes(10 * MIB)] * 3))
        answered = 0
        while not upload.done():
            assert await echo(small, b"x") == [b"x"]
            answered += 1
        assert [len(each) for each in await upload] == [10 * MIB] * 3
    assert answered >= 5
    await server.close(5)


async def test_a_connection_moves_when_it_is_told_to(tmp_path: Path) -> None:
    """aws/aws-app-mesh-controller-for-k8s#427, envoyproxy/envoy#1855, #35083: connections stick to
    one replica for ever behind a ClusterIP; a GOAWAY moves each, and calls in between succeed."""
    authority = Authority(tmp_path)
    server = await started(Recording(), authority.tls())
    async with authority.channel(server.port) as channel:
        for moves in range(1, 4):
            assert await echo(channel, b"x") == [b"x"]
            assert server.counters.connections_total == moves
            server.go_away_all()
            await until(lambda: server.counters.connections_open == 0)
    await server.close(1)


def test_a_body_in_many_pieces_is_held_once() -> None:
    """llm-d/llm-d-router#1110, #1342: 220 kB prompts in 16 KiB chunks; nothing grows with the
    number of chunks, and nothing is left over."""
    wire, client = Wire(), Client()
    exchange(wire, client)
    message = bytes(220_000)
    data = grpc(message)
    for _ in range(20):
        stream_id = client.open()
        peak = 0
        for at in range(0, len(data), 16_384):
            client.h2.send_data(stream_id, data[at : at + 16_384])
            wire.feed(client.out())
            peak = max(peak, wire.shared.budget.held)
        assert len(data) - 16_384 <= peak <= len(data)
        assert wire.shared.budget.held == 0
        assert wire.service.last.messages == [message]
        client.h2.reset_stream(stream_id)
        exchange(wire, client)


async def test_two_hundred_cancelled_calls_leave_nothing_behind(tmp_path: Path) -> None:
    """grpc/grpc#43360, #25449: streams that clients cancel, before and after an answer."""
    authority = Authority(tmp_path)
    service = Recording()
    server: Http2Server = await started(service, authority.tls())
    async with authority.channel(server.port) as channel:
        for number in range(200):
            call = begin(channel)
            await call.write(b"x")
            if number % 2:
                assert await call.read() == b"x"
            call.cancel()
        await until(lambda: server.counters.streams_open == 0)
        await until(lambda: sum(one.aborts for one in service.handlers) == len(service.handlers))
    assert server.counters.connections_total == 1
    await server.close(1)
