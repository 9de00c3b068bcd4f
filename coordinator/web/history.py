"""`GET /api/v1/history?pool=NS/NAME&limit=N`: moves under way and moves that ended. Pure."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from coordinator.web.documents import FORMAT, LeaderDocument, timestamp
from fleet.model import GroupKey, LeaderInfo, Phase, PoolRef, ShardMap
from fleet.store.contract import MAX_MOVES, Move

DEFAULT_LIMIT = 100
MAX_LIMIT = 1000


class Asked(NamedTuple):
    """Of which pool (None = all), and how many moves at most."""

    pool: PoolRef | None
    limit: int


class UnderWayDocument(msgspec.Struct, frozen=True):
    """A move whose gainer is opening the group; `source` serves it meanwhile."""

    group: str
    source: str
    target: str
    reason: str


class MoveDocument(msgspec.Struct, frozen=True):
    """A move that ended. `source` is null for a first owner; `outcome`: done | deadline (the gainer
    was not ready in time) | cancelled | gainer_dead; `why` is what an owner was found dead by."""

    group: str
    source: str | None
    target: str | None
    reason: str
    outcome: str
    started: str
    finished: str
    epoch: int
    version: int
    why: str


class HistoryDocument(msgspec.Struct, frozen=True):
    """`moves`: the latest first; about the last 10,000 are kept, in the store alone."""

    format: int
    under_way: list[UnderWayDocument]
    moves: list[MoveDocument]
    leader: LeaderDocument | None
    answered_by: str


def asked_of(query: Mapping[str, str]) -> Asked:
    """What a request asks for.

    Raises:
        ValueError: says how to ask.
    """
    if set(query) - {"pool", "limit"}:
        raise ValueError("ask with pool=NAMESPACE/NAME and limit=NUMBER, or without")
    limit = query.get("limit", str(DEFAULT_LIMIT))
    digits = limit.isascii() and limit.isdecimal() and len(limit) <= 4
    if not (digits and 1 <= int(limit) <= MAX_LIMIT):
        raise ValueError(f"limit={limit[:20]!r} is no number from 1 to {MAX_LIMIT}")
    if "pool" not in query:
        return Asked(None, int(limit))
    namespace, slash, name = query["pool"].partition("/")
    if not (namespace and slash and name):
        raise ValueError(f"pool={query['pool'][:300]!r} is not of the form NAMESPACE/NAME")
    return Asked(PoolRef(namespace, name), int(limit))


def groups_of(shard_map: ShardMap | None, pool: PoolRef) -> frozenset[GroupKey]:
    """The route groups that the map has for a pool."""
    placements = () if shard_map is None else shard_map.placements.values()
    return frozenset(
        placement.group
        for placement in placements
        if any(each.ref == pool for each in placement.pools)
    )


def to_read(asked: Asked) -> int:
    """How many moves must be read from the store to answer: one pool's may be anywhere."""
    return asked.limit if asked.pool is None else MAX_MOVES


def history_document(
    asked: Asked,
    shard_map: ShardMap | None,
    moves: Sequence[Move],
    *,
    leader: LeaderInfo | None,
    answered_by: str,
) -> HistoryDocument:
    """The whole document.

    Args:
        moves: the latest first.
    """
    wanted = None if asked.pool is None else groups_of(shard_map, asked.pool)
    names = None if wanted is None else {str(group) for group in wanted}
    ended = [move for move in moves if names is None or move.group in names]
    placements = () if shard_map is None else shard_map.placements.values()
    under_way = [
        UnderWayDocument(str(p.group), p.owners[0], p.moving_to, p.reason.value)
        for p in placements
        if p.phase is Phase.MOVING
        and p.owners
        and p.moving_to is not None
        and (wanted is None or p.group in wanted)
    ]
    return HistoryDocument(
        format=FORMAT,
        under_way=sorted(under_way, key=lambda each: each.group)[: asked.limit],
        moves=[_move(move) for move in ended[: asked.limit]],
        leader=None if leader is None else LeaderDocument(leader.id, leader.http),
        answered_by=answered_by,
    )


def _move(move: Move) -> MoveDocument:
    return MoveDocument(
        group=move.group,
        source=move.source or None,
        target=move.target or None,
        reason=move.reason,
        outcome=move.outcome,
        started=timestamp(move.started),
        finished=timestamp(move.finished),
        epoch=move.version.epoch,
        version=move.version.version,
        why=move.why,
    )
