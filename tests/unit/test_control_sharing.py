"""Shares as what has changed: what a leader leaves out, what a worker makes of the rest."""

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.control.codec import decode_down, encode
from fleet.control.messages import AssignPart
from fleet.control.sharing import ShareMerging, ShareShortening, digest, sum_of
from fleet.errors import FormatError
from fleet.model import EpochVersion, GroupKey, Hold, PoolId, PoolRef, Share, ShareEntry

NAMES = "abcdefgh"


def entry(
    name: str, hold: Hold = Hold.OWNER, owner: str | None = "w0", uid: str = "u"
) -> ShareEntry:
    pools = (PoolId(PoolRef("ns", name), uid),)
    return ShareEntry(GroupKey("ns", name, 1), hold, pools, owner)


def share(version: int, *entries: ShareEntry, incarnation: str = "i") -> Share:
    return Share("f", "w0", incarnation, EpochVersion(3, version), entries)


ALL = tuple(entry(name) for name in NAMES)


def told(*shares: Share) -> tuple[ShareShortening, ShareMerging]:
    """Both ends of a stream on which these went over."""
    leader, worker = ShareShortening(), ShareMerging()
    for each in shares:
        part = leader.next(each)
        assert (worker.whole(each) if part is None else worker.merged(part)) is not None
    return leader, worker


def over_the_wire(part: AssignPart) -> AssignPart:
    found = decode_down(encode(part))
    assert isinstance(found, AssignPart)
    return found


def part_of(leader: ShareShortening, following: Share) -> AssignPart:
    """What is told next, as the worker reads it."""
    part = leader.next(following)
    assert part is not None
    return over_the_wire(part)


def same(found: Share | None, wanted: Share) -> bool:
    """Apart from the order of its groups."""
    if found is None or len(found.entries) != len(wanted.entries):
        return False
    if {each.group: each for each in found.entries} != {
        each.group: each for each in wanted.entries
    }:
        return False
    return replace(found, entries=()) == replace(wanted, entries=())


def test_the_first_share_of_a_stream_is_told_in_whole() -> None:
    """What was told on an earlier stream counts for nothing."""
    assert ShareShortening().next(share(1, *ALL)) is None


def test_afterwards_only_what_changed_is_told() -> None:
    """New, other and gone groups, the versions before and after, and what the whole comes to."""
    leader, worker = told(share(1, *ALL))
    turned = entry("a", Hold.DRAINING, "w1")
    following = share(4, turned, *ALL[2:], entry("new"))
    part = part_of(leader, following)
    assert (part.base, part.version) == (EpochVersion(3, 1), EpochVersion(3, 4))
    assert set(part.changed) == {turned, entry("new")}
    assert part.gone == (ALL[1].group,)
    assert (part.groups, part.sum) == (8, sum_of(map(digest, following.entries)))
    assert same(worker.merged(part), following)


def test_a_share_that_changes_in_most_is_told_in_whole() -> None:
    """Three of four groups are other: a part would be no smaller; later ones build on it."""
    leader, worker = told(share(1, *ALL[:4]))
    turned = share(2, *(entry(name, Hold.STANDBY, "w1") for name in "abc"), ALL[3])
    assert leader.next(turned) is None
    worker.whole(turned)
    last = share(3, *turned.entries, ALL[4])
    assert same(worker.merged(part_of(leader, last)), last)


def test_another_incarnation_and_who_asks_are_told_in_whole() -> None:
    """Nobody knows what they have."""
    leader, _ = told(share(1, *ALL))
    assert leader.next(share(2, *ALL, incarnation="j")) is None
    assert leader.next(share(3, *ALL, incarnation="j")) is not None
    leader.forget()
    assert leader.next(share(4, *ALL, incarnation="j")) is None
    assert leader.next(share(5, *ALL, incarnation="j")) is not None


def test_a_part_that_says_nothing_new_of_the_share_keeps_it() -> None:
    """Others or peers alone are news then: the version stays."""
    first = share(1, *ALL)
    leader, worker = told(first)
    part = part_of(leader, first)
    assert part.base == part.version == first.version
    assert (part.changed, part.gone) == ((), ())
    assert worker.merged(part) == first


@pytest.mark.parametrize(
    "wrong",
    [
        {"base": EpochVersion(3, 2)},
        {"base": EpochVersion(2, 1)},
        {"version": EpochVersion(3, 0)},
        {"groups": 9},
        {"sum": 1},
        {"gone": (GroupKey("ns", "never", 1),)},
        {"gone": (ALL[1].group,)},
        {"changed": ()},
        {"changed": (entry("a", Hold.STANDBY, "w1", uid="another"),)},
    ],
)
def test_a_part_of_something_else_is_refused_until_a_whole_comes(wrong: dict[str, object]) -> None:
    """Another base, another outcome: nothing of it is taken, and nothing that builds on it."""
    leader, worker = told(share(1, *ALL))
    second = share(2, entry("a", Hold.STANDBY, "w1"), *ALL[1:])
    assert worker.merged(msgspec.structs.replace(part_of(leader, second), **wrong)) is None
    third = share(3, *second.entries[:-1])
    assert worker.merged(part_of(leader, third)) is None
    leader.forget()
    assert leader.next(third) is None
    worker.whole(third)
    fourth = share(4, *third.entries, entry("z"))
    assert same(worker.merged(part_of(leader, fourth)), fourth)


def test_a_part_without_a_whole_is_refused() -> None:
    """As on a stream whose leader takes it for an earlier one."""
    leader, _ = told(share(1, *ALL))
    assert ShareMerging().merged(part_of(leader, share(2, *ALL[1:]))) is None


def test_a_digest_tells_everything_that_a_share_says_of_a_group() -> None:
    """Two entries that differ in anything come to other sums."""
    each = [
        entry("a"),
        entry("b"),
        entry("a", Hold.STANDBY),
        entry("a", owner="w1"),
        entry("a", owner=None),
        entry("a", uid="v"),
        ShareEntry(GroupKey("ns", "a", 2), Hold.OWNER, entry("a").pools, "w0"),
        ShareEntry(GroupKey("ns", "a", 1), Hold.OWNER, (), "w0"),
        ShareEntry(GroupKey("n", "sa", 1), Hold.OWNER, (), "w0"),
    ]
    assert len({digest(one) for one in each}) == len(each)


def test_a_digest_is_the_same_in_every_version() -> None:
    """Both sides of a stream may be of other releases: what it is made of stays."""
    assert digest(entry("a", Hold.OPENING, "w1")) == 8338607602324921140


def test_parts_do_not_add_up_without_end() -> None:
    """A leader that invents groups is no leader of ours."""
    worker = ShareMerging(most=8)
    leader = ShareShortening()
    first = share(1, *ALL)
    leader.next(first)
    worker.whole(first)
    with pytest.raises(FormatError, match="add up to 9 groups"):
        worker.merged(part_of(leader, share(2, *ALL, entry("z"))))


HOLDS = st.sampled_from(Hold)
SHARES = st.lists(
    st.dictionaries(
        st.sampled_from(NAMES), st.tuples(HOLDS, st.sampled_from(["w0", "w1", None])), max_size=8
    ),
    min_size=1,
    max_size=8,
)


@given(SHARES, st.sets(st.integers(0, 7)))
def test_parts_come_to_what_wholes_say(
    steps: Sequence[dict[str, tuple[Hold, str | None]]], doubts: set[int]
) -> None:
    """Whatever changes, in whatever order, and whenever the worker asks for everything again."""
    leader, worker = ShareShortening(), ShareMerging()
    for number, step in enumerate(steps):
        wanted = share(
            number + 1, *(entry(name, hold, owner) for name, (hold, owner) in step.items())
        )
        if number in doubts:
            leader.forget()
        part = leader.next(wanted)
        found = worker.whole(wanted) if part is None else worker.merged(over_the_wire(part))
        assert same(found, wanted)
