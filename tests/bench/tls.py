"""What TLS costs on the gateways' port: streams/s beside plaintext, handshakes/s, and what others
feel while 2,000 gateways reconnect at the same moment.

Server, storm and bystander are processes of their own; with two cores they share them.
"""

import asyncio
import json
import resource
import ssl
import sys
import time
from collections.abc import Iterable
from statistics import quantiles

from epp_worker.http2 import Http2Limits, Http2Server
from fleet.certificates import ServingTls
from fleet.clock import SystemClock
from fleet.settings.model import WorkerSettings
from tests.bench.rows import Row
from tests.http2_peer import ECHO, Client, Recording, grpc, raw

RECONNECTS = 2_000
_AT_ONCE = 64
_STREAMS = 6_000
_BODY = bytes(2048)
_PICK_SECONDS = 0.005


async def _serve() -> None:
    """Echo until standard input ends, then say how much CPU that took."""
    tls = ServingTls(WorkerSettings(), ["localhost"], SystemClock())
    server = Http2Server({ECHO: Recording()}, limits=Http2Limits(), tls=tls)
    await server.start("127.0.0.1", 0)
    sys.stdout.write(f"{server.port}\n")
    sys.stdout.flush()
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        used = resource.getrusage(resource.RUSAGE_SELF)
        cpu = used.ru_utime + used.ru_stime
        sys.stdout.write(json.dumps({"cpu": cpu, "peak_kib": used.ru_maxrss}) + "\n")
        sys.stdout.flush()
    if server.counters.tls_failed:
        sys.stderr.write(f"{server.counters.tls_failed}\n")
    await server.close(0)


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    return context


async def _storm(port: int) -> None:
    """All connections at the same moment; each says its preface and stays."""
    context = _context()
    kept = []

    async def connect() -> None:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=context, ssl_handshake_timeout=60
        )
        writer.write(Client().out())
        await reader.readexactly(9)
        kept.append(writer)

    began = time.monotonic()
    await asyncio.gather(*(connect() for _ in range(RECONNECTS)))
    sys.stdout.write(f"{time.monotonic() - began}\n")
    for writer in kept:
        writer.transport.abort()


class _Server:
    """The serving process."""

    async def __aenter__(self) -> "_Server":
        self._process = await _python("serve")
        self.port = int(await self._line())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()

    async def _line(self) -> bytes:
        assert self._process.stdout is not None
        return await self._process.stdout.readline()

    async def used(self, what: str = "cpu") -> float:
        """Seconds of CPU so far, or the highest memory in KiB."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"?\n")
        return float(json.loads(await self._line())[what])


async def _python(*words: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.bench.tls",
        *words,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )


class _Peer:
    """One connection with streams by hand: nothing here is worth measuring."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._client = Client()
        self._rest = b""
        self._next = 3

    @classmethod
    async def to(cls, port: int, context: ssl.SSLContext | None) -> "_Peer":
        """Connected, with a first call made so that all settings are settled."""
        peer = cls(*await asyncio.open_connection("127.0.0.1", port, ssl=context))
        stream_id = peer._client.open()
        peer._client.send(stream_id, b"x", end=True)
        while not peer._client.answers[stream_id].ended:
            peer._writer.write(peer._client.out())
            peer._client.receive(await peer._reader.read(65_536))
        peer._writer.write(peer._client.out())
        return peer

    async def calls(self, count: int) -> None:
        """So many calls at once, to their ends."""
        block = b"\x83\x86\x04" + bytes((len(ECHO),)) + ECHO.encode()
        block += b"\x01\x05a.b:1\x0f\x10\x10application/grpc"
        body = grpc(_BODY)
        out = []
        for _ in range(count):
            out += [raw(1, 4, self._next, block), raw(0, 1, self._next, body)]
            self._next += 2
        grant = (count * len(body)).to_bytes(4, "big")
        self._writer.write(b"".join((*out, raw(8, 0, 0, grant))))
        while count:
            data = self._rest + await self._reader.read(256 * 1024)
            at = 0
            while at + 9 <= len(data):
                end = at + 9 + int.from_bytes(data[at : at + 3], "big")
                if end > len(data):
                    break
                count -= data[at + 3] == 1 and data[at + 4] & 1
                at = end
            self._rest = data[at:]

    def close(self) -> None:
        """Without ceremony."""
        self._writer.transport.abort()


async def _streams(context: ssl.SSLContext | None) -> tuple[float, float]:
    """(streams/s, us of the server's CPU a stream), 64 at once on one connection."""
    async with _Server() as server:
        peer = await _Peer.to(server.port, context)
        await peer.calls(_AT_ONCE)
        used, began = await server.used(), time.monotonic()
        for _ in range(_STREAMS // _AT_ONCE):
            await peer.calls(_AT_ONCE)
        wall = time.monotonic() - began
        cpu = await server.used() - used
        peer.close()
    done = _STREAMS // _AT_ONCE * _AT_ONCE
    return done / wall, cpu / done * 1e6


async def _reconnects() -> tuple[float, float, float, float, float]:
    """(seconds until all are back, us of CPU and KiB a connection, p99 of picks in ms, the same at
    rest)."""
    async with _Server() as server:
        peer = await _Peer.to(server.port, None)

        async def pick() -> float:
            began = time.monotonic()
            await peer.calls(1)
            took = time.monotonic() - began
            await asyncio.sleep(_PICK_SECONDS)
            return took * 1e3

        rest = [await pick() for _ in range(200)]
        used, held = await server.used(), await server.used("peak_kib")
        storm = await _python("storm", str(server.port))
        waiting = asyncio.create_task(storm.communicate())
        felt = []
        while not waiting.done():
            felt.append(await pick())
        said, _ = waiting.result()
        cpu = await server.used() - used
        held = await server.used("peak_kib") - held
        peer.close()
    p99 = (quantiles(felt, n=100)[98], quantiles(rest, n=100)[98])
    return float(said), cpu / RECONNECTS * 1e6, held / RECONNECTS, *p99


def rows() -> Iterable[Row]:
    """See the module."""
    plain, plain_cpu = asyncio.run(_streams(None))
    secure, secure_cpu = asyncio.run(_streams(_context()))
    yield Row("transport: 2 KiB streams, plaintext", plain, "1/s")
    yield Row("transport: 2 KiB streams, TLS", secure, "1/s")
    yield Row("transport: CPU a stream, plaintext", plain_cpu, "us")
    yield Row("transport: CPU a stream, TLS", secure_cpu, "us")
    seconds, cpu, held, felt, rest = asyncio.run(_reconnects())
    yield Row("transport: 2,000 TLS reconnects at once", seconds, "s")
    yield Row("transport: CPU a TLS connection", cpu, "us")
    yield Row("transport: memory a TLS connection", held, "KiB")
    yield Row("transport: pick p99 meanwhile", felt, "ms", 50, at_least=False)
    yield Row("transport: pick p99 at rest", rest, "ms")


def main() -> None:
    """Be one of the processes."""
    if sys.argv[1] == "serve":
        asyncio.run(_serve())
    else:
        asyncio.run(_storm(int(sys.argv[2])))


if __name__ == "__main__":
    main()
