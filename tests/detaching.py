"""Requests through a real Envoy to a worker whose streams end with the pick, and what upstreams do.

The last write of each stream can arrive late, as on a slow network.
"""

import asyncio
import hashlib
import io
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from fleet.model import EpochVersion, Hold, PoolId, PoolRef, Share, ShareEntry
from fleet.settings import WorkerSettings
from tests.envoy import Envoy
from tests.ext_proc_gateway import resources
from tests.slow_tail import slow_tail
from tests.worker_inprocess import Running, TestLeader, group_of, running_worker, write_pool
from tests.worker_process import WorkerProcess

AUTHORITY = "pool-a-epp.ns1.svc.cluster.local:9002"
EVENTS = 8


class Upstream:
    """A model server of few words, so that thousands of requests cost little.

    Attributes:
        early: answer as soon as the headers are here, and read the body afterwards.
        pause: seconds between events.
    """

    def __init__(self) -> None:
        self.address = ""
        self.early = False
        self.pause = 0.0
        self.open = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, many requests."""
        self.open += 1
        try:
            while True:
                await self._answer(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the gateway is gone, or the test is over
        finally:
            self.open -= 1
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        if self.early:
            answer = b"early" * 2000
            await self._send(writer, {"x-early": "1"}, answer)
            await self._body(reader, head)
            return
        body = await self._body(reader, head)
        told = {"x-size": str(len(body)), "x-hash": hashlib.sha256(body).hexdigest()}
        await self._send(writer, told, b"data: event\n\n" * EVENTS)

    async def _send(
        self, writer: asyncio.StreamWriter, told: dict[str, str], answer: bytes
    ) -> None:
        lines = "".join(f"{key}: {value}\r\n" for key, value in told.items())
        writer.write(
            f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n{lines}"
            f"content-length: {len(answer)}\r\n\r\n".encode()
        )
        if not self.pause:
            writer.write(answer)
        else:
            size = -(-len(answer) // EVENTS)
            for start in range(0, len(answer), size):
                await asyncio.sleep(self.pause)
                writer.write(answer[start : start + size])
        await writer.drain()

    async def _body(self, reader: asyncio.StreamReader, head: str) -> bytes:
        if "transfer-encoding: chunked" in head:
            parts = []
            while size := int((await reader.readline()).split(b";")[0] or b"0", 16):
                parts.append(await reader.readexactly(size))
                await reader.readline()
            await reader.readline()
            return b"".join(parts)
        for line in head.split("\r\n"):
            if line.startswith("content-length:"):
                return await reader.readexactly(int(line.partition(":")[2]))
        return b""


@asynccontextmanager
async def upstream() -> AsyncIterator[Upstream]:
    """On a free port."""
    made = Upstream()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0, limit=2**20)
    made.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield made
    finally:
        server.close()


class Scene:
    """What a test has.

    Attributes:
        url: of the gateway.
        delay: seconds by which the next stream's last words are late.
    """

    client: aiohttp.ClientSession

    def __init__(self, worker: Running, pods: Upstream) -> None:
        self.worker = worker
        self.pods = pods
        self.url = ""
        self.delay: Callable[[], float] = lambda: 0.0

    async def ask(self, body: bytes) -> str | None:
        """One request; what was wrong with it, None if nothing was."""
        try:
            data = io.BytesIO(body)
            async with self.client.post(f"{self.url}/v1/chat/completions", data=data) as answer:
                text = await answer.read()
        except aiohttp.ClientError as error:
            return f"{type(error).__name__}: {error}"
        if answer.status != 200:
            return f"{answer.status}: {text[:100]!r}"
        if self.pods.early:
            return None if text == b"early" * 2000 else f"{len(text)} bytes of the early answer"
        if answer.headers["x-hash"] != hashlib.sha256(body).hexdigest():
            return f"the body came as {answer.headers['x-size']} of {len(body)} bytes"
        return None if text == b"data: event\n\n" * EVENTS else f"{len(text)} bytes of the answer"

    async def many(self, bodies: list[bytes], at_once: int) -> list[str]:
        """All of them; what was wrong."""
        faults: list[str] = []
        left = iter(bodies)

        async def one_after_another() -> None:
            for body in left:
                fault = await self.ask(body)
                if fault is not None:
                    faults.append(fault)

        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(one_after_another())
        return faults


def bodies(count: int, largest: int, seed: int = 1) -> list[bytes]:
    """Chat requests, most of them small."""
    rng = random.Random(seed)
    head, tail = b'{"model":"m","messages":[{"role":"user","content":"', b'"}]}'
    made = []
    for number in range(count):
        size = rng.choice((0, rng.randrange(1 + min(largest, 9_000)), rng.randrange(largest + 1)))
        made.append(b"%b%d-%b%b" % (head, number, b"x" * size, tail))
    return made


@asynccontextmanager
async def scene(
    folder: Path,
    *,
    response_phase: str = "detach",
    annotations: Mapping[str, str] | None = None,
) -> AsyncIterator[Scene]:
    """A worker that owns one pool with one pod, behind Envoy."""
    settings = WorkerSettings(
        host="127.0.0.1",
        ext_proc_port=0,
        health_port=0,
        internal_port=0,
        http_port=0,
        response_phase=response_phase,
        max_body_bytes=64 * 1024 * 1024,
    )
    manifests = folder / "manifests"
    manifests.mkdir()
    async with upstream() as pods:
        host, _, port = pods.address.rpartition(":")
        write_pool(manifests, "pool-a", host, port=int(port), annotations=annotations)
        async with running_worker(manifests, worker_settings=settings) as running:
            leader = TestLeader(running.worker.addresses.internal, 1)
            await leader.connect()
            await leader.assign(running.share(1, pool_a=Hold.OWNER))
            made = Scene(running, pods)
            async with (
                slow_tail(running.worker.addresses.ext_proc, lambda: made.delay()) as picker,
                Envoy(folder, resources(picker, AUTHORITY)) as envoy,
                aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client,
            ):
                made.url = f"http://{await envoy.listener('gateway')}"
                made.client = client
                yield made
            await leader.close()


async def killed(folder: Path, response_phase: str, count: int) -> tuple[int, int]:
    """Kill a worker's process while this many responses stream; how many came whole, and not."""
    process = WorkerProcess(folder, settings={"worker": {"response_phase": response_phase}})
    async with upstream() as pods:
        pods.pause = 0.5
        host, _, port = pods.address.rpartition(":")
        write_pool(process.manifests, "pool-a", host, port=int(port), uid="u1")
        with process:
            await asyncio.to_thread(process.wait_up)
            leader = TestLeader(process.address("internal"), 1)
            hello = await leader.connect()
            pools = (PoolId(PoolRef("ns1", "pool-a"), "u1"),)
            entry = ShareEntry(group_of("pool-a"), Hold.OWNER, pools, process.id)
            incarnation = hello.member.incarnation
            version = EpochVersion(1, 1)
            await leader.assign(Share("default", process.id, incarnation, version, (entry,)))
            async with (
                Envoy(folder, resources(process.address("ext_proc"), AUTHORITY)) as envoy,
                aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client,
            ):
                url = f"http://{await envoy.listener('gateway')}/v1/chat/completions"
                begun = asyncio.Semaphore(0)
                asked = [asyncio.create_task(_events(client, url, begun)) for _ in range(count)]
                for _ in range(count):
                    await begun.acquire()
                process.kill()
                whole = await asyncio.gather(*asked)
            await leader.close()
    return whole.count(True), whole.count(False)


async def _events(client: aiohttp.ClientSession, url: str, begun: asyncio.Semaphore) -> bool:
    """Whether all events come."""
    try:
        async with client.post(url, data=b'{"model":"m"}') as answer:
            first = await answer.content.readexactly(5)
            begun.release()
            return first + await answer.content.read() == b"data: event\n\n" * EVENTS
    except aiohttp.ClientError:
        return False
