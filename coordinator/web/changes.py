"""What has changed between two maps, and between two looks at the workers, as JSON. Pure."""

from collections.abc import Mapping

import msgspec

from coordinator.web.documents import (
    FORMAT,
    LeaderDocument,
    PoolDocument,
    WorkerDocument,
    leader_document,
    pool_rows,
    timestamp,
)
from fleet.model import LeaderInfo, Placement, ShardMap

MAX_CHANGED = 2_000
"""Pools in one event; a client reads the whole map after more."""


class GoneDocument(msgspec.Struct, frozen=True):
    """A pool that is in its group no more."""

    namespace: str
    name: str
    group: str


class ChangesDocument(msgspec.Struct, frozen=True):
    """Event `map`: from one version to another; the fields are as in `GET /api/v1/map`."""

    format: int
    from_epoch: int
    from_version: int
    epoch: int
    version: int
    published_at: str
    leader: LeaderDocument | None
    changed: list[PoolDocument]
    gone: list[GoneDocument]


class WorkersChangeDocument(msgspec.Struct, frozen=True):
    """Event `workers`: those that changed; `whole` = these are all there are."""

    format: int
    whole: bool
    workers: list[WorkerDocument]
    gone: list[str]


def map_changes(old: ShardMap, new: ShardMap, leader: LeaderInfo | None) -> ChangesDocument | None:
    """What leads from one map to the other; None = too much, read the whole map."""
    changed: list[PoolDocument] = []
    gone: list[GoneDocument] = []
    for group, placement in new.placements.items():
        before = old.placements.get(group)
        if before is placement or before == placement:
            continue
        changed.extend(row for _, row in pool_rows(placement))
        if before is not None:
            gone.extend(_gone(before, placement))
        if len(changed) + len(gone) > MAX_CHANGED:
            return None
    for group in old.placements.keys() - new.placements.keys():
        gone.extend(_gone(old.placements[group], None))
    if len(changed) + len(gone) > MAX_CHANGED:
        return None
    return ChangesDocument(
        format=FORMAT,
        from_epoch=old.version.epoch,
        from_version=old.version.version,
        epoch=new.version.epoch,
        version=new.version.version,
        published_at=timestamp(new.published_at),
        leader=leader_document(leader),
        changed=changed,
        gone=gone,
    )


def _gone(before: Placement, after: Placement | None) -> list[GoneDocument]:
    left = set() if after is None else {pool.ref for pool in after.pools}
    return [
        GoneDocument(*pool.ref, group=str(before.group))
        for pool in before.pools
        if pool.ref not in left
    ]


def workers_change(
    old: Mapping[str, WorkerDocument], new: Mapping[str, WorkerDocument]
) -> WorkersChangeDocument | None:
    """Workers that came, changed or went; None = nothing has."""
    changed = [worker for id_, worker in new.items() if old.get(id_) != worker]
    gone = [id_ for id_ in old if id_ not in new]
    if not changed and not gone:
        return None
    return WorkersChangeDocument(FORMAT, whole=False, workers=changed, gone=gone)


def pressing(old: Mapping[str, WorkerDocument], new: Mapping[str, WorkerDocument]) -> bool:
    """Whether more has changed than figures that always do."""
    return old.keys() != new.keys() or any(
        (before.state, before.why, before.owned, before.standby, before.incarnation)
        != (worker.state, worker.why, worker.owned, worker.standby, worker.incarnation)
        for before, worker in ((old[id_], worker) for id_, worker in new.items())
    )
