"""`epp-fleet history [POOL]`: who moved from whom to whom, when, why, and how it ended."""

import argparse
import asyncio
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

import aiohttp
from rich.console import RenderableType
from rich.text import Text

from fleet.cli.fetching import lacking
from fleet.cli.naming import full_name, with_guess
from fleet.cli.output import UNCUT, make_console, printable, show, write_json
from fleet.cli.tables import Rows, ago, fitting
from fleet.cli.where import Fleet, environment, find_fleet
from fleet.local.faults import Refused

Json = Mapping[str, Any]
ANSWER_SECONDS = 5.0

COLUMNS = ("GROUP", "FROM", "TO", "REASON", "OUTCOME", "ENDED", "TOOK", "MAP")
EXPENDABLE = ("MAP", "TOOK")
OUTCOMES = {
    "done": "green",
    "moving": "cyan",
    "cancelled": "yellow",
    "deadline": "red",
    "gainer_dead": "red",
}


FAILED = ("deadline", "gainer_dead")
"""Hand-overs that did not come about: the pool stayed with the worker that had it."""


async def _fetch(fleet: Fleet, pool: str | None, limit: int) -> Json:
    async with aiohttp.ClientSession() as http:
        api = fleet.api(http, timeout_seconds=ANSWER_SECONDS)
        asked = {"limit": str(limit)}
        if pool is not None:
            asked["pool"] = "/".join(await full_name(api, pool))
        try:
            path = f"/api/v1/history?{urlencode(asked, safe='/')}"
            return await api.get(path, wanted="_pool")
        except Refused as error:
            raise await with_guess(api, error, pool or "", of="pools") from error


def summarize(history: Json) -> dict[str, int]:
    """How the moves shown ended. `failed`: the new owner was not ready in time or died, and the old
    one kept the pool; `after_death`: the old owner was dead, and what it was answering was cut."""
    moves = history["moves"]
    ends = Counter(str(move["outcome"]) for move in moves)
    return {
        "under_way": len(history["under_way"]),
        "ended": len(moves),
        "done": ends["done"],
        "cancelled": ends["cancelled"],
        "failed": sum(ends[outcome] for outcome in FAILED),
        "after_death": sum(1 for move in moves if move["reason"] == "owner_dead"),
    }


def verdict(summary: Mapping[str, int], limit: int) -> list[Text]:
    """Whether anything was lost, in a line or three. With as many moves as were asked for there may
    be older ones: then nothing is said of these."""
    ended = summary["ended"]
    moves = "move" if ended == 1 else "moves"
    older = ended >= limit
    words = f"the latest {ended} {moves} that ended" if older else f"{ended} {moves} ended"
    head = Text(words, style="bold")
    head.append(f", {summary['under_way']} under way", style="not bold")
    if summary["cancelled"]:
        head.append(f", {summary['cancelled']} called off", style="not bold")
    lines = [head]
    if summary["failed"]:
        text = (
            f"{summary['failed']} failed: the new owner was not ready in time or died; the old one "
            "kept serving"
        )
        lines.append(Text(text, style="red"))
    if summary["after_death"]:
        text = (
            f"{summary['after_death']} after a death: what the dead worker was deciding may have "
            "failed, and responses that it tracked were cut (detached ones were not)"
        )
        lines.append(Text(text, style="yellow"))
    if not summary["failed"] and not summary["after_death"]:
        lost = "; nothing was lost in these (more: --limit)" if older else "; nothing was lost"
        lines[0].append(lost, style="not bold green")
    return lines


def _took(started: str, finished: str) -> str:
    try:
        took = datetime.fromisoformat(finished) - datetime.fromisoformat(started)
    except ValueError:
        return "?"
    return f"{max(0.0, took.total_seconds()):.2f} s"


def moves_table(history: Json, now: datetime, width: int | None = None) -> Rows:
    """One row a move: what is under way, then what ended, the latest first; what `width` has no
    room for is left out."""
    columns: dict[str, list[Text]] = {name: [] for name in COLUMNS}
    for move in history["under_way"]:
        outcome = Text("moving", style=OUTCOMES["moving"])
        row = (move["group"], move["source"], move["target"], move["reason"], outcome)
        _add(columns, *row, "-", "-", "-")
    for move in history["moves"]:
        _add(
            columns,
            move["group"],
            move["source"] or "-",
            move["target"] or "-",
            move["reason"],
            Text(str(move["outcome"]), style=OUTCOMES.get(move["outcome"], "")),
            f"{ago(str(move['finished']), now)} ago",
            _took(str(move["started"]), str(move["finished"])),
            f"{move['epoch']}.{move['version']}",
        )
    return fitting(columns, width, EXPENDABLE)


def _add(columns: Mapping[str, list[Text]], *cells: object) -> None:
    for column, cell in zip(columns.values(), cells, strict=True):
        column.append(cell if isinstance(cell, Text) else Text(str(cell)))


def deaths(history: Json) -> list[Text]:
    """A line for each death that moved something, the latest first: what it was known by."""
    found = [
        f"{move['target'] if move['outcome'] == 'gainer_dead' else move['source']} in map "
        f"{move['epoch']}.{move['version']}: {move['why']}"
        for move in history["moves"]
        if move.get("why")
    ]
    return [Text(line, style="dim") for line in dict.fromkeys(found)]


def _print(history: Json, limit: int) -> None:
    console = make_console(UNCUT)
    if not history["under_way"] and not history["moves"]:
        show(console, "nothing has moved")
        return
    parts: list[RenderableType] = [*verdict(summarize(history), limit), ""]
    table = moves_table(history, datetime.now(UTC), console.width)
    show(console, *parts, table, *deaths(history))


def history(arguments: argparse.Namespace) -> int:
    """Print it.

    Raises:
        Unreachable: no coordinator answers.
        Refused: there is no such pool.
        SettingsError: a name without a namespace that is not that of exactly one pool.
        FleetError: a coordinator answers with something else.
    """
    fleet = find_fleet(arguments.coordinator, arguments.state_file, environment())
    try:
        document = asyncio.run(_fetch(fleet, arguments.pool, arguments.limit))
        if arguments.output == "json":
            write_json({**document, "summary": summarize(document)})
        else:
            _print(printable(dict(document)), arguments.limit)
    except (KeyError, TypeError, AttributeError) as error:
        raise lacking(error) from error
    return 0
