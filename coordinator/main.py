"""The coordinator's process: start in order, obey signals, end with the right exit code.

0  stopped when asked to
1  an unforeseen fault
2  wrong settings or a taken port
"""

import asyncio
import gc
import logging
import os
import random
import resource
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from coordinator.app import Coordinator, Parts
from coordinator.memory_routes import MemoryRoutes
from coordinator.routes.contract import Routes
from coordinator.routes.eds import EdsRoutes
from fleet.clock import Clock, SystemClock
from fleet.errors import FleetError, SettingsError
from fleet.settings import Settings
from fleet.settings.flags import ProcessArgs, coordinator_parser, parse_process
from fleet.sources.folder import FolderSource
from fleet.store.redis import RedisStore
from fleet.telemetry import setup_logging

log = logging.getLogger(__name__)

GOOD, FAILED, USAGE = 0, 1, 2

LEAST_FILES = 256
"""Below this many open files a coordinator cannot hold links to a few dozen workers."""

CLOSE_SECONDS = 1.8
"""A coordinator that was told to stop is gone after this, whatever hangs."""


def read_token(path: str) -> str:
    """The fleet's bearer token.

    Raises:
        SettingsError: the file cannot be read, or there is nothing in it.
    """
    try:
        token = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError([f"security.token_file: cannot read {path}: {error}"]) from error
    if not token:
        raise SettingsError([f"security.token_file: {path} is empty; put a token into it"])
    return token


def raise_file_limit() -> None:
    """Raise NOFILE to the hard limit.

    Raises:
        SettingsError: the hard limit is too low.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard != resource.RLIM_INFINITY and hard < LEAST_FILES:
        raise SettingsError([f"NOFILE: hard limit is {hard}, at least {LEAST_FILES} are needed"])


def _routes(settings: Settings, clock: Clock) -> Routes:
    if not settings.routes.eds_directory:
        return MemoryRoutes(clock)
    directory = Path(settings.routes.eds_directory)
    return EdsRoutes(directory, settings=settings.routes, clock=clock)


async def serve(name: str, settings: Settings, token: str) -> None:
    """Run one coordinator until SIGTERM or SIGINT.

    Raises:
        FleetError: it cannot start.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    clock = SystemClock()
    store = RedisStore(settings.redis, settings.fleet)
    source = FolderSource(
        Path(settings.source.manifests), poll_seconds=settings.source.poll_seconds, clock=clock
    )
    rng = random.Random()  # noqa: S311 - jitter
    parts = Parts(store, _routes(settings, clock), source, clock, rng)
    coordinator = Coordinator(name, settings, token, parts)
    try:
        await source.start()
        # What is here now stays: a full collection must not walk it again and again.
        gc.collect()
        gc.freeze()
        await _until_stopped(coordinator, stop)
    finally:
        await source.close()
        await store.close()


async def _until_stopped(coordinator: Coordinator, stop: asyncio.Event) -> None:
    running = asyncio.create_task(coordinator.run(stop), name="coordinator")
    stopping = asyncio.create_task(stop.wait(), name="stop")
    try:
        await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            log.info("stopping")
            await asyncio.wait({running}, timeout=CLOSE_SECONDS)
        if running.done():
            running.result()
        else:
            log.warning("not everything closed in time")
    finally:
        running.cancel()
        stopping.cancel()
        await asyncio.gather(running, stopping, return_exceptions=True)


def run(args: ProcessArgs) -> int:
    """Serve with checked settings; returns the exit code.

    Raises:
        FleetError: it cannot start.
    """
    setup_logging(args.settings.log, args.id)
    token = read_token(args.settings.security.token_file)
    if not args.settings.source.manifests:
        raise SettingsError(
            ["source.manifests: is empty; name the folder with the fleet's manifests"]
        )
    raise_file_limit()
    asyncio.run(serve(args.id, args.settings, token))
    return GOOD


def main(argv: Sequence[str] | None = None) -> int:
    """The program `epp-fleet-coordinator`; returns the exit code."""
    arguments = sys.argv[1:] if argv is None else argv
    try:
        return run(parse_process(coordinator_parser(), "coordinator", arguments, os.environ))
    except SettingsError as error:
        problems: Sequence[str] = error.problems
    except FleetError as error:
        problems = [str(error)]
    for problem in problems:
        sys.stderr.write(f"{problem}\n")
    return USAGE
