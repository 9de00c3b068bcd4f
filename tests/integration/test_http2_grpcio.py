"""The transport against a stock grpcio client, over sockets."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import grpc
import grpc.aio
import pytest

from epp_worker.http2 import Http2Limits, Http2Server, ListenError
from epp_worker.http2.connection import Connection
from epp_worker.http2.contract import GrpcConnection, GrpcStream, StreamHandler
from tests.http2_peer import ECHO, Recorder, Recording
from tests.ports import free_port

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
    server = Http2Server({ECHO: service}, limits=Http2Limits(farewell_seconds=0.05))
    await server.start("127.0.0.1", 0)
    yield server
    await server.close(5)
    assert server.counters.connections_open == 0
    assert server.counters.streams_open == 0


EOF = grpc.aio.EOF  # type: ignore[attr-defined]  # the stubs lack it


def begin(
    channel: grpc.aio.Channel, path: str = ECHO, timeout: float | None = None
) -> grpc.aio.StreamStreamCall[bytes, bytes]:
    """A call to write to and read from by hand."""
    method: Any = channel.stream_stream(path, _same, _same)
    call: grpc.aio.StreamStreamCall[bytes, bytes] = method(timeout=timeout)
    return call


def _same(message: bytes) -> bytes:
    return message


def channel_to(server: Http2Server, *options: tuple[str, str | int]) -> grpc.aio.Channel:
    """A channel of its own connection."""
    return grpc.aio.insecure_channel(f"127.0.0.1:{server.port}", options=[*OPTIONS, *options])


async def echo(channel: grpc.aio.Channel, *messages: bytes) -> list[bytes]:
    """Send all, half-close, and what came back."""

    def requests() -> Iterator[bytes]:
        yield from messages

    call = channel.stream_stream(ECHO, _same, _same)(requests())
    return [message async for message in call]


async def until(condition: Callable[[], bool]) -> None:
    """Wait, for at most 20 s, until the condition holds."""
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


async def test_echoes_and_ends_when_the_client_half_closes(server: Http2Server) -> None:
    """A plain call: all messages back, status OK."""
    async with channel_to(server) as channel:
        assert await echo(channel, b"one", b"", b"three") == [b"one", b"", b"three"]
    assert server.counters.streams_total[0] == 1


@pytest.mark.parametrize(
    "authority",
    [
        "outbound|9002||epp-a.team.svc.cluster.local",
        "epp-a.team.svc:9002",
        "epp-a.team.svc.cluster.local:9002",
        "endpointpicker_pool_team_ext_proc",
        "[::1]:9002",
    ],
)
async def test_sees_the_authority_as_the_gateway_sent_it(
    server: Http2Server, service: Recording, authority: str
) -> None:
    """The forms that gateways use; also the metadata, lower-case."""
    async with channel_to(server, ("grpc.default_authority", authority)) as channel:
        call = channel.stream_stream(ECHO, _same, _same)(
            iter([b"x"]), metadata=(("x-envoy-internal", "true"),)
        )
        assert [message async for message in call] == [b"x"]
    assert service.last.stream.authority == authority
    assert service.last.stream.headers["x-envoy-internal"] == "true"
    assert service.last.stream.path == ECHO
    assert service.last.stream.connection.peer.startswith("127.0.0.1:")


async def test_large_messages_both_ways(server: Http2Server) -> None:
    """5 MiB, twice: many frames, windows of both sides, back-pressure of the socket."""
    messages = [bytes([n]) * LARGE for n in (1, 2)]
    async with channel_to(server) as channel:
        assert await echo(channel, *messages) == messages


async def test_200_calls_at_once_on_one_connection(server: Http2Server) -> None:
    """None mixed up."""
    async with channel_to(server) as channel:
        answers = await asyncio.gather(
            *(echo(channel, b"%d" % n, b"x" * n * 50) for n in range(200))
        )
    assert answers == [[b"%d" % n, b"x" * n * 50] for n in range(200)]
    assert server.counters.connections_total == 1
    assert server.counters.streams_total[0] == 200


async def test_a_cancelled_call_is_aborted_once(server: Http2Server, service: Recording) -> None:
    """RST_STREAM from a stock client."""
    async with channel_to(server) as channel:
        call = begin(channel)
        await call.write(b"x")
        assert await call.read() == b"x"
        call.cancel()
        await until(lambda: service.last.aborts == 1)
        assert await echo(channel, b"still fine") == [b"still fine"]
    assert server.counters.streams_total[1] == 1


async def test_a_call_past_its_deadline_is_aborted_once(
    server: Http2Server, service: Recording
) -> None:
    """The client gives up; the handler hears it."""
    async with channel_to(server) as channel:
        call = begin(channel, timeout=0.2)
        await call.write(b"x")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            while await call.read() is not EOF:
                pass
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await until(lambda: service.last.aborts == 1)


@pytest.mark.parametrize("after_messages", [0, 2])
async def test_a_client_sees_an_early_end_whole(
    server: Http2Server, service: Recording, after_messages: int
) -> None:
    """The server ends while the client's side is open: all messages and the status arrive, and
    the client itself closes the stream."""

    def refuse(stream: GrpcStream) -> StreamHandler:
        stream.send(*[b"m"] * after_messages)
        stream.end(14, "go elsewhere: 100 %")
        return Recorder(stream)

    service.make = refuse
    async with channel_to(server) as channel:
        for _ in range(50):
            call = begin(channel)
            seen = []
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                async for message in call:
                    seen.append(message)
            assert seen == [b"m"] * after_messages
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            assert caught.value.details() == "go elsewhere: 100 %"
        assert server.counters.streams_open == 0


async def test_unknown_methods_and_broken_handlers_give_their_status(
    server: Http2Server, service: Recording
) -> None:
    """UNIMPLEMENTED, INTERNAL; the connection survives both."""

    def broken(stream: GrpcStream) -> StreamHandler:
        raise RuntimeError("no")

    async with channel_to(server) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as unknown:
            await begin(channel, "/no.Such/Method").read()
        service.make = broken
        with pytest.raises(grpc.aio.AioRpcError) as internal:
            await begin(channel).read()
        service.make = None
        assert await echo(channel, b"x") == [b"x"]
    assert unknown.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert internal.value.code() is grpc.StatusCode.INTERNAL
    assert server.counters.connections_total == 1


async def test_gzip_is_taken_and_other_encodings_are_refused_in_words(server: Http2Server) -> None:
    """Deflate: UNIMPLEMENTED with what is taken instead, not a broken stream."""
    async with grpc.aio.insecure_channel(
        f"127.0.0.1:{server.port}", compression=grpc.Compression.Gzip
    ) as channel:
        assert await echo(channel, b"x" * 100_000, b"y") == [b"x" * 100_000, b"y"]
    async with grpc.aio.insecure_channel(
        f"127.0.0.1:{server.port}", compression=grpc.Compression.Deflate
    ) as channel:
        call = begin(channel)  # the headers alone: grpcio ends a call whose write comes too late
        assert await call.code() is grpc.StatusCode.UNIMPLEMENTED
        assert await call.details() == "grpc-encoding deflate is none of identity, gzip"


async def test_goaway_during_traffic_loses_no_call(server: Http2Server) -> None:
    """Callers that never pause, every connection sent away again and again: nobody fails, and
    the client has moved to new connections."""
    async with channel_to(server) as channel:
        stop = asyncio.Event()

        async def caller(number: int) -> int:
            done = 0
            while not stop.is_set():
                assert await echo(channel, b"%d" % number, b"x") == [b"%d" % number, b"x"]
                done += 1
            return done

        async with asyncio.TaskGroup() as group:
            callers = [group.create_task(caller(number)) for number in range(16)]
            for _ in range(8):
                await asyncio.sleep(0.1)
                server.go_away_all()
            stop.set()
        done = sum(task.result() for task in callers)
    assert done > 100
    assert server.counters.streams_total[0] == done
    assert sum(server.counters.streams_total) == done
    assert server.counters.connections_total >= 4


def _moved(connection: GrpcConnection) -> bool:
    """Whether its final GOAWAY is out, a round trip after the first."""
    assert isinstance(connection, Connection)
    return connection.farewell.final


async def test_a_call_under_way_outlives_its_connections_goaway(
    server: Http2Server, service: Recording
) -> None:
    """New calls go to a new connection; the old one serves its call to the end, then closes."""
    async with channel_to(server) as channel:
        call = begin(channel)
        await call.write(b"1")
        assert await call.read() == b"1"
        old = service.last.stream.connection
        old.go_away()
        await until(lambda: _moved(old))
        assert await echo(channel, b"new") == [b"new"]
        assert service.last.stream.connection is not old
        await call.write(b"2")
        assert await call.read() == b"2"
        await call.done_writing()
        assert await call.read() is EOF
        await until(lambda: old not in server.connections)


async def test_close_waits_for_calls_and_then_cuts(service: Recording) -> None:
    """A call that ends within the grace is whole; one that does not is cut, and aborted once."""
    server = Http2Server({ECHO: service})
    port = free_port()
    await server.start("127.0.0.1", port)
    async with channel_to(server) as channel:
        call = begin(channel)
        await call.write(b"1")
        assert await call.read() == b"1"
        closing = asyncio.create_task(server.close(5))
        await call.write(b"2")
        assert await call.read() == b"2"
        await call.done_writing()
        assert await call.read() is EOF
        await closing
    assert service.last.aborts == 0
    await server.start("127.0.0.1", port)
    async with channel_to(server) as channel:
        call = begin(channel)
        await call.write(b"1")
        assert await call.read() == b"1"
        await server.close(0.05)
        assert service.last.aborts == 1
    assert server.connections == ()
    assert server.port == 0


async def test_a_taken_port_is_named_with_a_remedy(server: Http2Server) -> None:
    """EADDRINUSE in words."""
    with pytest.raises(ListenError, match=rf"port {server.port} on 127.0.0.1 is in use"):
        await Http2Server({}).start("127.0.0.1", server.port)
