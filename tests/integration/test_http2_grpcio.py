"""The transport against a stock grpcio client."""

from collections.abc import AsyncIterator

import grpc
import grpc.aio
import pytest

from epp_worker.http2 import Http2Limits, Http2Server
from tests.http2_peer import ECHO, Recording

LARGE = 5 * 1024 * 1024
OPTIONS = (
    ("grpc.max_receive_message_length", 2 * LARGE),
    ("grpc.max_send_message_length", 2 * LARGE),
    ("grpc.use_local_subchannel_pool", 1),
)


@pytest.fixture
async def service() -> Recording:
    """The echo service."""
    return Recording()


@pytest.fixture
async def server(service: Recording) -> AsyncIterator[Http2Server]:
    """A server on a free port."""
    server = Http2Server({ECHO: service}, limits=Http2Limits())
    await server.start("127.0.0.1", 0)
    yield server
    await server.close(5)


def _same(message: bytes) -> bytes:
    return message


def channel_to(server: Http2Server, *options: tuple[str, str | int]) -> grpc.aio.Channel:
    """A channel of its own connection."""
    return grpc.aio.insecure_channel(f"127.0.0.1:{server.port}", options=[*OPTIONS, *options])


async def echo(channel: grpc.aio.Channel, *messages: bytes) -> list[bytes]:
    """Send all, half-close, and what came back."""
    call = channel.stream_stream(ECHO, _same, _same)(iter(messages))
    return [message async for message in call]


async def test_echoes_and_ends_when_the_client_half_closes(server: Http2Server) -> None:
    """A plain call: all messages back, status OK."""
    async with channel_to(server) as channel:
        assert await echo(channel, b"one", b"", b"three") == [b"one", b"", b"three"]
    assert server.counters.streams_total[0] == 1
