"""Reports as what has changed: what a worker leaves out, what a leader makes of the rest."""

from collections.abc import Mapping

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.control.messages import HoldReport, Report
from fleet.control.reporting import RATES_SECONDS, Merging, Shortening
from fleet.errors import FormatError
from fleet.model import EpochVersion, GroupKey, Hold, Load
from fleet.model.identity import NONE

A, B, C = (GroupKey("ns", name, 1) for name in "abc")


def held(
    group: GroupKey, rate: float = 0.0, *, hold: Hold = Hold.OWNER, synced: bool = True
) -> HoldReport:
    return HoldReport(group, hold, synced=synced, streams_per_second=rate)


def report(*holds: HoldReport, version: int = 1, draining: bool = False) -> Report:
    return Report(EpochVersion(1, version), NONE, holds, draining, Load())


def by_group(found: Report) -> Mapping[GroupKey, HoldReport]:
    return {each.group: each for each in found.holds}


def test_the_first_report_of_a_stream_is_whole() -> None:
    """What was said on an earlier stream counts for nothing."""
    assert Shortening().next(report(held(A)), 0.0) == report(held(A))


def test_afterwards_only_news_is_said() -> None:
    """What is new, what changed, what is gone; the rest of the report is always said."""
    stream = Shortening()
    stream.next(report(held(A), held(B)), 0.0)
    same = stream.next(report(held(A), held(B), version=2, draining=True), 0.5)
    assert (same.partial, same.holds, same.gone) == (True, (), ())
    assert (same.version, same.draining) == (EpochVersion(1, 2), True)
    opened = held(C, synced=False, hold=Hold.OPENING)
    news = stream.next(report(held(A), opened), 1.0)
    assert (news.holds, news.gone) == ((opened,), (B,))
    news = stream.next(report(held(A, hold=Hold.DRAINING), opened), 1.5)
    assert (news.holds, news.gone) == ((held(A, hold=Hold.DRAINING),), ())


@pytest.mark.parametrize(("rate", "told"), [(10.9, False), (9.1, False), (11.1, True), (0.0, True)])
def test_a_rate_within_noise_is_told_later(rate: float, told: bool) -> None:
    """10 streams a second give or take a tenth is nothing that has to be known at once."""
    stream = Shortening()
    stream.next(report(held(A, 10.0)), 0.0)
    first = stream.next(report(held(A, rate)), 0.5)
    assert first.holds == ((held(A, rate),) if told else ())
    later = stream.next(report(held(A, rate)), RATES_SECONDS)
    assert later.holds == (() if told else (held(A, rate),))


def test_a_rate_that_creeps_is_compared_with_what_was_told() -> None:
    """Not with what was left out: small steps add up."""
    stream = Shortening()
    stream.next(report(held(A, 1.0)), 0.0)
    assert stream.next(report(held(A, 1.4)), 0.5).holds == ()
    assert stream.next(report(held(A, 1.8)), 1.0).holds == (held(A, 1.8),)


HELD = st.builds(
    HoldReport,
    st.sampled_from([GroupKey("ns", f"g{n}", 1) for n in range(5)]),
    st.sampled_from(Hold),
    synced=st.booleans(),
    quiet=st.booleans(),
    streams_per_second=st.floats(0.0, 20.0),
)
HOLDINGS = st.lists(HELD, max_size=5, unique_by=lambda each: each.group)


@given(st.lists(HOLDINGS, min_size=1, max_size=8), st.booleans())
def test_merged_parts_are_the_whole(sequence: list[list[HoldReport]], exact: bool) -> None:
    """Of any sequence of holdings, at each moment; rates that are not due yet within the noise."""
    shortening, merging = Shortening(), Merging()
    for number, holds in enumerate(sequence):
        whole = report(*holds, version=number)
        merged = merging.whole(shortening.next(whole, number * (RATES_SECONDS if exact else 0.5)))
        assert (merged.version, merged.partial, merged.gone) == (whole.version, False, ())
        found, wanted = by_group(merged), by_group(whole)
        assert found.keys() == wanted.keys()
        for group, each in wanted.items():
            told = found[group].streams_per_second
            near = max(0.5, 0.1 * told)
            assert abs(told - each.streams_per_second) <= (0.0 if exact else near)
            assert msgspec.structs.replace(each, streams_per_second=told) == found[group]


def test_what_does_not_change_stays_the_same_object() -> None:
    """The leader need not look at it again."""
    merging = Merging()
    whole = merging.whole(report(held(A)))
    part = msgspec.structs.replace(report(), partial=True)
    assert merging.whole(part).holds is whole.holds


def test_wholes_of_a_version_that_knows_nothing_else_are_taken_as_they_are() -> None:
    """Each says everything."""
    merging = Merging()
    assert merging.whole(report(held(A), held(B))) == report(held(A), held(B))
    assert merging.whole(report(held(B))) == report(held(B))


def test_a_part_without_a_whole_is_refused() -> None:
    """Nobody knows what it is a part of."""
    with pytest.raises(FormatError, match="before the whole"):
        Merging().whole(msgspec.structs.replace(report(held(A)), partial=True))


def test_parts_do_not_add_up_without_end() -> None:
    """A worker that invents groups is no worker of ours."""
    merging = Merging(most=2)
    merging.whole(report(held(A)))
    merging.whole(msgspec.structs.replace(report(held(B)), partial=True))
    with pytest.raises(FormatError, match="add up to 3 groups"):
        merging.whole(msgspec.structs.replace(report(held(C)), partial=True))
