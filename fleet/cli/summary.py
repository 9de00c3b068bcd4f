"""A fleet at a glance: the facts of `status`, and how they look in one screen. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from fleet.cli.tables import (
    GOOD_STATES,
    PHASES,
    RANKS,
    concerns,
    order,
    pools_table,
    seconds_since,
    span,
    streams,
    unowned,
    workers_table,
)

Json = Mapping[str, Any]

FEWEST_ROWS = 3
"""Of workers and of pools, however small the screen."""

MOST_CONCERNS = 4
FEW_WORKERS = 5
"""Of those that are well, where not all fit: the fullest."""

NAME_LINES = 2
"""Lines for the names of pools without owner."""


@dataclass(frozen=True, slots=True)
class Balance:
    """How evenly pools lie on the workers that take them.

    Attributes:
        fewest, most: pools that one of them owns.
        fullest_to_mean: load (1 + streams per second a pool) of the fullest by the mean, weights
            considered; 0 without workers or pools.
    """

    fewest: int
    most: int
    fullest_to_mean: float


@dataclass(frozen=True, slots=True)
class Summary:
    """What one looks for first.

    Attributes:
        map_age_seconds: since the map was published; it stays as it is while nothing changes.
        phases, workers: how many of each, by phase and by state.
        moves_pending: pools whose new owner is opening them.
    """

    fleet: str
    leader: str | None
    map: str
    map_age_seconds: float | None
    pools: int
    phases: dict[str, int]
    unowned: list[str]
    moves_pending: int
    workers: dict[str, int]
    balance: Balance

    def document(self) -> dict[str, Any]:
        """As JSON members."""
        return asdict(self)


def summarize(shard_map: Json, workers: Sequence[Json], now: datetime) -> Summary:
    """Count it."""
    pools, leader = shard_map["pools"], shard_map["leader"]
    age = seconds_since(str(shard_map["published_at"]), now)
    return Summary(
        fleet=str(shard_map["fleet"]),
        leader=str(leader["id"]) if leader else None,
        map=f"{shard_map['epoch']}.{shard_map['version']}",
        map_age_seconds=None if age is None else round(age, 3),
        pools=len(pools),
        phases=_counted((str(pool["phase"]) for pool in pools), RANKS),
        unowned=unowned(shard_map),
        moves_pending=sum(1 for pool in pools if pool.get("moving_to")),
        workers=_counted((str(worker["state"]) for worker in workers), GOOD_STATES),
        balance=_balance(workers),
    )


def _counted(words: Iterable[str], first: Iterable[str]) -> dict[str, int]:
    counts, ordered = Counter(words), list(first)
    rank = lambda word: (ordered.index(word) if word in ordered else 99, word)  # noqa: E731
    return {word: counts[word] for word in sorted(counts, key=rank)}


def _balance(workers: Sequence[Json]) -> Balance:
    taking = [worker for worker in workers if worker["state"] in ("alive", "suspect")]
    if not taking:
        return Balance(0, 0, 0.0)
    owned = [int(worker["owned"]) for worker in taking]
    weights = [max(1, int(worker.get("weight", 1))) for worker in taking]
    loads = [own + (streams(worker) or 0.0) for own, worker in zip(owned, taking, strict=True)]
    total = sum(loads)
    fullest = max(load / weight for load, weight in zip(loads, weights, strict=True))
    ratio = fullest * sum(weights) / total if total else 0.0
    return Balance(min(owned), max(owned), round(ratio, 3))


def _head(summary: Summary) -> Text:
    text = Text(f"fleet {summary.fleet}", style="bold")
    text.append("   leader ", style="not bold dim")
    if summary.leader is None:
        text.append("NONE", style="bold red")
    else:
        text.append(summary.leader, style="not bold")
    text.append("   map ", style="not bold dim")
    text.append(summary.map, style="not bold")
    text.append(f", published {span(summary.map_age_seconds)} ago", style="not bold dim")
    return text


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _listed(counts: Mapping[str, int], colours: Mapping[str, str]) -> Text:
    parts = [Text(f"{count} {word}", style=colours.get(word, "")) for word, count in counts.items()]
    return Text(", ").join(parts)


def _pools(summary: Summary) -> Text:
    text = Text(_plural(summary.pools, "pool"))
    if summary.phases:
        text.append(": ").append_text(_listed(summary.phases, PHASES))
    if summary.moves_pending:
        text.append(f"   {_plural(summary.moves_pending, 'move')} pending", style="cyan")
    return text


def _workers(summary: Summary) -> Text:
    total = sum(summary.workers.values())
    text = Text(_plural(total, "worker"))
    if summary.workers:
        text.append(": ").append_text(_listed(summary.workers, GOOD_STATES))
    balance = summary.balance
    if balance.fullest_to_mean:
        each = (
            f"{balance.fewest}"
            if balance.fewest == balance.most
            else f"{balance.fewest} to {balance.most}"
        )
        text.append(f"   {each} pools each, fullest {balance.fullest_to_mean:.2f} x mean")
    return text


def _missing(names: Sequence[str], width: int) -> Text:
    """Pools without owner by name, as many as `NAME_LINES` hold."""
    text = f"NO OWNER: {names[0]}"
    shown = 1
    for name in names[1:]:
        more = f", {name}"
        rest = len(names) - shown - 1
        tail = f" and {rest} more (epp-fleet pools --phase unowned)" if rest else ""
        if len(text) + len(more) + len(tail) > NAME_LINES * width - 10:
            break
        text += more
        shown += 1
    if shown < len(names):
        text += f" and {len(names) - shown} more (epp-fleet pools --phase unowned)"
    return Text(text, style="bold red")


def _urgent_workers(workers: Sequence[Json]) -> list[Json]:
    """Dead and suspect ones first, then the fullest."""
    ranks = {"dead": 0, "suspect": 1, "draining": 2}

    def urgency(worker: Json) -> tuple[int, float]:
        load = int(worker["owned"]) + (streams(worker) or 0.0)
        return ranks.get(str(worker["state"]), 9), -load

    return sorted(workers, key=urgency)


def _more(count: int, noun: str, command: str) -> Text:
    return Text(f"... and {_plural(count, f'more {noun}')}: {command}", style="dim")


def screen(
    shard_map: Json, workers: Sequence[Json], now: datetime, *, width: int, height: int
) -> RenderableType:
    """Everything, within `height` rows: the summary, then workers and pools as far as they fit,
    those that need attention first."""
    summary = summarize(shard_map, workers, now)
    parts: list[RenderableType] = [_head(summary), _pools(summary)]
    if summary.unowned:
        parts.append(_missing(summary.unowned, width))
    parts.append(_workers(summary))
    used = 3 + (NAME_LINES if summary.unowned else 0) + 3
    why = concerns(workers)
    shown_why = why[:MOST_CONCERNS]
    left = max(0, height - used - len(shown_why) - (len(why) > MOST_CONCERNS) - 2)
    pools = order(shard_map["pools"])
    worker_rows = max(FEWEST_ROWS, min(len(workers), left - min(len(pools), left // 2)))
    ranked = workers
    if worker_rows < len(workers):
        ranked = _urgent_workers(workers)
        unwell = sum(1 for worker in workers if worker["state"] != "alive")
        worker_rows = min(worker_rows, max(unwell, FEW_WORKERS))
    if workers:
        parts += [Text(), workers_table(ranked[:worker_rows], width)]
        if len(workers) > worker_rows:
            parts.append(_more(len(workers) - worker_rows, "worker", "epp-fleet workers"))
            left -= 1
    parts += shown_why
    if len(why) > MOST_CONCERNS:
        parts.append(_more(len(why) - MOST_CONCERNS, "remark", "epp-fleet workers"))
    pool_rows = max(FEWEST_ROWS, left - min(len(workers), worker_rows))
    parts += _pool_rows(pools, pool_rows, now, width)
    return Group(*parts)


def _pool_rows(pools: Sequence[Json], rows: int, now: datetime, width: int) -> list[RenderableType]:
    """All pools if there are few, else those that are not just owned."""
    if not pools:
        return [Text(), Text("no pool is placed yet", style="dim")]
    if len(pools) <= rows:
        return [Text(), pools_table(pools, now, width)]
    special = [pool for pool in pools if pool["phase"] != "owned"][: rows - 1]
    more = len(pools) - len(special)
    if not special:
        return [Text(), Text(f"all {more} have an owner: epp-fleet pools", style="dim")]
    return [Text(), pools_table(special, now, width), _more(more, "pool", "epp-fleet pools")]
