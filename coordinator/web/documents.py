"""The map and the workers as the API shows them: facts to JSON documents. Pure."""

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from fleet.model import LeaderInfo, MemberStatus, Placement, PoolRef, ShardMap

FORMAT = 1


class LeaderDocument(msgspec.Struct, frozen=True):
    """Who leads."""

    id: str
    http: str


class PoolDocument(msgspec.Struct, frozen=True):
    """One pool of the map; pools of one group have the same placement. `moving_to` is the gainer of
    a move that has begun; `draining` are former owners to which streams may still stray."""

    namespace: str
    name: str
    group: str
    owners: tuple[str, ...]
    standby: str | None
    phase: str
    since: str
    reason: str
    moving_to: str | None
    draining: tuple[str, ...]


class MapDocument(msgspec.Struct, frozen=True):
    """`GET /api/v1/map`."""

    format: int
    fleet: str
    epoch: int
    version: int
    published_at: str
    leader: LeaderDocument | None
    pools: list[PoolDocument]


class WorkerDocument(msgspec.Struct, frozen=True):
    """One worker. `load` is its ext_proc streams per second, smoothed over about 10 s; `epoch` and
    `version` are the highest that it has seen; `why` names every signal that made it suspect or
    dead, with its age, and is empty for whoever is well; `weight` is its share of the ring relative
    to others, `build` the version of its program."""

    id: str
    incarnation: str
    state: str
    signal: str | None
    ext_proc: str
    health: str
    internal: str
    http: str
    owned: int
    standby: int
    load: float
    epoch: int
    version: int
    loop_lag_ms: float
    why: str = ""
    weight: int = 1
    streams_open: int = 0
    zone: str = ""
    node: str = ""
    build: str = ""


class WorkersDocument(msgspec.Struct, frozen=True):
    """`GET /api/v1/workers`."""

    format: int
    workers: list[WorkerDocument]


def timestamp(wall: float) -> str:
    """Wall-clock seconds as RFC 3339 in UTC, with milliseconds and `Z`."""
    return datetime.fromtimestamp(wall, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


def leader_document(leader: LeaderInfo | None) -> LeaderDocument | None:
    """Who leads, if anybody does."""
    return None if leader is None else LeaderDocument(leader.id, leader.http)


def map_document(shard_map: ShardMap, leader: LeaderInfo | None) -> MapDocument:
    """The map, its pools ordered by namespace and name.

    Args:
        leader: who leads now, which need not be who published the map.
    """
    rows: list[tuple[PoolRef, PoolDocument]] = []
    for placement in shard_map.placements.values():
        rows.extend(pool_rows(placement))
    rows.sort(key=lambda row: row[0])
    return MapDocument(
        format=FORMAT,
        fleet=shard_map.fleet,
        epoch=shard_map.version.epoch,
        version=shard_map.version.version,
        published_at=timestamp(shard_map.published_at),
        leader=leader_document(leader),
        pools=[row for _, row in rows],
    )


def pool_rows(placement: Placement) -> list[tuple[PoolRef, PoolDocument]]:
    """The pools of one placement."""
    group, since = str(placement.group), timestamp(placement.since)
    return [
        (
            pool.ref,
            PoolDocument(
                namespace=pool.ref.namespace,
                name=pool.ref.name,
                group=group,
                owners=placement.owners,
                standby=placement.standby,
                phase=placement.phase.value,
                since=since,
                reason=placement.reason.value,
                moving_to=placement.moving_to,
                draining=placement.draining,
            ),
        )
        for pool in placement.pools
    ]


def workers_document(members: Sequence[MemberStatus]) -> WorkersDocument:
    """The workers, in the given order."""
    return WorkersDocument(FORMAT, [worker_document(each) for each in members])


def worker_document(status: MemberStatus) -> WorkerDocument:
    """One worker."""
    member = status.member
    return WorkerDocument(
        id=member.id,
        incarnation=member.incarnation,
        state=status.state.value,
        signal=None if status.signal is None else status.signal.value,
        ext_proc=member.addresses.ext_proc,
        health=member.addresses.health,
        internal=member.addresses.internal,
        http=member.addresses.http,
        owned=status.owned,
        standby=status.standby,
        load=round(member.load.streams_per_second, 3),
        epoch=member.seen.epoch,
        version=member.seen.version,
        loop_lag_ms=round(member.load.loop_lag_ms, 3),
        why=status.why,
        weight=member.weight,
        streams_open=member.load.streams_open,
        zone=member.zone,
        node=member.node,
        build=member.version,
    )
