"""The shard map as tables for a terminal: pure, from the API's JSON to rich's tables."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.table import Table
from rich.text import Text

Json = Mapping[str, Any]
GOOD_STATES = {"alive": "green", "suspect": "yellow", "draining": "cyan", "dead": "red"}
PHASES = {
    "owned": "green",
    "moving": "cyan",
    "opening": "yellow",
    "unowned": "bold red",
    "quarantined": "red",
}


GAP = 2
EXPENDABLE = ("REASON", "SINCE", "STAND-BY")


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, GAP, 0, 0))
    numbers = {"OWNED", "STANDBY", "LOAD", "LAG"}
    for column in columns:
        table.add_column(column, justify="right" if column in numbers else "left", no_wrap=True)
    return table


def ago(since: str, now: datetime) -> str:
    """`4s`, `12m`, `3h`, `5d` since an RFC 3339 time; `?` if it is none."""
    try:
        then = datetime.fromisoformat(since)
    except ValueError:
        return "?"
    if then.tzinfo is None:
        then = then.replace(tzinfo=UTC)
    seconds = max(0, int((now - then).total_seconds()))
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _coloured(text: str, colours: Mapping[str, str]) -> Text:
    return Text(text, style=colours.get(text, ""))


def _load(load: object) -> str:
    """Streams a second: the number itself, or a member of a document of later versions."""
    if isinstance(load, Mapping):
        load = load.get("streams_per_second")
    return f"{load:.1f}" if isinstance(load, int | float) else "-"


def workers_table(workers: Json) -> Table:
    """One row a worker."""
    table = _table("WORKER", "STATE", "OWNED", "STANDBY", "LOAD", "LAG", "SEEN")
    for worker in workers["workers"]:
        state = _coloured(str(worker["state"]), GOOD_STATES)
        if worker.get("signal"):
            state.append(f" ({worker['signal']})", style="dim")
        lag = worker.get("loop_lag_ms")
        table.add_row(
            str(worker["id"]),
            state,
            str(worker["owned"]),
            str(worker["standby"]),
            _load(worker.get("load")),
            f"{lag:.0f} ms" if isinstance(lag, int | float) else "-",
            f"{worker['epoch']}.{worker['version']}",
        )
    return table


def concerns(workers: Json) -> list[Text]:
    """A line for each worker that is suspect or dead: what of, and since when."""
    return [
        Text(f"{worker['id']}: {worker['why']}", style="dim")
        for worker in workers["workers"]
        if worker.get("why")
    ]


def order(pools: Sequence[Json]) -> list[Json]:
    """What needs attention first: no owner, then what is on its way, then by name."""
    ranks = {"unowned": 0, "quarantined": 1, "opening": 2, "moving": 3}
    key = lambda pool: (ranks.get(pool["phase"], 9), pool["namespace"], pool["name"])  # noqa: E731
    return sorted(pools, key=key)


def pools_table(pools: Sequence[Json], now: datetime, width: int | None = None) -> Table:
    """One row a pool; what `width` has no room for is left out, the least telling column first."""
    columns: dict[str, list[Text]] = {
        "POOL": [Text(f"{pool['namespace']}/{pool['name']}") for pool in pools],
        "OWNER": [Text(", ".join(pool["owners"]) or "-") for pool in pools],
        "STAND-BY": [Text(pool["standby"] or "-") for pool in pools],
        "PHASE": [_coloured(str(pool["phase"]), PHASES) for pool in pools],
        "SINCE": [Text(ago(str(pool["since"]), now)) for pool in pools],
        "REASON": [Text(str(pool["reason"])) for pool in pools],
    }
    for name in EXPENDABLE:
        if width is None or _width(columns) <= width:
            break
        del columns[name]
    table = _table(*columns)
    for row in zip(*columns.values(), strict=True):
        table.add_row(*row)
    return table


def _width(columns: Mapping[str, Sequence[Text]]) -> int:
    widest = (
        max(len(name), *(each.cell_len for each in cells)) if cells else len(name)
        for name, cells in columns.items()
    )
    return sum(each + GAP for each in widest) - GAP


def unowned(shard_map: Json) -> list[str]:
    """Pools without an owner, as `namespace/name`."""
    return [f"{p['namespace']}/{p['name']}" for p in shard_map["pools"] if not p["owners"]]


def headline(shard_map: Json) -> Text:
    """Fleet, leader, epoch.version, and how many pools have an owner."""
    leader = shard_map.get("leader")
    text = Text(f"fleet {shard_map['fleet']}", style="bold")
    text.append("   leader ", style="not bold dim")
    text.append(leader["id"] if leader else "none", style="not bold" if leader else "bold red")
    text.append("   map ", style="not bold dim")
    text.append(f"{shard_map['epoch']}.{shard_map['version']}", style="not bold")
    total, missing = len(shard_map["pools"]), len(unowned(shard_map))
    text.append(f"   {total} pool{'' if total == 1 else 's'}", style="not bold")
    if missing:
        text.append(f", {missing} WITHOUT OWNER", style="bold red")
    return text
