"""Whose handshake is next: sources take turns, and who has most gives way."""

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from epp_worker.http2.handshakes.sources import Crowd, Lines

SOURCES = st.sampled_from("abcd")


def taken(lines: Lines[str]) -> Iterator[str]:
    """All of them, in their order."""
    while lines:
        yield lines.take()


def test_a_source_with_a_thousand_has_one_turn_in_two() -> None:
    """The other one's only item is the second of all."""
    lines: Lines[str] = Lines()
    for number in range(1_000):
        lines.add("10.0.0.1", f"a{number}")
    lines.add("10.0.0.2", "b0")
    order = list(taken(lines))
    assert order[:3] == ["a0", "b0", "a1"]
    assert order[3:] == [f"a{number}" for number in range(2, 1_000)]
    assert not lines


def test_the_next_source_that_fits_is_found_and_the_others_keep_their_order() -> None:
    """Those who do not fit go behind it, not away."""
    lines: Lines[str] = Lines()
    for source in "abc":
        lines.add(source, source)
    assert lines.seek(lambda source: source == "c")
    assert lines.next() == "c"
    assert not lines.seek(lambda source: source == "z")
    assert list(taken(lines)) == ["c", "a", "b"]


@given(st.lists(SOURCES, max_size=40))
def test_nobody_waits_for_more_than_one_of_each_other_source(came: list[str]) -> None:
    """Between two items of one source there is at most one of any other; each source's own order
    is kept; nothing is lost."""
    lines: Lines[str] = Lines()
    for at, source in enumerate(came):
        lines.add(source, f"{source}{at}")
    order = list(taken(lines))
    assert sorted(order) == sorted(f"{source}{at}" for at, source in enumerate(came))
    for source in set(came):
        mine = [item for item in order if item[0] == source]
        assert mine == [f"{source}{at}" for at, each in enumerate(came) if each == source]
        ahead: list[str] = []
        for item in order:
            if item[0] == source:
                assert len(set(ahead)) == len(ahead)
                ahead = []
            else:
                ahead.append(item[0])


def test_the_oldest_of_whoever_has_most_gives_way() -> None:
    """Unless the newcomer's own source would then have more than it."""
    crowd: Crowd[str] = Crowd()
    for item in ("a0", "b0", "a1", "a2"):
        crowd.add(item[0], item)
    assert crowd.in_the_way("b") == "a0"
    assert crowd.in_the_way("c") == "a0"
    assert crowd.in_the_way("a") is None
    crowd.remove("a0")
    assert crowd.in_the_way("b") is None  # two of a, and b would have two
    assert crowd.in_the_way("c") == "a1"
    assert (crowd.oldest(), len(crowd), crowd.most) == ("b0", 3, 2)


@given(st.lists(st.tuples(st.booleans(), SOURCES), max_size=60))
def test_a_crowd_is_counted_right(events: list[tuple[bool, str]]) -> None:
    """Whatever comes and goes: as many as a plain list says."""
    crowd: Crowd[str] = Crowd()
    here: list[str] = []
    for at, (comes, source) in enumerate(events):
        if comes:
            here.append(f"{source}{at}")
            crowd.add(source, here[-1])
        else:
            gone = next((item for item in here if item[0] == source), f"{source}?")
            crowd.remove(gone)
            here = [item for item in here if item != gone]
        counts = {each: sum(item[0] == each for item in here) for each in "abcd"}
        assert {each: crowd.of(each) for each in "abcd"} == counts
        assert crowd.most == max(counts.values())
        assert crowd.oldest() == next(iter(here), None)
        assert len(crowd) == len(here)
        way = crowd.in_the_way("a")
        if way is None:
            assert crowd.most <= counts["a"] + 1
        else:
            assert counts[way[0]] == crowd.most > counts["a"] + 1
            assert way == next(item for item in here if item[0] == way[0])
