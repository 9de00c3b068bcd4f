"""`epp-fleet plan`: what would move if workers came or went."""

import argparse
import asyncio
import json
import sys
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import aiohttp
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fleet.cli.where import Fleet, environment, find_fleet
from fleet.errors import FleetError
from fleet.local.api import CoordinatorApi
from fleet.local.faults import Refused, Unreachable

Json = Mapping[str, Any]
PIPE_WIDTH = 100
"""Columns when the output is no terminal."""

SHOWN_MOVES = 20

ANSWER_SECONDS = 15.0
"""10,000 groups on 1,000 workers take a coordinator some seconds."""

LEADER_SECONDS = 15.0

FATES = {"leaves": "yellow", "joins": "green"}


async def _fetch(fleet: Fleet, path: str) -> Json:
    async with aiohttp.ClientSession() as http:
        api = CoordinatorApi(
            http, fleet.coordinators, timeout_seconds=ANSWER_SECONDS, token=fleet.token_for_reads
        )
        document = await api.get(path, wanted="_worker")
        leader = document["leader"]
        if document["loads_known"] or leader is None:
            return document
        try:  # only the leader knows loads; from outside of a cluster it may be out of reach
            asked = CoordinatorApi(
                http,
                (leader["http"],),
                timeout_seconds=LEADER_SECONDS,
                token=fleet.token_for_reads,
            )
            return await asked.get(path, wanted="_worker")
        except (Unreachable, Refused, ValueError):
            return document


def headline(plan: Json) -> Text:
    """How much moves, and what the balance becomes."""
    question = plan["question"]
    asked = (
        f"without {question['remove']}"
        if question["remove"] is not None
        else f"with {question['workers']} workers"
    )
    text = Text(f"{asked}: ", style="bold")
    text.append(f"{plan['moved']} of {plan['groups']} groups move", style="not bold")
    before, after = plan["balance_before"], plan["balance_after"]
    text.append(f"; fullest/mean {before:.2f} -> {after:.2f}", style="not bold")
    return text


def workers_table(plan: Json) -> Table:
    """One row a worker."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in ("WORKER", "FATE"):
        table.add_column(column, no_wrap=True)
    for column in ("OWNED", "WOULD OWN", "LOAD", "WOULD CARRY"):
        table.add_column(column, no_wrap=True, justify="right")
    for worker in plan["workers"]:
        table.add_row(
            str(worker["id"]),
            Text(str(worker["fate"]), style=FATES.get(worker["fate"], "")),
            str(worker["owned_before"]),
            str(worker["owned_after"]),
            f"{worker['load_before']:.1f}",
            f"{worker['load_after']:.1f}",
        )
    return table


def moves_table(plan: Json, most: int) -> Table:
    """One row for each pair of workers and reason."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in ("FROM", "TO", "REASON"):
        table.add_column(column, no_wrap=True)
    table.add_column("GROUPS", justify="right", no_wrap=True)
    for move in plan["moves"][:most]:
        target = Text(move["target"] or "NOBODY", style="" if move["target"] else "bold red")
        table.add_row(move["source"] or "-", target, str(move["reason"]), str(move["groups"]))
    return table


def _print(plan: Json) -> None:
    console = Console(soft_wrap=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)
    console.print(headline(plan))
    console.print()
    console.print(workers_table(plan))
    if plan["moves"]:
        console.print()
        console.print(moves_table(plan, SHOWN_MOVES))
        if len(plan["moves"]) > SHOWN_MOVES:
            more = len(plan["moves"]) - SHOWN_MOVES
            console.print(f"... and {more} more: -o json", style="dim")
    said = f"map {plan['epoch']}.{plan['version']}, answered by {plan['answered_by']}"
    if not plan["loads_known"]:
        said += "; only the leader knows loads: all groups count alike"
    console.print()
    console.print(said, style="dim", highlight=False)


def plan(arguments: argparse.Namespace) -> int:
    """Print it; 1 if groups would have no worker.

    Raises:
        Unreachable: no coordinator answers.
        Refused: the worker to be removed does not live.
        FleetError: a coordinator answers with something else.
    """
    if arguments.remove is not None:
        path = f"/api/v1/plan?remove={quote(arguments.remove, safe='')}"
    else:
        path = f"/api/v1/plan?workers={arguments.workers}"
    fleet = find_fleet(arguments.coordinator, arguments.state_file, environment())
    document = asyncio.run(_fetch(fleet, path))
    try:
        if arguments.output == "json":
            sys.stdout.write(json.dumps(document, indent=2) + "\n")
        else:
            _print(document)
        return 1 if any(move["target"] is None for move in document["moves"]) else 0
    except (KeyError, TypeError) as error:
        raise FleetError(f"the coordinator's answer lacks something: {error}") from error
