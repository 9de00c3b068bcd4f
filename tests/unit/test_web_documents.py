"""The API's documents, value by value: tools outside rely on exactly these."""

from dataclasses import replace

import msgspec

from coordinator.web.documents import map_document, timestamp, workers_document
from coordinator.web.page import MAX_ROWS, render
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


def test_the_page_escapes_all_that_it_shows() -> None:
    """Names come from others."""
    evil = "<script>alert('x')</script>"
    found = shard_map(placement("s", evil, owners=(evil,)))
    text = render(map_document(found, LeaderInfo(evil, "", "")), evil)
    assert "<script" not in text
    assert text.count("&lt;script&gt;") == 4


def test_the_page_shows_what_is_where() -> None:
    """And needs nothing from anywhere else."""
    text = render(map_document(shard_map(placement("s", "a")), LEADER), "coordinator-1")
    assert "<td>ns1/a</td><td>ns1/s:9002</td><td>owned</td><td>worker-0</td>" in text
    assert "Fleet default, map 3.17 of 2023-11-14T22:13:20.062Z" in text
    assert "http" not in text.replace("http-equiv", "")
    assert "without owner" not in text
    for path in ("/api/v1/map", "/api/v1/workers", "/metrics"):
        assert f'<a href="{path}">' in text
    assert "No shard map yet" in render(None, "coordinator-1")


def test_the_page_shows_the_workers_too() -> None:
    """What each owns, and of whom is unwell why; their words are escaped as all others."""
    addresses = Addresses("h:9002", "h:9003", "h:9004", "h:9090")
    load = Load(streams_per_second=12.3456, streams_open=4, loop_lag_ms=0.25)
    member = Member(
        id="worker-0", incarnation="i", addresses=addresses, seen=EpochVersion(3, 16), load=load
    )
    found = workers_document(
        [
            MemberStatus(member, MemberState.ALIVE, None, 2, 1),
            MemberStatus(member, MemberState.DEAD, Signal.POD_GONE, 0, 0, "<b>gone"),
        ]
    )
    text = render(map_document(shard_map(placement("s", "a")), LEADER), "c", found.workers)
    alive = "<td>worker-0</td><td>alive</td><td>2</td><td>1</td><td>12.3</td><td>3.16</td>"
    assert f'<tr class="alive">{alive}</tr>' in text
    assert '<tr class="dead"><td>worker-0</td><td>dead: &lt;b&gt;gone</td><td>0</td>' in text
    assert ", 1 pool.</p>" in text


def test_the_page_counts_what_has_no_owner() -> None:
    """Above the table, for it may be anywhere in it."""
    lost = placement("s", "b", "c", owners=())
    text = render(map_document(shard_map(placement("r", "a"), lost), LEADER), "c")
    assert "2 without owner." in text
    assert text.index("2 without owner.") < text.index("<table>")


def test_the_page_is_bounded() -> None:
    """It says how many pools it leaves out."""
    pools = [f"p{number}" for number in range(MAX_ROWS + 5)]
    text = render(map_document(shard_map(placement("s", *pools)), LEADER), "c")
    assert text.count("<td>ns1/p") == MAX_ROWS
    assert "5 more in the API." in text
