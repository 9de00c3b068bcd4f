"""Messages of kinds that a later version adds, either way; and who owns what a worker asks for."""

from collections.abc import Callable

import msgspec
import pytest

from coordinator.leader.peers import owners_in
from fleet.control.codec import decode_down, decode_up
from fleet.control.messages import FORMAT, OwnerOf, Owners, SetDrain, Unknown
from fleet.errors import FormatError
from fleet.model import (
    EpochVersion,
    GroupKey,
    LeaderInfo,
    Phase,
    Placement,
    Reason,
    ShardMap,
)
from fleet.model.identity import NONE

DECODERS = (decode_up, decode_down)


@pytest.mark.parametrize("decode", DECODERS)
@pytest.mark.parametrize("extra", [{}, {"groups": [["ns", "s", 1]], "why": {"deep": [1, None]}}])
def test_a_kind_that_a_later_version_added_is_passed_over(
    decode: Callable[[bytes], object], extra: dict[str, object]
) -> None:
    """Whatever it carries; its name is known for the log."""
    for number in (FORMAT, FORMAT + 1):
        data = msgspec.msgpack.encode({"type": "weather", "format": number, **extra})
        assert decode(data) == Unknown("weather", number)
    assert decode(msgspec.msgpack.encode({"type": "weather", **extra})) == Unknown("weather")


@pytest.mark.parametrize("decode", DECODERS)
def test_an_unknown_kind_two_versions_ahead_is_refused(decode: Callable[[bytes], object]) -> None:
    """It may be one that must not be passed over."""
    data = msgspec.msgpack.encode({"type": "weather", "format": FORMAT + 2})
    with pytest.raises(FormatError, match=f"format {FORMAT + 2}"):
        decode(data)


@pytest.mark.parametrize(
    ("decode", "kind"), [(decode_up, "report"), (decode_up, "ask"), (decode_down, "assign")]
)
def test_a_known_kind_that_cannot_be_read_is_not_passed_over(
    decode: Callable[[bytes], object], kind: str
) -> None:
    """It is damaged: the stream that carried it is at fault."""
    with pytest.raises(FormatError):
        decode(msgspec.msgpack.encode({"type": kind, "format": FORMAT, "version": "none"}))


@pytest.mark.parametrize("decode", DECODERS)
@pytest.mark.parametrize(
    "data", [b"", b"\xc1", msgspec.msgpack.encode([1]), msgspec.msgpack.encode({"format": 1})]
)
def test_what_has_no_kind_is_unreadable(decode: Callable[[bytes], object], data: bytes) -> None:
    """Either way."""
    with pytest.raises(FormatError):
        decode(data)


def test_each_direction_knows_the_others_kinds_as_damaged() -> None:
    """A message that goes the wrong way is no later version's."""
    with pytest.raises(FormatError):
        decode_up(msgspec.msgpack.encode(SetDrain(on=True)))


def placement(group: GroupKey, *owners: str) -> Placement:
    phase = Phase.OWNED if owners else Phase.UNOWNED
    return Placement(group, (), phase, owners, "w9", Reason.INITIAL, 0.0)


def test_a_worker_is_told_the_first_owner_of_each_group_that_it_asks_for() -> None:
    """Of the last map; nobody where there is none, and where there is no such group."""
    owned, unowned, gone = (GroupKey("ns", name, 9002) for name in ("owned", "unowned", "gone"))
    version = EpochVersion(4, 2)
    leader = LeaderInfo("c0", "h:1", "h:2")
    placements = {owned: placement(owned, "w1", "w2"), unowned: placement(unowned)}
    shown = ShardMap("f", version, 0.0, leader, placements)
    assert owners_in(shown, (gone, owned, unowned)) == Owners(
        version, (OwnerOf(gone, None), OwnerOf(owned, "w1"), OwnerOf(unowned, None))
    )
    assert owners_in(shown, ()) == Owners(version, ())


def test_before_the_first_map_nothing_is_said() -> None:
    """Silence is no word that a group has no owner."""
    assert owners_in(None, (GroupKey("ns", "s", 1),)) == Owners(NONE, ())
