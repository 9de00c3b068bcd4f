"""`epp-fleet plan`: what would move if workers came or went."""

import argparse
import asyncio
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import aiohttp
from rich.table import Table
from rich.text import Text

from fleet.cli.fetching import lacking
from fleet.cli.naming import with_guess
from fleet.cli.output import UNCUT, make_console, printable, show, write_json
from fleet.cli.where import Fleet, environment, find_fleet
from fleet.local.faults import Refused, Unreachable

Json = Mapping[str, Any]
SHOWN_MOVES = 20
SHOWN_WORKERS = 40

ANSWER_SECONDS = 15.0
"""10,000 groups on 1,000 workers take a coordinator some seconds."""

LEADER_SECONDS = 15.0

FATES = {"leaves": "yellow", "joins": "green"}


async def _fetch(fleet: Fleet, path: str, remove: str | None) -> Json:
    async with aiohttp.ClientSession() as http:
        api = fleet.api(http, timeout_seconds=ANSWER_SECONDS)
        try:
            document = await api.get(path, wanted="_worker")
        except Refused as error:
            raise await with_guess(api, error, remove or "", of="workers") from error
        leader = document["leader"]
        if document["loads_known"] or leader is None:
            return document
        try:  # only the leader knows loads
            asked = fleet.leader_api(http, leader, timeout_seconds=LEADER_SECONDS)
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
    table.add_column("WORKER", overflow="fold")
    table.add_column("FATE", no_wrap=True)
    for column in ("OWNED", "WOULD OWN", "LOAD", "WOULD CARRY"):
        table.add_column(column, no_wrap=True, justify="right")
    for worker in plan["workers"][:SHOWN_WORKERS]:
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
        table.add_column(column, overflow="fold", no_wrap=column == "REASON")
    table.add_column("GROUPS", justify="right", no_wrap=True)
    for move in plan["moves"][:most]:
        target = Text(move["target"] or "NOBODY", style="" if move["target"] else "bold red")
        table.add_row(move["source"] or "-", target, str(move["reason"]), str(move["groups"]))
    return table


def _more(count: int) -> list[Text]:
    return [Text(f"... and {count} more: -o json", style="dim")] if count > 0 else []


def _print(plan: Json) -> None:
    console = make_console(UNCUT)
    show(console, headline(plan), "", workers_table(plan))
    show(console, *_more(len(plan["workers"]) - SHOWN_WORKERS))
    if plan["moves"]:
        show(console, "", moves_table(plan, SHOWN_MOVES))
        show(console, *_more(len(plan["moves"]) - SHOWN_MOVES))
    said = f"map {plan['epoch']}.{plan['version']}, answered by {plan['answered_by']}"
    if not plan["loads_known"]:
        said += "; only the leader knows loads: all groups count alike"
    show(console, "", Text(said, style="dim"))


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
    try:
        document = asyncio.run(_fetch(fleet, path, arguments.remove))
        if arguments.output == "json":
            write_json(document)
        else:
            _print(printable(dict(document)))
        return 1 if any(move["target"] is None for move in document["moves"]) else 0
    except (KeyError, TypeError, AttributeError) as error:
        raise lacking(error) from error
