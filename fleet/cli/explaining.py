"""`epp-fleet explain`: one pool, why it is ours or not, and who serves it."""

import argparse
import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import aiohttp
from rich.text import Text

from fleet.cli.considered import considered_table
from fleet.cli.facts import Facts
from fleet.cli.fetching import lacking
from fleet.cli.naming import full_name, with_guess
from fleet.cli.output import make_console, printable, show, write_json
from fleet.cli.picker_configs import config_table
from fleet.cli.tables import GOOD_STATES, PHASES, ago
from fleet.cli.where import Fleet, environment, find_fleet
from fleet.local.faults import Refused, Unreachable

Json = Mapping[str, Any]
PIPE_WIDTH, PIPE_WIDTH_OF_PLUGINS = 80, 100
"""Columns when the output is no terminal: the text is meant to be read, and names of parameters are
not to be cut in two."""

LEADER_SECONDS = 1.0
"""From outside of a cluster the leader's own address often cannot be reached."""

IGNORED = ("InvalidAlsoServe", "InvalidPin", "InvalidResponsePhase")
"""Reasons that are about an annotation; the pool is served without it."""

STATES = {"claimed": "green", "refused": "bold red", "not_ours": "yellow", "gone": "yellow"}


async def _fetch(fleet: Fleet, pool: str) -> Json:
    async with aiohttp.ClientSession() as http:
        api = fleet.api(http)
        namespace, name = await full_name(api, pool)
        path = f"/api/v1/pools/{quote(namespace, safe='')}/{quote(name, safe='')}"
        try:
            document = await api.get(path, wanted="_pool")
        except Refused as error:
            raise await with_guess(api, error, pool, of="pools") from error
        return await _completed(http, document, path, fleet)


async def _completed(http: aiohttp.ClientSession, document: Json, path: str, fleet: Fleet) -> Json:
    """What the leader says, if a follower did not know everything; if not reached, what we have."""
    leader = document["leader"]
    if not document["unknown_here"] or leader is None:
        return document
    try:
        asked = fleet.leader_api(http, leader, timeout_seconds=LEADER_SECONDS)
        return await asked.get(path, wanted="_pool")
    except (Unreachable, Refused, ValueError):
        return document


def _owned(document: Json) -> bool:
    return any(group["owners"] for group in document["groups"])


def _names(names: list[str]) -> str:
    return ", ".join(names) or "-"


def overview(document: Json) -> Facts:
    """The pool itself: claim, refusals, problems."""
    facts, claim = Facts(), document["claim"]
    facts.add("pool", Text(f"{document['namespace']}/{document['name']}", style="bold"))
    if document["uid"]:
        facts.add("uid", str(document["uid"]))
    state = Text(str(claim["state"]).replace("_", " "), style=STATES.get(claim["state"], ""))
    facts.add("claim", state.append(f": {claim['why']}", style="not bold default"))
    for refusal in document["refusals"]:
        ignored = refusal["reason"] in IGNORED
        text = Text(str(refusal["reason"]), style="yellow" if ignored else "red")
        facts.add(
            "warning" if ignored else "refused",
            text.append(f": {refusal['message']}", style="default"),
        )
    for problem in document["problems"]:
        facts.add("skipped", str(problem))
    picking = document.get("picking")
    if picking:
        name = Text(str(picking["name"]))
        if picking["problem"]:
            name.append(f"; {picking['problem']}", style="yellow")
        facts.add("picks by", name)
        facts.add("", Text(_plugins(picking["rows"]), style="dim"))
        for warning in picking["warnings"]:
            facts.add("", Text(str(warning), style="yellow"))
    return facts


def _plugins(rows: Sequence[Json]) -> str:
    """Those that have a say, scorers with their weights."""
    said = [
        str(row["plugin"]) + ("" if row["weight"] is None else f" x{row['weight']:g}")
        for row in rows
        if row["role"] in ("filter", "scorer", "picker") and not row["left_out"]
    ]
    return ", ".join(dict.fromkeys(said))


def group_table(group: Json, now: datetime) -> Facts:
    """One route group: Service, route, owners."""
    facts = Facts()
    title = Text(str(group["group"]), style="bold")
    facts.add("group", title.append(f"  ({group['role']})", style="not bold dim"))
    facts.add("owner", Text(_names(group["owners"]), style="bold"))
    facts.add("stand-by", group["standby"] or "-")
    phase = Text(str(group["phase"]), style=PHASES.get(group["phase"], ""))
    if group["since"]:
        since = f" for {ago(group['since'], now)} (since {group['since']})"
        phase.append(since, style="not bold default")
    facts.add("phase", phase)
    if group.get("note"):
        facts.add("note", Text(str(group["note"]), style="yellow"))
    if group["reason"]:
        facts.add("reason", str(group["reason"]))
    if group["moving_to"]:
        facts.add("moving to", str(group["moving_to"]))
    if group["draining"]:
        facts.add("draining", _names(group["draining"]))
    for worker in group.get("unwell", ()):
        text = Text(f"{worker['id']} is {worker['state']}", style=GOOD_STATES[worker["state"]])
        why = worker["why"] or worker["signal"]
        facts.add("unwell", text.append(f": {why}", style="default"))
    if not group.get("considered"):
        facts.add("ring", _names(group["candidates"]))
    if group.get("pin"):
        facts.add("pin", _pin(group["pin"]))
    if group["service"] is not None:
        facts.add("service", _service(group["service"]))
    if group["route"] is not None:
        facts.add("route", _route(group["route"]))
    return facts


def _service(service: Json) -> Text:
    text = Text(f"{service['name']}:{service['port']}, {service['state']}".replace("_", " "))
    if service["note"]:
        text.append(f"; {service['note']}", style="yellow")
    if service["error"]:
        text.append(f"; {service['error']}", style="red")
    return text


def _pin(pin: Json) -> Text:
    if pin["workers"]:
        return Text(f"{pin['text']}: {_names(pin['workers'])}")
    text = Text(str(pin["text"]))
    return text.append("; no worker meets it, so it is placed as without a pin", style="yellow")


def _route(route: Json) -> str:
    parts = [_names(route["addresses"])]
    if route["version"]:
        parts.append(f"written as {route['version']}")
    if route["where"]:
        parts.append(f"in {route['where']}")
    return ", ".join(parts)


def _print(document: Json, *, plugins: bool) -> None:
    console = make_console(PIPE_WIDTH)
    show(console, overview(document))
    now = datetime.now(UTC)
    for group in document["groups"]:
        show(console, "", group_table(group, now))
        if group.get("considered"):
            show(console, "", considered_table(group["considered"]))
    picking = document.get("picking")
    if picking and plugins:
        wide = make_console(PIPE_WIDTH_OF_PLUGINS)
        show(wide, "", config_table(picking["rows"], wide.width))
    leader = document["leader"]
    version = "none" if document["epoch"] is None else f"{document['epoch']}.{document['version']}"
    said = f"map {version}, leader {leader['id'] if leader else 'none'}, answered by "
    show(console, "", Text(f"{said}{document['answered_by']}", style="dim"))
    name = f"{document['namespace']}/{document['name']}"
    show(console, Text(f"was anything lost:  epp-fleet history {name}", style="dim"))
    owners = [owner for group in document["groups"] for owner in group["owners"]]
    if owners:
        text = f"without its owner:  epp-fleet plan --remove {owners[0]}"
        show(console, Text(text, style="dim"))
    if document["unknown_here"]:
        missing = ", ".join(document["unknown_here"])
        show(console, Text(f"only the leader knows: {missing}", style="dim"))


def explain(arguments: argparse.Namespace) -> int:
    """Print it; 1 if nobody owns the pool.

    Raises:
        Unreachable: no coordinator answers.
        Refused: there is no such pool.
        SettingsError: a name without a namespace that is not that of exactly one pool.
        FleetError: a coordinator answers with something else.
    """
    fleet = find_fleet(arguments.coordinator, arguments.state_file, environment())
    try:
        document = asyncio.run(_fetch(fleet, arguments.pool))
        if arguments.output == "json":
            write_json(document)
        else:
            _print(printable(dict(document)), plugins=arguments.picking)
        return 0 if _owned(document) else 1
    except (KeyError, TypeError, AttributeError) as error:
        raise lacking(error) from error
