"""`epp-fleet drain` and `undrain`."""

import argparse
import asyncio
import sys
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import aiohttp

from fleet.cli.where import Fleet, environment, find_fleet, read_token
from fleet.errors import FleetError
from fleet.local.api import CoordinatorApi
from fleet.local.faults import Refused, Unreachable

HINTS = {
    401: "the token was not accepted; name the fleet's own in EPP_FLEET_TOKEN_FILE",
    503: "there is no leader at the moment; try again in a few seconds",
}
PATIENCE_SECONDS = 8.0
"""For a new leader: above twice the time that losing one takes."""

AGAIN_SECONDS = 0.5
NO_LEADER = 503


async def _command(api: CoordinatorApi, path: str, token: str) -> None:
    """Send it; between two leaders, wait for the next one."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    told = False
    while True:
        try:
            return await api.command(path, token)
        except Refused as error:
            if error.status != NO_LEADER or time.monotonic() >= deadline:
                raise
        except Unreachable:
            # If a replica answers reads, it is only the leader that is gone.
            await api.shard_map()
            if time.monotonic() >= deadline:
                raise
        if not told:
            told = True
            sys.stderr.write("epp-fleet: no leader at the moment; waiting for the next one\n")
        await asyncio.sleep(AGAIN_SECONDS)


def _others_can(workers: Mapping[str, Any], worker: str) -> bool:
    return any(each["id"] != worker and each["state"] == "alive" for each in workers["workers"])


async def _send(fleet: Fleet, worker: str, token: str, *, on: bool) -> str:
    """What came of it, for people."""
    async with aiohttp.ClientSession() as http:
        api = CoordinatorApi(
            http, fleet.coordinators, timeout_seconds=10.0, token=fleet.token_for_reads
        )
        action = "drain" if on else "undrain"
        await _command(api, f"/api/v1/workers/{quote(worker, safe='')}/{action}", token)
        if not on:
            return "takes pools again"
        try:
            taken = _others_can(await api.workers(), worker)
        except (Unreachable, KeyError, TypeError):
            taken = True  # the command was taken; who could take the pools is only a remark
        if taken:
            return "hands its pools to the others"
        return "is draining, but no other worker can take its pools: it keeps them until one can"


def _why(worker: str, error: Refused) -> str:
    text = HINTS.get(error.status, str(error))
    return text if worker in text else f"{worker}: {text}"


def set_drain(arguments: argparse.Namespace, *, on: bool) -> int:
    """0 when the leader took the command.

    Raises:
        SettingsError, Unreachable: see `find_fleet` and `read_token`.
        FleetError: the leader said no.
    """
    fleet = find_fleet(arguments.coordinator, arguments.state_file, environment())
    token = read_token(fleet.token_file)
    try:
        done = asyncio.run(_send(fleet, arguments.worker, token, on=on))
    except Refused as error:
        raise FleetError(_why(arguments.worker, error)) from error
    sys.stdout.write(f"{arguments.worker} {done}; watch it with `epp-fleet status`\n")
    return 0
