"""The API's documents, value by value: tools outside rely on exactly these."""

from dataclasses import replace

import msgspec

from coordinator.web.documents import map_document, timestamp, workers_document
from fleet.model import (
    Addresses,
    EpochVersion,
    GroupKey,
    LeaderInfo,
    Load,
    Member,
    MemberState,
    MemberStatus,
    Phase,
    Placement,
    PoolId,
    PoolRef,
    Reason,
    ShardMap,
    Signal,
)

LEADER = LeaderInfo("coordinator-0", "127.0.0.1:8080", "127.0.0.1:8081")


def shard_map(*placements: Placement) -> ShardMap:
    return ShardMap(
        fleet="default",
        version=EpochVersion(3, 17),
        published_at=1_700_000_000.0625,
        leader=LEADER,
        placements={each.group: each for each in placements},
    )


def placement(service: str, *pools: str, owners: tuple[str, ...] = ("worker-0",)) -> Placement:
    return Placement(
        group=GroupKey("ns1", service, 9002),
        pools=tuple(PoolId(PoolRef("ns1", pool), f"uid-{pool}") for pool in pools),
        phase=Phase.OWNED if owners else Phase.UNOWNED,
        owners=owners,
        standby="worker-1" if owners else None,
        reason=Reason.OWNER_DEAD,
        since=1_699_999_999.0,
    )


def as_json(document: object) -> object:
    return msgspec.json.decode(msgspec.json.encode(document))


def test_timestamps_are_rfc_3339_with_milliseconds() -> None:
    """UTC, always three digits, always `Z`."""
    assert timestamp(0.0) == "1970-01-01T00:00:00.000Z"
    assert timestamp(1_700_000_000.0625) == "2023-11-14T22:13:20.062Z"


def test_the_map_document() -> None:
    """One row a pool, ordered by name, also where several pools share a group."""
    found = shard_map(placement("shared", "z", "b"), placement("solo", "a", owners=()))
    rows = [
        {
            "namespace": "ns1",
            "name": name,
            "group": group,
            "owners": owners,
            "standby": standby,
            "phase": phase,
            "since": "2023-11-14T22:13:19.000Z",
            "reason": "owner_dead",
            "moving_to": None,
            "draining": [],
        }
        for name, group, owners, standby, phase in (
            ("a", "ns1/solo:9002", [], None, "unowned"),
            ("b", "ns1/shared:9002", ["worker-0"], "worker-1", "owned"),
            ("z", "ns1/shared:9002", ["worker-0"], "worker-1", "owned"),
        )
    ]
    assert as_json(map_document(found, LEADER)) == {
        "format": 1,
        "fleet": "default",
        "epoch": 3,
        "version": 17,
        "published_at": "2023-11-14T22:13:20.062Z",
        "leader": {"id": "coordinator-0", "http": "127.0.0.1:8080"},
        "pools": rows,
    }


def test_a_move_in_progress_is_shown_with_its_gainer_and_former_owners() -> None:
    """From the first map that names it until nobody drains any more."""
    moving = replace(
        placement("solo", "a"), phase=Phase.MOVING, moving_to="worker-2", draining=("worker-3",)
    )
    (row,) = map_document(shard_map(moving), LEADER).pools
    assert (row.phase, row.owners) == ("moving", ("worker-0",))
    assert (row.moving_to, row.draining) == ("worker-2", ("worker-3",))


def test_without_a_leader_the_map_says_so() -> None:
    """Whoever published it."""
    assert map_document(shard_map(), None).leader is None


def test_the_workers_document() -> None:
    """Every field of one live and one dead worker."""
    member = Member(
        id="worker-0",
        incarnation="i1",
        addresses=Addresses("h:9002", "h:9003", "h:9004", "h:9090"),
        seen=EpochVersion(3, 16),
        load=Load(streams_per_second=12.3456, streams_open=4, loop_lag_ms=0.25),
        weight=3,
        zone="z",
        node="n",
        version="1.2",
    )
    found = workers_document(
        [
            MemberStatus(member, MemberState.ALIVE, None, 2, 1),
            MemberStatus(member, MemberState.DEAD, Signal.POD_GONE, 0, 0, "pod gone"),
        ]
    )
    alive = {
        "id": "worker-0",
        "incarnation": "i1",
        "state": "alive",
        "signal": None,
        "ext_proc": "h:9002",
        "health": "h:9003",
        "internal": "h:9004",
        "http": "h:9090",
        "owned": 2,
        "standby": 1,
        "load": 12.346,
        "epoch": 3,
        "version": 16,
        "loop_lag_ms": 0.25,
        "why": "",
        "weight": 3,
        "streams_open": 4,
        "zone": "z",
        "node": "n",
        "build": "1.2",
    }
    dead = {
        **alive,
        "state": "dead",
        "signal": "pod_gone",
        "owned": 0,
        "standby": 0,
        "why": "pod gone",
    }
    assert as_json(found) == {"format": 1, "workers": [alive, dead]}
