"""`epp-fleet pools` and `workers`: all of them, or those asked for, in the order asked for."""

import argparse
import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import aiohttp
from rich.text import Text

from fleet.cli.fetching import fetch, lacking
from fleet.cli.naming import did_you_mean
from fleet.cli.output import UNCUT, make_console, printable, show, write_json
from fleet.cli.tables import (
    RANKS,
    concerns,
    pool_name,
    pools_table,
    streams,
    workers_table,
)
from fleet.cli.where import environment, find_fleet
from fleet.local.faults import Refused

Json = Mapping[str, Any]
FORMAT = 1

POOL_KEYS: Mapping[str, Callable[[Json], Any]] = {
    "name": pool_name,
    "phase": lambda pool: RANKS.get(pool["phase"], 9),
    "owner": lambda pool: list(pool["owners"]),
    "since": lambda pool: str(pool["since"]),
    "reason": lambda pool: str(pool["reason"]),
}
WORKER_KEYS: Mapping[str, Callable[[Json], Any]] = {
    "id": lambda worker: str(worker["id"]),
    "state": lambda worker: str(worker["state"]),
    "owned": lambda worker: int(worker["owned"]),
    "load": lambda worker: streams(worker) or 0.0,
    "lag": lambda worker: float(worker.get("loop_lag_ms") or 0.0),
    "zone": lambda worker: str(worker.get("zone") or ""),
}


def _sorted(
    found: Sequence[Json], key: Callable[[Json], Any], then: Callable[[Json], Any], *, reverse: bool
) -> list[Json]:
    """By one thing, names in order among equals also where the rest is reversed."""
    return sorted(sorted(found, key=then), key=key, reverse=reverse)


def chosen_pools(pools: Sequence[Json], arguments: argparse.Namespace) -> list[Json]:
    """Those asked for."""
    found = [
        pool
        for pool in pools
        if (not arguments.phase or pool["phase"] in arguments.phase)
        and (not arguments.owner or set(arguments.owner) & set(pool["owners"]))
        and (not arguments.namespace or pool["namespace"] in arguments.namespace)
    ]
    return _sorted(found, POOL_KEYS[arguments.sort], pool_name, reverse=arguments.reverse)


def chosen_workers(workers: Sequence[Json], arguments: argparse.Namespace) -> list[Json]:
    """Those asked for."""
    found = [
        worker
        for worker in workers
        if (not arguments.state or worker["state"] in arguments.state)
        and (not arguments.zone or worker.get("zone") in arguments.zone)
    ]
    key = WORKER_KEYS[arguments.sort]
    return _sorted(found, key, WORKER_KEYS["id"], reverse=arguments.reverse)


def _nothing(kind: str, total: int, guess: str) -> Text:
    text = f"no {kind} is there yet" if not total else f"none of {total} {kind}s is like that"
    return Text(f"{text}; {guess}" if guess else text, style="dim")


def _guess(typed: Sequence[str], known: set[str]) -> str:
    """What was meant by a name that nothing has."""
    unknown = [name for name in typed if name not in known]
    return did_you_mean(unknown[0], known) if unknown else ""


def _check_owners(owners: Sequence[str], workers: Sequence[Json], pools: Sequence[Json]) -> None:
    """Raises Refused if one of them is no worker. A worker that the coordinator has forgotten may
    still stand in the map."""
    known = {str(worker["id"]) for worker in workers}
    known.update(str(owner) for pool in pools for owner in pool["owners"])
    for owner in owners:
        if owner not in known:
            guess = did_you_mean(owner, known)
            said = f"no worker {owner!r}" + (f"; {guess}" if guess else "")
            raise Refused(said, status=404, code="unknown_worker")


def pools(arguments: argparse.Namespace) -> int:
    """Print the pools.

    Raises:
        SettingsError, Unreachable: see `find_fleet` and `fetch`.
        Refused: a worker that is to be the owner does not exist.
        FleetError: a coordinator answers with something else.
    """
    everything, workers = _fetched(arguments)
    try:
        _check_owners(arguments.owner or (), workers, everything)
        found = chosen_pools(everything, arguments)
        if arguments.output == "json":
            write_json({"format": FORMAT, "pools": found})
            return 0
        console = make_console(UNCUT)
        shown = printable(list(found))
        if shown:
            show(console, pools_table(shown, datetime.now(UTC), console.width))
        else:
            namespaces = {str(pool["namespace"]) for pool in everything}
            guess = _guess(arguments.namespace or [], namespaces)
            show(console, _nothing("pool", len(everything), guess))
    except (KeyError, TypeError, AttributeError) as error:
        raise lacking(error) from error
    return 0


def workers(arguments: argparse.Namespace) -> int:
    """Print the workers; raises as `pools`."""
    _, everything = _fetched(arguments)
    try:
        found = chosen_workers(everything, arguments)
        if arguments.output == "json":
            write_json({"format": FORMAT, "workers": found})
            return 0
        console = make_console(UNCUT)
        shown = printable(list(found))
        if shown:
            show(console, workers_table(shown, console.width, wide=True), *concerns(shown))
        else:
            zones = {str(worker.get("zone")) for worker in everything}
            guess = _guess(arguments.zone or [], zones)
            show(console, _nothing("worker", len(everything), guess))
    except (KeyError, TypeError, AttributeError) as error:
        raise lacking(error) from error
    return 0


def _fetched(arguments: argparse.Namespace) -> tuple[list[Json], list[Json]]:
    fleet = find_fleet(arguments.coordinator, arguments.state_file, environment())

    async def read() -> tuple[list[Json], list[Json]]:
        async with aiohttp.ClientSession() as http:
            snapshot = await fetch(fleet.api(http))
            try:
                return list(snapshot.shard_map["pools"]), list(snapshot.workers)
            except (KeyError, TypeError) as error:
                raise lacking(error) from error

    return asyncio.run(read())
