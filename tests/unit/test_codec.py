"""Stored formats: what is written is read back, by this version and its neighbours."""

import json
import zlib
from dataclasses import replace

import pytest

from fleet.errors import FormatError
from fleet.model import (
    Addresses,
    EpochVersion,
    GroupKey,
    Hold,
    LeaderInfo,
    Load,
    Member,
    Phase,
    Placement,
    PoolId,
    PoolRef,
    Reason,
    RingSpec,
    ShardMap,
    share_of,
)
from fleet.model.shardmap import DeadMember
from fleet.store import codec
from fleet.store.contract import Move

GROUP = GroupKey("tenant", "pool-epp", 9002)
PLACEMENT = Placement(
    group=GROUP,
    pools=(PoolId(PoolRef("tenant", "pool"), "uid-1"), PoolId(PoolRef("tenant", "zwei"), "uid-2")),
    phase=Phase.MOVING,
    owners=("worker-0",),
    standby="worker-1",
    reason=Reason.DRAIN,
    since=1.5,
    moving_to="worker-2",
    draining=("worker-3",),
)
MAP = ShardMap(
    fleet="blue",
    version=EpochVersion(2**50, 12),
    published_at=99.25,
    leader=LeaderInfo("c-0", "10.0.0.1:8080", "10.0.0.1:8081"),
    placements={GROUP: PLACEMENT},
    incarnations={"worker-0": "i0"},
    addresses={"worker-0": "[::1]:9002"},
    dead=(DeadMember("worker-9", "i9", "refused", 98.0),),
)
MEMBER = Member(
    id="worker-0",
    incarnation="i0",
    addresses=Addresses("a:1", "a:2", "a:3", "a:4"),
    weight=5,
    draining=True,
    seen=EpochVersion(2**50, 3),
    holds={GROUP: Hold.OWNER},
    load=Load(0.5, 2, 1.0),
)


def blob(document: object, head: bytes = b"1 3.4\n") -> bytes:
    return head + zlib.compress(json.dumps(document).encode())


def test_a_map_reads_back_equal() -> None:
    """All of it, with epochs up to 2**50."""
    assert codec.decode_map(codec.encode_map(MAP), "k") == MAP


def test_the_version_stands_in_clear_at_the_start() -> None:
    """Scripts and readers compare versions without decoding."""
    written = codec.encode_map(MAP)
    assert written.startswith(b"1 1125899906842624.12\n")
    assert codec.version_of(written[:64], "k") == EpochVersion(2**50, 12)


def test_a_ring_reads_back_with_its_version() -> None:
    """Spec and version."""
    ring = RingSpec("xxh3", 160, {"worker-0": 1, "worker-1": 100})
    assert codec.decode_ring(codec.encode_ring(ring, EpochVersion(3, 4)), "k") == (
        ring,
        EpochVersion(3, 4),
    )


def test_a_share_reads_back_equal() -> None:
    """With every hold."""
    for worker in ("worker-0", "worker-1", "worker-2", "worker-3", "worker-4"):
        share = share_of(MAP, worker)
        assert codec.decode_share(codec.encode_share(share), "k") == share


def test_a_member_reads_back_equal() -> None:
    """With its holds, which are keyed by group."""
    assert codec.decode_member(codec.encode_member(MEMBER), "k") == MEMBER


def test_what_a_member_holds_is_read_once_as_long_as_it_says_the_same() -> None:
    """Its load changes with every beat, its groups hardly ever; no beat shows through another."""
    known = codec.KnownHolds()
    first = codec.decode_member(codec.encode_member(MEMBER), "k", known)
    busier = replace(MEMBER, load=Load(7.0, 3, 1.0))
    second = codec.decode_member(codec.encode_member(busier), "k", known)
    assert (first, second) == (MEMBER, busier)
    assert second.holds is first.holds
    empty = replace(MEMBER, holds={})
    assert codec.decode_member(codec.encode_member(empty), "k", known) == empty
    assert codec.decode_member(codec.encode_member(MEMBER), "k", known) == MEMBER
    other = replace(MEMBER, id="another", holds={})
    assert codec.decode_member(codec.encode_member(other), "k", known) == other
    known.keep({"another"})
    again = codec.decode_member(codec.encode_member(MEMBER), "k", known)
    assert again == MEMBER
    assert again.holds is not first.holds


def moves(count: int) -> list[Move]:
    version = EpochVersion(3, 4)
    return [Move(f"g{n}", "a", "b", "drain", version, 1.0, 2.0, "done") for n in range(count)]


@pytest.mark.parametrize(("count", "entries"), [(0, 0), (1, 1), (2, 1), (250, 1), (251, 2)])
def test_moves_read_back_equal(count: int, entries: int) -> None:
    """Every field of every move, newest first; 250 share an entry."""
    encoded = codec.encode_moves(moves(count))
    assert len(encoded) == entries
    read = [move for last, rest in reversed(encoded) for move in codec.decode_moves(last, rest, "")]
    assert read == moves(count)[::-1]


def test_moves_of_the_version_before_and_for_it() -> None:
    """It wrote one move an entry, as JSON; of a batch it reads the last move, as JSON."""
    old = (
        b'{"format":1,"move":{"group":"g0","source":"a","target":"b","reason":"drain",'
        b'"version":[3,4],"started":1.0,"finished":2.0,"outcome":"done"}}'
    )
    assert codec.decode_moves(old, b"", "k") == moves(1)
    later = b',"why":""'  # a field that it ignores
    ((written, earlier),) = codec.encode_moves(moves(1))
    assert (written.replace(later, b""), earlier) == (old, b"")
    ((last, _),) = codec.encode_moves(moves(9))
    assert last.replace(later, b"") == old.replace(b'"g0"', b'"g8"')


@pytest.mark.parametrize("earlier", [b"x", zlib.compress(b"{"), zlib.compress(b'{"format":1}')])
def test_a_damaged_batch_is_named_by_its_key(earlier: bytes) -> None:
    """What cannot be read is never left out in silence."""
    ((last, _),) = codec.encode_moves(moves(1))
    with pytest.raises(FormatError, match="the-key"):
        codec.decode_moves(last, earlier, "the-key")


def test_the_next_format_is_read_with_unknown_fields_ignored() -> None:
    """Version N + 1 may add fields, at any depth, and count its format up."""
    plain = json.loads(codec.encode_member(MEMBER))
    plain |= {"format": 2, "colour": "red"}
    plain["load"]["heat"] = 7
    assert codec.decode_member(json.dumps(plain).encode(), "k") == MEMBER
    ring = blob({"hash": "xxh3", "vnodes": 1, "weights": {}, "more": []}, b"2 3.4\n")
    assert codec.decode_ring(ring, "k") == (RingSpec("xxh3", 1, {}), EpochVersion(3, 4))


def test_missing_fields_take_their_defaults() -> None:
    """Version N - 1 may lack fields that have a default."""
    plain = {
        "format": 1,
        "id": "worker-0",
        "incarnation": "i0",
        "addresses": {"ext_proc": "a:1", "health": "a:2", "internal": "a:3", "http": "a:4"},
    }
    assert codec.decode_member(json.dumps(plain).encode(), "k") == Member(
        "worker-0", "i0", Addresses("a:1", "a:2", "a:3", "a:4")
    )


@pytest.mark.parametrize("number", [0, 3, 999])
def test_other_formats_are_refused(number: int) -> None:
    """Above ours + 1, or no format at all."""
    with pytest.raises(FormatError, match=f"the-key: format {number}"):
        codec.decode_ring(blob({}, f"{number} 3.4\n".encode()), "the-key")
    plain = json.loads(codec.encode_member(MEMBER)) | {"format": number}
    with pytest.raises(FormatError, match="the-key"):
        codec.decode_member(json.dumps(plain).encode(), "the-key")


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"1",
        b"1 3.4",
        b"1 3.4\n",
        b"1 -3.4\nx",
        b"1 3.4\nnot zlib at all",
        codec.encode_map(MAP)[:-5],
        blob([]),
        blob({"fleet": 7}),
        b"1 3.4\n" + zlib.compress(b"\xff\xfe"),
        b"1 3.4\n" + zlib.compress(b'{"fleet": "\xff"}'),
        b"x" * 200,
    ],
)
def test_damage_is_named_by_its_key(damaged: bytes) -> None:
    """Whatever the bytes are, only FormatError leaves, with the key."""
    for decode in (codec.decode_map, codec.decode_share, codec.decode_ring):
        with pytest.raises(FormatError, match="the-key"):
            decode(damaged, "the-key")


@pytest.mark.parametrize("damaged", [b"", b"{", b"[]", b"null", b'{"format": "1"}', b"\xff"])
def test_damaged_json_is_named_by_its_key(damaged: bytes) -> None:
    """The same for values that are plain JSON."""

    def decode_move(raw: bytes, key: str) -> object:
        return codec.decode_moves(raw, b"", key)

    for decode in (codec.decode_member, codec.decode_leader, decode_move):
        with pytest.raises(FormatError, match="the-key"):
            decode(damaged, "the-key")
