"""In which groups two maps differ."""

from collections import Counter

from coordinator.planning.differences import differing
from coordinator.statuses import Holdings
from fleet.model import GroupKey, Placement
from tests.placed_fleet import PlacedFleet


def _placements(fleet: PlacedFleet) -> dict[GroupKey, Placement]:
    assert fleet.map is not None
    return dict(fleet.map.placements)


def test_what_is_another_object_new_or_gone_differs() -> None:
    """Also where one comes and another goes at once, so that there are as many as before."""
    fleet = PlacedFleet(4)
    fleet.add("a")
    fleet.settle()
    before = _placements(fleet)
    a, b, c, d = before
    assert differing(before, before) == differing(before, dict(before)) == ([], [])
    other = PlacedFleet(4)
    other.add("b")
    other.settle()
    theirs = _placements(other)
    after = {a: before[a], b: theirs[b], d: before[d]}
    assert differing(before, after) == ([b], [c])
    assert differing(after, before) == ([b, c], [])
    new = GroupKey("ns", "new", 1)
    assert differing(before, {**after, new: theirs[b]}) == ([b, new], [c])
    assert differing({}, before) == ([a, b, c, d], [])
    assert differing(before, {}) == ([], [a, b, c, d])


def test_what_workers_hold_is_counted_by_what_differs() -> None:
    """The same as from nothing, whatever happens; nothing counts for no map."""
    fleet, counted = PlacedFleet(30), Holdings()
    for step in ("a", "b", "c", "-a", "d", "~b"):
        if step == "-a":
            fleet.die("a")
        elif step == "~b":
            fleet.draining.add("b")
        else:
            fleet.add(step)
        while fleet.look():
            owned, standby = counted.of(fleet.map)
            assert [+Counter(owned), +Counter(standby)] == list(Holdings().of(fleet.map))
            assert +Counter(owned) == fleet.owned()
    assert [sum(each.values()) for each in counted.of(None)] == [0, 0]
