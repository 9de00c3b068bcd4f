"""`epp-fleet status`: the fleet at a glance; 1 if a pool has no owner."""

import argparse
import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import aiohttp

from fleet.cli.fetching import Snapshot, fetch, lacking
from fleet.cli.output import make_console, printable, show, write_json
from fleet.cli.summary import screen, summarize
from fleet.cli.where import Fleet, environment, find_fleet


def status_document(snapshot: Snapshot, now: datetime) -> Mapping[str, Any]:
    """The map, the workers, and `summary`."""
    summary = summarize(snapshot.shard_map, snapshot.workers, now)
    return {
        **snapshot.shard_map,
        "workers": list(snapshot.workers),
        "unowned": summary.unowned,
        "summary": summary.document(),
        "answered_by": snapshot.answered_by,
    }


async def _once(fleet: Fleet) -> Snapshot:
    async with aiohttp.ClientSession() as http:
        return await fetch(fleet.api(http))


def status(arguments: argparse.Namespace) -> int:
    """Print it, once or until Ctrl-C.

    Raises:
        SettingsError, Unreachable: see `find_fleet` and `fetch`.
        FleetError: a coordinator answers with something else.
    """
    fleet = find_fleet(arguments.coordinator, arguments.state_file, environment())
    if arguments.watch is not None:
        from fleet.cli.watching import watch

        return asyncio.run(watch(fleet, arguments.watch, as_json=arguments.output == "json"))
    snapshot = asyncio.run(_once(fleet))
    now = datetime.now(UTC)
    try:
        document = status_document(snapshot, now)
        if arguments.output == "json":
            write_json(document)
        else:
            console = make_console()
            shown = printable(dict(document))
            show(
                console,
                screen(shown, shown["workers"], now, width=console.width, height=console.height),
            )
        return 1 if document["unowned"] else 0
    except (KeyError, TypeError, AttributeError) as error:
        raise lacking(error) from error
