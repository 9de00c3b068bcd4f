"""The two servers that are compared, each in a process of its own.

    python -m tests.bench.served worker|grpcio [OPTIONS]        (OPTIONS is JSON, see `Options`)

`worker` is a whole worker that owns one pool of 32 endpoints. `grpcio` is the same worker, and the
load goes to a `grpc.aio` server instead of its own port: the same pool, the same picks and the very
same answers, since each stream is one of the worker's sessions there too.
"""

import asyncio
import contextlib
import gc
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc.aio

from epp_worker.process import PATH
from epp_worker.sessions import Sessions
from fleet.certificates import ServingTls
from fleet.clock import SystemClock
from fleet.model import Hold
from fleet.picking import decode
from fleet.picking.choice import DEFAULT_NAME, Configs
from fleet.polling import run_loop
from fleet.settings import WorkerSettings
from tests import manifest_texts
from tests.bench.script import ENDPOINTS, POOL, address
from tests.worker_inprocess import Running, TestLeader, running_worker

SERVER_CORE, LOAD_CORE = 0, 1
_SCRAPED_SECONDS = 0.25
_SETTINGS = WorkerSettings(
    host="127.0.0.1",
    ext_proc_port=0,
    health_port=0,
    internal_port=0,
    http_port=0,
    max_streams_per_connection=8192,
)
_ANYBODY = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins: [{type: random-picker}]
"""


@dataclass(frozen=True, slots=True)
class Options:
    """How it serves.

    Attributes:
        anybody: picks are random; by the default scorers otherwise.
        detach: streams end with the pick.
        pod_port: where the pods listen.
    """

    anybody: bool = False
    detach: bool = False
    tls: bool = False
    pod_port: int = 8000
    core: int | None = SERVER_CORE


class Served:
    """The process, from outside.

    Attributes:
        port: where it takes streams.
    """

    def __init__(self, kind: str, options: Options) -> None:
        command = [sys.executable, "-m", "tests.bench.served", kind, json.dumps(asdict(options))]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        self.pid = self._process.pid
        self.port = 0

    def __enter__(self) -> Self:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the server is gone"
        self.port = int(line)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()


class _OverGrpcio:
    """ext_proc by grpcio: messages to a session, its answers back."""

    def __init__(self, running: Running, options: Options) -> None:
        worker = running.worker
        own = worker.settings.worker
        bounds = worker.settings.bounds
        rng = random.Random(1)
        self._sessions = Sessions(own, bounds, worker.requests, rng, lambda: False)
        (self._group,) = worker.holdings
        self._detach = options.detach

    async def process(self, messages: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        """One stream."""
        del context
        session = self._sessions(self._group.picker, self._group.bodies)
        session.detachable = self._detach
        try:
            async for message in messages:
                for reply in session.receive(message):
                    yield reply
                if session.parting is not None:
                    for reply in session.leave():
                        yield reply
                if session.ended is not None:
                    return
        finally:
            session.aborted()

    @contextlib.asynccontextmanager
    async def served(self) -> AsyncIterator[int]:
        """Its port."""
        service, method = PATH.strip("/").split("/")
        handler = grpc.stream_stream_rpc_method_handler(self.process)
        server = grpc.aio.server()
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(service, {method: handler}),)
        )
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            yield port
        finally:
            await server.stop(None)


def _write_pool(folder: Path, port: int) -> None:
    objects = [manifest_texts.pool(POOL, ports=(port,))]
    objects += [
        manifest_texts.pod(f"{POOL}-{number}", labels={"app": POOL}, ip=address(number))
        for number in range(ENDPOINTS)
    ]
    folder.joinpath("pool.yaml").write_text(manifest_texts.text(*objects))


async def _scrape(running: Running) -> None:
    """Figures of pods that are never two times the same, as often as it takes to be fresh."""
    rng = random.Random(2)
    (group,) = running.worker.holdings
    (pool,) = group.states.values()
    while True:
        for each in pool.endpoints():
            each.scraped(
                waiting=float(rng.randrange(6)),
                running=float(rng.randrange(9)),
                kv=rng.random(),
                at=pool.now(),
                inflight=each.inflight,
            )
        await asyncio.sleep(_SCRAPED_SECONDS)


async def _serve(kind: str, options: Options, folder: Path) -> None:
    _write_pool(folder, options.pod_port)
    phase = "detach" if options.detach else "track"
    own = replace(_SETTINGS, response_phase=phase, tls="auto" if options.tls else "off")
    tls = ServingTls(own, ["localhost"], SystemClock()) if options.tls else None
    async with running_worker(folder, worker_settings=own, tls=tls) as running:
        if options.anybody:
            configs = Configs({DEFAULT_NAME: decode(_ANYBODY, name=DEFAULT_NAME)})
            running.worker.holdings.schedulers.configs = configs
        leader = TestLeader(running.worker.addresses.internal, 1)
        await leader.connect()
        holds: Any = {POOL: Hold.OWNER}
        await leader.assign(running.share(1, **holds))
        scraping = asyncio.create_task(_scrape(running))
        gc.collect()
        gc.freeze()
        async with contextlib.AsyncExitStack() as stack:
            port = int(running.worker.addresses.ext_proc.rpartition(":")[2])
            if kind == "grpcio":
                baseline = _OverGrpcio(running, options)
                port = await stack.enter_async_context(baseline.served())
            sys.stdout.write(f"{port}\n")
            sys.stdout.flush()
            await asyncio.to_thread(sys.stdin.read)
        scraping.cancel()
        await leader.close()


def _main(kind: str, options: Options) -> None:
    if options.core is not None:
        os.sched_setaffinity(0, {options.core})
    with tempfile.TemporaryDirectory() as name, asyncio.Runner(loop_factory=run_loop) as runner:
        runner.run(_serve(kind, options, Path(name)))


if __name__ == "__main__":
    chosen = Options(**json.loads(sys.argv[2])) if len(sys.argv) > 2 else Options()
    _main(sys.argv[1], chosen)
