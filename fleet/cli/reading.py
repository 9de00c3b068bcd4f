"""`epp-fleet status`, `pools` and `workers`: what the coordinators say, as tables or JSON."""

import argparse
import asyncio
import json
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import aiohttp
from rich.console import Console

from fleet.cli import tables
from fleet.cli.where import Fleet, environment, find_fleet
from fleet.errors import FleetError
from fleet.local.api import CoordinatorApi

FORMAT = 1
PIPE_WIDTH = 200
"""Columns when the output is no terminal: wide enough that nothing is cut for grep."""

LEAST_ROWS = 10


async def _fetch(fleet: Fleet) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    async with aiohttp.ClientSession() as http:
        api = CoordinatorApi(http, fleet.coordinators, token=fleet.token_for_reads)
        return await api.shard_map(), await api.workers()


def _console() -> Console:
    return Console(soft_wrap=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)


def _write_json(value: object) -> None:
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def _workers(console: Console, workers: Mapping[str, Any]) -> int:
    """The table, and why somebody is suspect or dead; how many lines that took."""
    console.print(tables.workers_table(workers))
    concerns = tables.concerns(workers)
    for line in concerns:
        console.print(line)
    return len(concerns)


def _status(shard_map: Mapping[str, Any], workers: Mapping[str, Any]) -> None:
    console = _console()
    console.print(tables.headline(shard_map))
    console.print()
    concerned = _workers(console, workers)
    console.print()
    pools = tables.order(shard_map["pools"])
    room = len(pools)
    if console.is_terminal:
        room = max(LEAST_ROWS, console.height - len(workers["workers"]) - concerned - 7)
    console.print(tables.pools_table(pools[:room], datetime.now(UTC), console.width))
    if len(pools) > room:
        console.print(f"... and {len(pools) - room} more: epp-fleet pools", style="dim")


def _as_json(name: str, shard_map: Mapping[str, Any], workers: Mapping[str, Any]) -> object:
    if name == "workers":
        return workers
    if name == "pools":
        return {"format": FORMAT, "pools": shard_map["pools"]}
    return {**shard_map, "workers": workers["workers"], "unowned": tables.unowned(shard_map)}


def show(name: str, arguments: argparse.Namespace) -> int:
    """Print one of the three; `status` returns 1 if a pool has no owner.

    Raises:
        Unreachable: no coordinator answers.
        FleetError: one answers with something else.
    """
    fleet = find_fleet(arguments.coordinator, arguments.state_file, environment())
    shard_map, workers = asyncio.run(_fetch(fleet))
    try:
        if arguments.output == "json":
            _write_json(_as_json(name, shard_map, workers))
        elif name == "status":
            _status(shard_map, workers)
        elif name == "pools":
            pools = sorted(shard_map["pools"], key=lambda p: (p["namespace"], p["name"]))
            console = _console()
            console.print(tables.pools_table(pools, datetime.now(UTC), console.width))
        else:
            _workers(_console(), workers)
        missing = tables.unowned(shard_map)
    except (KeyError, TypeError) as error:
        raise FleetError(f"the coordinator's answer lacks something: {error}") from error
    return 1 if name == "status" and missing else 0
