"""What is another in one look at a fleet than in the look before: a line for each. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from fleet.cli.fetching import Snapshot
from fleet.cli.summary import Summary
from fleet.cli.tables import pool_name

Json = Mapping[str, Any]

MOST = 20
"""Lines of one look; the rest is counted."""


def opening_line(summary: Summary) -> str:
    """How it is to begin with."""
    phases = ", ".join(f"{count} {phase}" for phase, count in summary.phases.items()) or "none"
    workers = ", ".join(f"{count} {state}" for state, count in summary.workers.items()) or "none"
    return f"leader {summary.leader or 'none'}; pools: {phases}; workers: {workers}"


def changes(before: Snapshot, after: Snapshot) -> list[str]:
    """The leader first, then workers, then pools; loads and lags are no changes."""
    found = [
        *_leader(before.shard_map, after.shard_map),
        *_workers(before, after),
        *_pools(before.shard_map, after.shard_map),
    ]
    if len(found) > MOST:
        found[MOST:] = [f"... and {len(found) - MOST} more changes"]
    return found


def _leader(before: Json, after: Json) -> Iterator[str]:
    one, two = (_id(each["leader"]) for each in (before, after))
    if one != two:
        yield f"leader {one} -> {two}"


def _id(leader: Json | None) -> str:
    return str(leader["id"]) if leader else "none"


def _workers(before: Snapshot, after: Snapshot) -> Iterator[str]:
    old = {str(each["id"]): each for each in before.workers}
    new = {str(each["id"]): each for each in after.workers}
    for name, worker in new.items():
        known = old.get(name)
        if known is None:
            yield f"worker {name}: new, {worker['state']}"
        elif known["state"] != worker["state"]:
            why = f" ({worker['why']})" if worker.get("why") else ""
            yield f"worker {name}: {known['state']} -> {worker['state']}{why}"
        elif known.get("incarnation") != worker.get("incarnation"):
            yield f"worker {name}: another incarnation, {worker['state']}"
    yield from (f"worker {name}: gone" for name in old.keys() - new.keys())


def _pools(before: Json, after: Json) -> Iterator[str]:
    old = {pool_name(pool): pool for pool in before["pools"]}
    new = {pool_name(pool): pool for pool in after["pools"]}
    for name, pool in new.items():
        if name not in old:
            yield f"pool {name}: new, {pool['phase']}, owner {_owner(pool)}"
        elif said := _moved(old[name], pool):
            yield f"pool {name}: {said}"
    yield from (f"pool {name}: gone" for name in old.keys() - new.keys())


def _owner(pool: Json) -> str:
    return ", ".join(map(str, pool["owners"])) or "none"


def _moved(old: Json, new: Json) -> str:
    """In words; "" if it is where it was."""
    parts = []
    if old["owners"] != new["owners"]:
        parts.append(f"owner {_owner(old)} -> {_owner(new)} ({new['reason']})")
    if old["phase"] != new["phase"]:
        target = f" to {new['moving_to']}" if new.get("moving_to") else ""
        parts.append(f"{old['phase']} -> {new['phase']}{target}")
    if old["standby"] != new["standby"]:
        parts.append(f"stand-by {old['standby'] or 'none'} -> {new['standby'] or 'none'}")
    return ", ".join(parts)
