"""The worker's process: start in order, obey signals, and end with the right exit code.

0  stopped when asked to
1  a task that must live has died
2  wrong settings, a taken port, or an id that another worker has
"""

import asyncio
import gc
import logging
import os
import platform
import random
import signal
import sys
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

import grpc

from epp_worker.control.port import internal_server
from epp_worker.datalayer.models import HttpModels
from epp_worker.datalayer.scraper import Scraper
from epp_worker.health import health_server
from epp_worker.http2.errors import ListenError
from epp_worker.listeners import bind_grpc, gateway_connections, port_taken, serve_http
from epp_worker.stopping import Departure
from epp_worker.surroundings import Surroundings
from epp_worker.web import web_app
from epp_worker.worker import Worker
from fleet import __version__
from fleet.certificates import Certificates, Role, open_certificates, serving_tls
from fleet.clock import Clock, SystemClock
from fleet.errors import SettingsError
from fleet.http_listener import HttpListener
from fleet.installed import is_compiled
from fleet.kube.client import open_client
from fleet.kube.contract import KubeApi
from fleet.kube.read_access import Decides, ReadAccess
from fleet.model import Addresses
from fleet.model.identity import host_port
from fleet.picking.folder import ConfigSource
from fleet.polling import run_loop
from fleet.process import FAILED, GOOD, USAGE, raise_file_limit, read_token
from fleet.settings import Settings
from fleet.settings.flags import ProcessArgs, parse_process, worker_parser
from fleet.settings.kinds import KUBERNETES, kinds_of
from fleet.settings.store_url import passwords_in
from fleet.sources.contract import Source
from fleet.sources.folder import FolderSource
from fleet.sources.kubernetes import KubeSource
from fleet.store.redis import RedisStore
from fleet.telemetry import never_log, setup_logging

log = logging.getLogger(__name__)

_LAST_WORDS_SECONDS = 1.0
"""Between a fatal fault and the exit: probes and people see what is wrong."""


class Ending:
    """Why and how the process ends. Signals and faults arrive here."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.code: asyncio.Future[int] = loop.create_future()
        self.drain = asyncio.Event()

    def listen(self) -> None:
        """SIGTERM drains, again it stops at once; SIGINT stops at once."""
        self._loop.add_signal_handler(signal.SIGTERM, self.terminate)
        self._loop.add_signal_handler(signal.SIGINT, self.at_once, GOOD)

    def terminate(self) -> None:
        """The first time: drain. The second time: stop at once."""
        if self.drain.is_set():
            self.at_once(GOOD)
        self.drain.set()

    def at_once(self, code: int) -> None:
        """End now with this exit code; the first one counts."""
        if not self.code.done():
            self.code.set_result(code)

    def fatal(self, reason: str) -> None:
        """End as failed, a moment from now."""
        log.critical("worker failed", extra={"reason": reason})
        self._loop.call_later(_LAST_WORDS_SECONDS, self.at_once, FAILED)

    def refused(self, reason: str) -> None:
        """This process may not be a member."""
        log.critical("refused by the leader", extra={"reason": reason})
        self.at_once(USAGE)


class Listeners:
    """The servers beside ext_proc's, in the order in which they are started."""

    def __init__(self, worker: Worker, token: str, access: Decides | None = None) -> None:
        """Args:
        access: decides who may read by HTTP; None = everybody.
        """
        self._worker = worker
        self._token = token
        self._access = access
        self._host = worker.settings.worker.host
        self._health = health_server(worker.health)
        self._grpc: list[grpc.aio.Server] = []
        self._http: HttpListener | None = None
        self._ports: dict[str, int] = {}

    async def open_probes(self) -> None:
        """Health and HTTP: they answer while everything else still starts."""
        own = self._worker.settings.worker
        self._worker.publish_health()
        try:
            await self._health.start(self._host, own.health_port)
        except ListenError as error:
            raise port_taken("health", self._host, own.health_port) from error
        self._ports["health"] = self._health.port
        app = web_app(self._worker, self._token, self._access, self._worker.settings.metrics)
        self._http = await serve_http(app, self._host, own.http_port)
        self._ports["http"] = self._http.port

    async def open_service(self) -> None:
        """ext_proc and the internal port; afterwards the worker knows its addresses."""
        own = self._worker.settings.worker
        http2 = self._worker.http2
        await http2.start(self._host, own.ext_proc_port)
        self._ports["ext_proc"] = http2.port
        worker = self._worker
        internal = internal_server(worker.control, worker.services, worker.max_message_bytes)
        await self._serve(internal, "internal", own.internal_port, self._worker.certificates)
        host = own.advertise_host or self._host
        self._worker.addresses = Addresses(
            **{name: host_port(host, port) for name, port in self._ports.items()}
        )

    async def _serve(
        self,
        server: grpc.aio.Server,
        name: str,
        port: int,
        certificates: Certificates | None = None,
    ) -> None:
        self._ports[name] = bind_grpc(server, name, self._host, port, certificates)
        await server.start()
        self._grpc.append(server)

    async def close(self) -> None:
        """Stop answering."""
        await self._worker.http2.close(0.0)
        await self._health.close(0.0)
        for server in self._grpc:
            await server.stop(0.2)
        if self._http is not None:
            await self._http.close()


async def serve(worker_id: str, settings: Settings, token: str, connections: int) -> int:
    """Run a worker until it is told to stop, or cannot go on; returns the exit code."""
    ending = Ending(asyncio.get_running_loop())
    ending.listen()
    api = None
    if KUBERNETES in (kinds_of(settings).source, settings.security.reads):
        api = await open_client(settings.kubernetes)
    try:
        return await _serve(worker_id, settings, token, connections, api, ending)
    finally:
        if api is not None:
            await api.close()


async def _serve(
    worker_id: str,
    settings: Settings,
    token: str,
    connections: int,
    api: KubeApi | None,
    ending: Ending,
) -> int:
    clock = SystemClock()
    store = RedisStore(settings.redis, settings.fleet)
    rng = random.Random()  # noqa: S311 - breaks ties and spreads beats
    scraper = Scraper(settings.scrape, clock=clock)
    source = _source(settings, api, clock, rng)
    certificates = open_certificates(settings, Role.WORKER, clock)
    tls = serving_tls(settings, clock)
    picking = ConfigSource(settings.picking, clock)
    worker = Worker(
        worker_id,
        settings,
        token,
        Surroundings(
            source,
            store,
            scraper,
            clock,
            rng,
            connections,
            certificates,
            tls,
            picking,
            HttpModels(),
        ),
        fatal=ending.fatal,
        refused=ending.refused,
    )
    access = None
    if api is not None and settings.security.reads == KUBERNETES:
        access = ReadAccess(api, clock)
    listeners = Listeners(worker, token, access)
    try:
        return await _live(worker, listeners, ending, Departure(worker, store))
    finally:
        await listeners.close()
        if access is not None:
            await access.close()
        await worker.close()


def _source(settings: Settings, api: KubeApi | None, clock: Clock, rng: random.Random) -> Source:
    if api is not None and kinds_of(settings).source == KUBERNETES:
        return KubeSource(api, settings.kubernetes, clock, rng)
    folder = Path(settings.source.manifests)
    return FolderSource(folder, poll_seconds=settings.source.poll_seconds, clock=clock)


async def _live(worker: Worker, listeners: Listeners, ending: Ending, departure: Departure) -> int:
    async def start() -> None:
        await listeners.open_probes()
        await worker.open_source()
        await listeners.open_service()
        await worker.join()
        worker.publish_health()
        # What is here now stays: a full collection must not walk it again and again.
        gc.collect()
        gc.freeze()
        log.info("worker up", extra={"addresses": worker.addresses.ext_proc})

    if not await _until(start(), ending, stop_on_drain=True):
        return ending.code.result() if ending.code.done() else GOOD
    await _until(ending.drain.wait(), ending)
    if not ending.code.done() and await _until(departure.run(), ending):
        log.info("worker stopped: nothing was left to do")
        return GOOD
    return ending.code.result()


async def _until(
    work: Coroutine[Any, Any, Any], ending: Ending, *, stop_on_drain: bool = False
) -> bool:
    """Do `work` unless the process is told to end first; whether it was done."""
    task = asyncio.create_task(work)
    waits: set[asyncio.Future[Any]] = {task, ending.code}
    drain = asyncio.create_task(ending.drain.wait())
    if stop_on_drain:
        waits.add(drain)
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if task.done() and not ending.code.done():
            task.result()
            return True
        return False
    finally:
        task.cancel()
        drain.cancel()
        await asyncio.gather(task, drain, return_exceptions=True)


def _complain(problems: Sequence[str]) -> int:
    for problem in problems:
        sys.stderr.write(f"{problem}\n")
    return USAGE


def run(args: ProcessArgs) -> int:
    """Serve with checked settings; returns the exit code."""
    setup_logging(args.settings.log, args.id)
    runs = {"version": __version__, "python": platform.python_version(), "compiled": is_compiled()}
    log.info("worker starts", extra=runs)
    token = read_token(args.settings.security.token_file)
    never_log(token, *passwords_in(args.settings.redis.url))
    connections = gateway_connections(raise_file_limit())
    if connections < args.settings.bounds.max_connections:
        log.warning("few open files allowed", extra={"gateway_connections": connections})
    with asyncio.Runner(loop_factory=run_loop) as runner:
        return runner.run(serve(args.id, args.settings, token, connections))


def main(argv: Sequence[str] | None = None) -> int:
    """The program `epp-fleet-worker`; returns the exit code."""
    arguments = sys.argv[1:] if argv is None else argv
    try:
        return run(parse_process(worker_parser(), "worker", arguments, os.environ))
    except SettingsError as error:
        return _complain(error.problems)
    except ListenError as error:
        return _complain([f"worker.ext_proc_port: {error}"])
