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
import signal
import sys
from collections.abc import Sequence

from coordinator.app import Coordinator
from coordinator.assembly import open_parts
from fleet.clock import SystemClock
from fleet.errors import FleetError, SettingsError
from fleet.process import GOOD, USAGE, raise_file_limit, read_token
from fleet.settings import Settings
from fleet.settings.flags import ProcessArgs, coordinator_parser, parse_process
from fleet.settings.store_url import passwords_in
from fleet.telemetry import never_log, setup_logging

log = logging.getLogger(__name__)

CLOSE_SECONDS = 1.8
"""A coordinator that was told to stop is gone after this, whatever hangs."""


GC_THRESHOLDS = (10_000, 20, 50)
"""Of the cycle collector. Maps and shares are large, live long and hold no cycles: by Python's own
thresholds every other plan of 10,000 groups was followed by a full collection of 60 ms."""


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
    rng = random.Random()  # noqa: S311 - jitter
    async with open_parts(settings, clock=clock, rng=rng) as parts:
        coordinator = Coordinator(name, settings, token, parts)
        # What is here now stays: a full collection must not walk it again and again.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        await _until_stopped(coordinator, stop)


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
    never_log(token, *passwords_in(args.settings.redis.url))
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
