"""A real Envoy in front of a worker that forwards: what a client gets, body and events included."""

import asyncio
import hashlib
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
from aiohttp import web

from fleet.model import Hold
from tests.envoy import Envoy
from tests.ext_proc_gateway import resources
from tests.neighbours import AUTHORITY, Neighbourhood, neighbourhood
from tests.worker_inprocess import DEADLINE, until

EVENTS = 64


class Model:
    """A model server: says what body it got, then streams events."""

    def __init__(self) -> None:
        self.address = ""
        self.cut = asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Headers with the body's hash; 64 events."""
        body = await request.read()
        response = web.StreamResponse(
            headers={
                "content-type": "text/event-stream",
                "x-size": str(len(body)),
                "x-hash": hashlib.sha256(body).hexdigest(),
            }
        )
        await response.prepare(request)
        try:
            for number in range(EVENTS):
                await response.write(b"data: %d\n\n" % number)
                if request.headers.get("x-slow"):
                    await asyncio.sleep(0.05)
        except ConnectionError:
            self.cut.set()
        return response


@asynccontextmanager
async def model() -> AsyncIterator[Model]:
    """On a free port."""
    made = Model()
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_post("/v1/chat/completions", made.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.address = f"127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield made
    finally:
        await runner.cleanup()


@asynccontextmanager
async def gateway(
    folder: Path,
) -> AsyncIterator[tuple[Neighbourhood, Model, str, aiohttp.ClientSession]]:
    """Envoy before worker-0, which holds nothing; worker-1 owns the pool."""
    manifests = folder / "manifests"
    manifests.mkdir()
    async with (
        model() as served,
        neighbourhood(manifests, pod=served.address) as made,
        Envoy(folder, resources(made[0].worker.addresses.ext_proc, AUTHORITY)) as envoy,
        aiohttp.ClientSession() as client,
    ):
        await made.assign(0, 1)
        await made.assign(1, 1, pool_a=Hold.OWNER)
        made.owners["pool-a"] = "worker-1"
        made.answer()
        url = f"http://{await envoy.listener('gateway')}/v1/chat/completions"
        yield made, served, url, client


async def test_a_client_notices_nothing(tmp_path: Path) -> None:
    """10 MiB up, 64 events down, ten at once; the owner's counts are those of direct streams."""
    async with gateway(tmp_path) as (made, _, url, client):
        body = b'{"model": "m", "prompt": "' + b"x" * 10 * 1024 * 1024 + b'"}'
        small = b'{"model": "m"}'

        async def ask(data: bytes) -> None:
            async with client.post(url, data=io.BytesIO(data)) as answer:
                text = await answer.text()
                assert answer.status == 200, text
                assert answer.headers["x-hash"] == hashlib.sha256(data).hexdigest()
                assert text == "".join(f"data: {number}\n\n" for number in range(EVENTS))

        async with asyncio.timeout(6 * DEADLINE):
            await ask(body)
            await asyncio.gather(*(ask(small) for _ in range(10)))
        figures = made[0].worker.figures()
        assert figures.strays["forwarded"] == 11
        assert figures.strays["failed"] == 0
        owner = made[1].worker
        await until(lambda: owner.counters.streams_open == 0, "the end of every stream")
        assert owner.figures().responses == {"complete": 11, "aborted": 0, "detached": 0}


async def test_a_client_that_goes_ends_the_owners_stream(tmp_path: Path) -> None:
    """In the middle of the events; nothing stays in flight."""
    async with gateway(tmp_path) as (made, _, url, client):
        async with client.post(url, data=b'{"model": "m"}', headers={"x-slow": "1"}) as answer:
            await answer.content.readline()
            assert made[1].worker.counters.streams_open == 1
        owner = made[1].worker
        await until(lambda: owner.counters.streams_open == 0, "the end of the owner's stream")
        assert owner.figures().responses == {"complete": 0, "aborted": 1, "detached": 0}
        assert not any(sum(counts.values()) for counts in owner.figures().inflight.values())
