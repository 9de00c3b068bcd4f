"""`epp-fleet drain` and `undrain`."""

import argparse
import asyncio
import sys
from urllib.parse import quote

import aiohttp

from fleet.cli.where import Fleet, environment, find_fleet, read_token
from fleet.errors import FleetError
from fleet.local.api import CoordinatorApi
from fleet.local.faults import Refused

HINTS = {
    401: "the token was not accepted; name the fleet's own in EPP_FLEET_TOKEN_FILE",
    503: "there is no leader at the moment; try again in a few seconds",
}


async def _send(fleet: Fleet, worker: str, token: str, *, on: bool) -> None:
    async with aiohttp.ClientSession() as http:
        api = CoordinatorApi(http, fleet.coordinators, timeout_seconds=10.0)
        action = "drain" if on else "undrain"
        await api.command(f"/api/v1/workers/{quote(worker, safe='')}/{action}", token)


def set_drain(arguments: argparse.Namespace, *, on: bool) -> int:
    """0 when the leader took the command.

    Raises:
        SettingsError, Unreachable: see `find_fleet` and `read_token`.
        FleetError: the leader said no.
    """
    fleet = find_fleet(arguments.coordinator, arguments.state_file, environment())
    token = read_token(fleet.token_file)
    try:
        asyncio.run(_send(fleet, arguments.worker, token, on=on))
    except Refused as error:
        raise FleetError(f"{arguments.worker}: {HINTS.get(error.status, error)}") from error
    done = "hands its pools to the others" if on else "takes pools again"
    sys.stdout.write(f"{arguments.worker} {done}; watch it with `epp-fleet status`\n")
    return 0
