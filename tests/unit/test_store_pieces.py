"""Long lists, deflated piece by piece: one zlib stream, of which what did not change is kept."""

import json
import zlib
from dataclasses import dataclass, replace
from random import Random

import msgspec
import pytest

from fleet.model import EpochVersion, GroupKey, LeaderInfo, Phase, Placement, Reason, ShardMap
from fleet.store import codec
from fleet.store.pieces import Pieces, deflated

ENCODER = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class Row:
    group: GroupKey
    value: int


def rows(count: int) -> list[Row]:
    return [Row(GroupKey("ns", f"s{number}", 1), number) for number in range(count)]


def read(pieces: Pieces, items: list[Row], head: bytes = b"[", tail: bytes = b"]") -> object:
    """What anybody's zlib and JSON make of it."""
    return json.loads(zlib.decompress(deflated(head, pieces.of(items, ENCODER), tail)))


def plain(items: list[Row]) -> object:
    return json.loads(ENCODER.encode(items))


@pytest.mark.parametrize("count", [0, 1, 2, 500])
@pytest.mark.parametrize("items", [1, 4, 1000])
def test_the_pieces_are_one_stream_of_the_whole_list(count: int, items: int) -> None:
    """Of none, of one that is alone in its piece, of all in one."""
    assert read(Pieces(items), rows(count)) == plain(rows(count))


@pytest.mark.parametrize("size", [0, 1, 65_534, 65_535, 65_536, 200_000])
def test_what_is_around_the_list_may_be_long(size: int) -> None:
    """A stored block holds 65,535 bytes."""
    text = b'"' + b"x" * size + b'"'
    found = read(Pieces(), rows(40), b"[" + text + b",[", b"]," + text + b"]")
    assert found == ["x" * size, plain(rows(40)), "x" * size]


def test_whatever_changes_it_is_the_list_as_it_is_now() -> None:
    """Items change, come and go at any place, also the first and the last, or all of them."""
    rng, pieces, items = Random(7), Pieces(4), rows(200)
    for step in range(300):
        at = rng.choice([0, len(items) - 1, rng.randrange(len(items))])
        match rng.randrange(4):
            case 0:
                items[at] = replace(items[at], value=step)
            case 1 if len(items) > 1:
                del items[at]
            case 2:
                items.insert(at, Row(GroupKey("ns", f"new-{step}", 1), step))
            case _ if step % 50 == 0:
                items = rows(rng.randrange(1, 300))
        assert read(pieces, items) == plain(items)


def test_a_change_packs_its_own_piece_again_and_no_other() -> None:
    """One of 2,000 items changes, one goes: one or two pieces of about 125 are other."""
    pieces, items = Pieces(), rows(2000)
    before = {id(piece) for piece in pieces.of(items, ENCODER)}
    items[700] = replace(items[700], value=-1)
    del items[1500]
    following = pieces.of(items, ENCODER)
    assert sum(id(piece) not in before for piece in following) in (1, 2, 3)
    assert len(following) > 60


def test_groups_that_change_places_change_the_pieces() -> None:
    """They are as many as before, and others than before at their places."""
    pieces, items = Pieces(4), rows(50)
    read(pieces, items)
    items[3], items[30] = items[30], items[3]
    assert read(pieces, items) == plain(items)
    items[0] = Row(GroupKey("ns", "other", 1), 0)
    assert read(pieces, items) == plain(items)


def test_a_stored_map_is_what_it_is_with_or_without_the_pieces_of_the_last() -> None:
    """Through changes of one group each; the pieces are of no account for who reads it."""
    groups = [row.group for row in rows(100)]
    placements = {
        group: Placement(group, (), Phase.OWNED, ("w0",), None, Reason.INITIAL, 1.0)
        for group in groups
    }
    shard_map = ShardMap("f", EpochVersion(1, 1), 2.0, LeaderInfo("c", "h:1", "h:2"), placements)
    pieces = Pieces()
    for number, group in enumerate(groups):
        moved = replace(shard_map.placements[group], owners=(f"w{number}",))
        shard_map = replace(
            shard_map,
            version=shard_map.version.next(),
            placements={**shard_map.placements, group: moved},
        )
        blob = codec.encode_map(shard_map, pieces)
        assert codec.decode_map(blob, "k") == shard_map
        assert codec.decode_map(codec.encode_map(shard_map), "k") == shard_map
