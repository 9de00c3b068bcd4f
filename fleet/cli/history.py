"""`epp-fleet history [POOL]`: who moved from whom to whom, when, why, and how it ended."""

import argparse
import asyncio
import json
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

import aiohttp
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fleet.cli.naming import full_name
from fleet.cli.tables import ago
from fleet.cli.where import Fleet, environment, find_fleet
from fleet.errors import FleetError
from fleet.local.api import CoordinatorApi

Json = Mapping[str, Any]
PIPE_WIDTH = 120
"""Columns when the output is no terminal."""

ANSWER_SECONDS = 5.0

OUTCOMES = {
    "done": "green",
    "moving": "cyan",
    "cancelled": "yellow",
    "deadline": "red",
    "gainer_dead": "red",
}


async def _fetch(fleet: Fleet, pool: str | None, limit: int) -> Json:
    async with aiohttp.ClientSession() as http:
        api = CoordinatorApi(
            http, fleet.coordinators, timeout_seconds=ANSWER_SECONDS, token=fleet.token_for_reads
        )
        asked = {"limit": str(limit)}
        if pool is not None:
            asked["pool"] = "/".join(await full_name(api, pool))
        return await api.get(f"/api/v1/history?{urlencode(asked, safe='/')}", wanted="_pool")


def _took(started: str, finished: str) -> str:
    try:
        took = datetime.fromisoformat(finished) - datetime.fromisoformat(started)
    except ValueError:
        return "?"
    return f"{max(0.0, took.total_seconds()):.2f} s"


def moves_table(history: Json, now: datetime) -> Table:
    """One row a move: what is under way, then what ended, the latest first."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in ("GROUP", "FROM", "TO", "REASON", "OUTCOME"):
        table.add_column(column, no_wrap=True)
    for column in ("ENDED", "TOOK", "MAP"):
        table.add_column(column, no_wrap=True, justify="right")
    for move in history["under_way"]:
        outcome = Text("moving", style=OUTCOMES["moving"])
        row = (move["group"], move["source"], move["target"], move["reason"])
        table.add_row(*map(str, row), outcome, "-", "-", "-")
    for move in history["moves"]:
        outcome = Text(str(move["outcome"]), style=OUTCOMES.get(move["outcome"], ""))
        table.add_row(
            str(move["group"]),
            str(move["source"] or "-"),
            str(move["target"] or "-"),
            str(move["reason"]),
            outcome,
            f"{ago(str(move['finished']), now)} ago",
            _took(str(move["started"]), str(move["finished"])),
            f"{move['epoch']}.{move['version']}",
        )
    return table


def deaths(history: Json) -> list[Text]:
    """A line for each death that moved something, the latest first: what it was known by."""
    found = [
        f"{move['target'] if move['outcome'] == 'gainer_dead' else move['source']} in map "
        f"{move['epoch']}.{move['version']}: {move['why']}"
        for move in history["moves"]
        if move.get("why")
    ]
    return [Text(line, style="dim") for line in dict.fromkeys(found)]


def _print(history: Json) -> None:
    console = Console(soft_wrap=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)
    if not history["under_way"] and not history["moves"]:
        console.print("nothing has moved")
        return
    console.print(moves_table(history, datetime.now(UTC)))
    for line in deaths(history):
        console.print(line)


def history(arguments: argparse.Namespace) -> int:
    """Print it.

    Raises:
        Unreachable: no coordinator answers.
        Refused: there is no such pool.
        SettingsError: a name without a namespace that is not that of exactly one pool.
        FleetError: a coordinator answers with something else.
    """
    fleet = find_fleet(arguments.coordinator, arguments.state_file, environment())
    document = asyncio.run(_fetch(fleet, arguments.pool, arguments.limit))
    try:
        if arguments.output == "json":
            sys.stdout.write(json.dumps(document, indent=2) + "\n")
        else:
            _print(document)
    except (KeyError, TypeError) as error:
        raise FleetError(f"the coordinator's answer lacks something: {error}") from error
    return 0
