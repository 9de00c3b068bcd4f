"""Maps go to followers as what has changed, and what comes out is what the leader has."""

from random import Random

import pytest
from msgspec import structs

from coordinator.mapping import MapMerging, MapShortening
from fleet.control.codec import decode_map_update, encode
from fleet.control.messages import MapUpdate
from fleet.errors import FormatError
from fleet.model import EpochVersion, GroupKey, LeaderInfo, Phase, Placement, Reason, ShardMap

LEADER = LeaderInfo("c", "h:1", "h:2")


def placement(number: int, owner: str = "w0") -> Placement:
    group = GroupKey("ns", f"g{number}", 1)
    return Placement(group, (), Phase.OWNED, (owner,), None, Reason.INITIAL, 0.0)


def a_map(version: int, *placements: Placement) -> ShardMap:
    return ShardMap(
        "f",
        EpochVersion(3, version),
        float(version),
        LEADER,
        {each.group: each for each in placements},
        {"w0": f"i{version}"},
        {"w0": f"a:{version}"},
    )


FOUR = tuple(placement(number) for number in range(4))


def heard(merging: MapMerging, update: MapUpdate) -> ShardMap | None:
    """After the wire."""
    return merging.whole(decode_map_update(encode(update)))


def test_the_first_map_is_whole_and_then_only_what_changed_is_sent() -> None:
    """With all of the map that is not about groups; nothing where nothing is new."""
    shortening, merging = MapShortening(parts=True), MapMerging()
    assert shortening.next(None, ()) == MapUpdate(None, ())
    first = a_map(1, *FOUR, placement(4))
    update = shortening.next(first, ())
    assert update == MapUpdate(first, ())
    assert heard(merging, update) == first
    assert shortening.next(first, ()) == MapUpdate(None, ())
    second = a_map(2, placement(0, "w9"), *FOUR[1:])
    update = shortening.next(second, ())
    assert update.shard_map is None
    assert update.part is not None
    assert (update.part.changed, update.part.gone) == ((placement(0, "w9"),), (placement(4).group,))
    assert heard(merging, update) == second


def test_nobody_who_does_not_read_parts_gets_one() -> None:
    """Nor who would get most of the map anyway."""
    plain = MapShortening(parts=False)
    plain.next(a_map(1, *FOUR), ())
    second = a_map(2, placement(0, "w9"), *FOUR[1:])
    assert plain.next(second, ()) == MapUpdate(second, ())
    shortening = MapShortening(parts=True)
    shortening.next(a_map(1, *FOUR), ())
    most = a_map(2, *(placement(number, "w9") for number in range(3)), FOUR[3])
    assert shortening.next(most, ()) == MapUpdate(most, ())


def test_whatever_changes_the_follower_has_the_leaders_map() -> None:
    """Groups move, come and go, also several maps at a time."""
    rng = Random(3)
    shortening, merging = MapShortening(parts=True), MapMerging()
    placed = {number: placement(number) for number in range(30)}
    parts = 0
    for version in range(1, 200):
        for _ in range(rng.randrange(4)):
            number = rng.randrange(40)
            if rng.random() < 0.3 and len(placed) > 10:
                placed.pop(number, None)
            else:
                placed[number] = placement(number, f"w{rng.randrange(5)}")
        shard_map = a_map(version, *placed.values())
        update = shortening.next(shard_map, ())
        parts += update.part is not None
        assert heard(merging, update) == shard_map
    assert parts > 150


@pytest.mark.parametrize("missed", [0, 1])
def test_a_part_of_another_map_than_was_told_is_refused(missed: int) -> None:
    """Whether nothing was told before it, or something older."""
    shortening, merging = MapShortening(parts=True), MapMerging()
    first = shortening.next(a_map(1, *FOUR), ())
    if missed:
        heard(merging, first)
    shortening.next(a_map(2, placement(0, "w9"), *FOUR[1:]), ())
    with pytest.raises(FormatError, match="a part of map"):
        heard(merging, shortening.next(a_map(3, placement(0, "w8"), *FOUR[1:]), ()))


def test_a_part_that_adds_up_to_another_number_of_groups_is_refused() -> None:
    """A leader that tells less than it means is not believed."""
    shortening, merging = MapShortening(parts=True), MapMerging()
    heard(merging, shortening.next(a_map(1, *FOUR), ()))
    update = shortening.next(a_map(2, *FOUR[1:]), ())
    assert update.part is not None
    with pytest.raises(FormatError, match="add up to 4, not 3"):
        part = structs.replace(update.part, gone=())
        heard(merging, structs.replace(update, part=part))
