"""Other people's clients than grpcio, over plaintext and over TLS."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpclib
import pytest
from grpclib.client import Channel
from grpclib.const import Cardinality
from grpclib.encoding.base import CodecBase

from epp_worker.http2 import Http2Limits, Http2Server
from epp_worker.http2.contract import GrpcStream, StreamHandler
from tests.go_tools import GRPCURL, HEALTH_PROBE, NoTool, Tool, find
from tests.http2_peer import ECHO, Client, Recorder, Recording
from tests.http2_tls import NAME, Authority

CHECK = "/grpc.health.v1.Health/Check"
SERVING = b"\x08\x01"
PROTO = """syntax = "proto3";
package grpc.health.v1;
message HealthCheckRequest { string service = 1; }
message HealthCheckResponse {
  enum ServingStatus { UNKNOWN = 0; SERVING = 1; NOT_SERVING = 2; SERVICE_UNKNOWN = 3; }
  ServingStatus status = 1;
}
service Health { rpc Check(HealthCheckRequest) returns (HealthCheckResponse); }
"""


class Healthy(Recorder):
    """Answers a health check."""

    def received(self, message: bytes) -> None:
        """SERVING, whatever was asked."""
        del message
        self.stream.send(SERVING)


def health(stream: GrpcStream) -> StreamHandler:
    """The health service."""
    return Healthy(stream)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """A CA, and a worker's files."""
    return Authority(tmp_path)


@pytest.fixture
async def server(authority: Authority) -> AsyncIterator[Http2Server]:
    """Echo and health, on one port for plaintext and TLS."""
    limits = Http2Limits(farewell_seconds=0.05)
    server = Http2Server({ECHO: Recording(), CHECK: health}, limits=limits, tls=authority.tls())
    await server.start("127.0.0.1", 0)
    yield server
    await server.close(2)


both = pytest.mark.parametrize("secure", [False, True], ids=["plaintext", "tls"])


class Raw(CodecBase):  # type: ignore[misc]  # grpclib has no stubs
    """Bytes as they are."""

    __content_subtype__ = "proto"

    def encode(self, message: Any, message_type: Any) -> bytes:
        """As given."""
        del message_type
        return bytes(message)

    def decode(self, data: bytes, message_type: Any) -> bytes:
        """As received."""
        del message_type
        return data


@both
async def test_grpclib(server: Http2Server, authority: Authority, secure: bool) -> None:
    """A stream of messages both ways, a deadline, and an unknown method."""
    context = authority.client("h2") if secure else None
    if context is not None:
        context.check_hostname = False  # it has no way to say whom it means
    channel = Channel("127.0.0.1", server.port, ssl=context, codec=Raw())
    async with channel:
        call = channel.request(ECHO, Cardinality.STREAM_STREAM, bytes, bytes)
        async with call as stream:
            for message in (b"one", b"x" * 300_000):
                await stream.send_message(message)
                assert await stream.recv_message() == message
            await stream.end()
            assert await stream.recv_message() is None
        late = channel.request(ECHO, Cardinality.STREAM_STREAM, bytes, bytes, timeout=0.1)
        with pytest.raises((grpclib.GRPCError, asyncio.TimeoutError)):
            async with late as stream:
                await stream.send_request()
                await stream.recv_message()
        unknown = channel.request("/no.Such/Method", Cardinality.UNARY_UNARY, bytes, bytes)
        with pytest.raises(grpclib.GRPCError) as caught:
            async with unknown as stream:
                await stream.send_message(b"", end=True)
                await stream.recv_message()
        assert caught.value.status is grpclib.Status.UNIMPLEMENTED
        assert caught.value.message == "unknown method /no.Such/Method"


@both
async def test_the_h2_library(server: Http2Server, authority: Authority, secure: bool) -> None:
    """Its strictness finds no fault, also with what is written in many pieces."""
    context = authority.client("h2") if secure else None
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", server.port, ssl=context, server_hostname=NAME if secure else None
    )
    client = Client()
    stream_id = client.open()
    client.send(stream_id, b"one", b"two" * 10_000, end=True)
    async with asyncio.timeout(20):
        while not client.answers[stream_id].ended:
            writer.write(client.out())
            client.receive(await reader.read(65_536))
    assert client.answers[stream_id].messages == [b"one", b"two" * 10_000]
    assert client.answers[stream_id].status == 0
    writer.close()


async def run(*words: str | Path) -> tuple[int, str]:
    """A program's exit code, and all that it says."""
    process = await asyncio.create_subprocess_exec(
        *map(str, words), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    async with asyncio.timeout(60):
        said, _ = await process.communicate()
    return process.returncode or 0, said.decode(errors="replace")


def on_path(name: str) -> str:
    """A program of the machine."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def built(tool: Tool) -> Path:
    """A program that `make tools` builds."""
    try:
        return find(tool)
    except NoTool as missing:
        pytest.skip(str(missing))


@both
async def test_curl(server: Http2Server, authority: Authority, secure: bool) -> None:
    """A person who looks at the port is told what it is, by HTTP/2 and by HTTP/1."""
    curl = on_path("curl")
    where = f"{NAME}:{server.port}"
    tls = ("--cacert", authority.files.ca_file) if secure else ()
    common = (curl, "-sS", "-i", "--resolve", f"{where}:127.0.0.1", *tls)
    kind, url = (
        ("--http2", f"https://{where}/")
        if secure
        else (
            "--http2-prior-knowledge",
            f"http://{where}/",
        )
    )
    code, said = await run(*common, kind, url)
    assert code == 0, said
    assert said.startswith("HTTP/2 405")
    assert "it speaks gRPC" in said
    code, said = await run(*common, "--http1.1", url)
    if secure:
        assert code == 35, said  # CURLE_SSL_CONNECT_ERROR: no common protocol
    else:
        assert said.startswith("HTTP/1.1 400")
        assert "it speaks gRPC" in said


@both
async def test_nghttp(server: Http2Server, secure: bool) -> None:
    """The C library's own client gets its answer."""
    url = f"{'https' if secure else 'http'}://127.0.0.1:{server.port}/"
    code, said = await run(on_path("nghttp"), "-v", "--no-verify-peer", url)
    assert code == 0, said
    assert ":status: 405" in said


@both
async def test_grpcurl(
    server: Http2Server, authority: Authority, tmp_path: Path, secure: bool
) -> None:
    """grpc-go, with a name and a CA to verify."""
    (tmp_path / "health.proto").write_text(PROTO)
    kind = ("-cacert", authority.files.ca_file, "-authority", NAME) if secure else ("-plaintext",)
    words = ("-import-path", tmp_path, "-proto", "health.proto", "-max-time", "30")
    code, said = await run(
        built(GRPCURL), *kind, *words, f"127.0.0.1:{server.port}", "grpc.health.v1.Health/Check"
    )
    assert code == 0, said
    assert '"SERVING"' in said


@both
async def test_grpc_health_probe(server: Http2Server, authority: Authority, secure: bool) -> None:
    """What people put into their probes."""
    tls = ("-tls", "-tls-ca-cert", authority.files.ca_file, "-tls-server-name", NAME)
    code, said = await run(
        built(HEALTH_PROBE),
        f"-addr=127.0.0.1:{server.port}",
        "-connect-timeout=10s",
        "-rpc-timeout=10s",
        *(tls if secure else ()),
    )
    assert code == 0, said
    assert "SERVING" in said
