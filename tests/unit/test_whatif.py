"""What would move if workers came or went: by the placement itself, changing nothing."""

from collections import Counter

import pytest

from coordinator.web.planning import MAX_MOVES, plan_document, question_of
from coordinator.whatif import NoSuchWorker, Premises, Question, WhatIf, what_if
from fleet.model import GroupKey, MemberState, MemberStatus, Reason
from fleet.model.pins import Pin
from fleet.settings.model import PlacementSettings
from tests.placed_fleet import LEADER, PlacedFleet


def a_fleet(groups: int = 60, workers: int = 3) -> PlacedFleet:
    fleet = PlacedFleet(groups)
    for number in range(workers):
        fleet.add(f"w{number}")
    fleet.settle()
    return fleet


def premises(
    fleet: PlacedFleet,
    *,
    loads: dict[GroupKey, float] | None = None,
    pins: dict[GroupKey, Pin] | None = None,
    dead: tuple[str, ...] = (),
) -> Premises:
    assert fleet.map is not None
    members = [
        MemberStatus(
            member,
            MemberState.DEAD
            if name in dead
            else MemberState.DRAINING
            if name in fleet.draining
            else MemberState.ALIVE,
            None,
            0,
            0,
        )
        for name, member in sorted(fleet.members.items())
    ]
    return Premises(fleet.map, members, pins or {}, loads, PlacementSettings())


def after(found: WhatIf) -> dict[str, int]:
    return {row.worker: row.owned_after for row in found.workers}


def test_a_worker_that_goes_hands_its_groups_to_the_others() -> None:
    """20 of 60 move, half to each of the two; the balance stays; nothing has changed."""
    fleet = a_fleet()
    had = fleet.owned()["w1"]
    before = fleet.owners()
    found = what_if(premises(fleet), Question(remove="w1"))
    assert (found.groups, found.moved) == (60, had)
    assert {(each.source, each.reason) for each in found.moves} == {("w1", Reason.DRAIN)}
    assert sum(each.groups for each in found.moves) == had
    assert after(found)["w1"] == 0
    assert sorted(after(found).values())[1:] == pytest.approx([30, 30], abs=2)
    assert found.balance_after <= 1.10
    assert {row.worker: row.fate for row in found.workers} == {
        "w0": "stays",
        "w1": "leaves",
        "w2": "stays",
    }
    assert fleet.owners() == before


def test_what_is_foretold_is_what_happens() -> None:
    """A drain gives each of the others as many groups as the plan said."""
    fleet = a_fleet(90, 5)
    found = what_if(premises(fleet), Question(remove="w3"))
    fleet.draining.add("w3")
    fleet.settle()
    owned = fleet.owned()
    assert Counter(after(found)) == Counter({**owned, "w3": 0})


def test_more_workers_take_a_share_each() -> None:
    """Two new ones of five: at least 60 % of 12 each, from the old ones only."""
    found = what_if(premises(a_fleet()), Question(workers=5))
    assert [row.worker for row in found.workers if row.fate == "joins"] == ["new-1", "new-2"]
    assert min(after(found).values()) >= 7
    joins = [each for each in found.moves if each.reason is Reason.JOIN]
    assert {each.target for each in joins} == {"new-1", "new-2"}
    assert {each.source for each in joins} <= {"w0", "w1", "w2"}
    assert found.balance_after <= 1.10


def test_fewer_workers_lose_the_least_loaded_first() -> None:
    """As the deletion costs order the pods: w0 owns the one busy pool, so another goes."""
    fleet = a_fleet(12, 3)
    loads = {group: 50.0 for group, owner in fleet.owners().items() if owner == "w0"}
    found = what_if(premises(fleet, loads=loads), Question(workers=2))
    gone = [row.worker for row in found.workers if row.fate == "leaves"]
    assert len(gone) == 1
    assert gone != ["w0"]
    assert found.loads_known


def test_as_many_workers_as_there_are_move_nothing_in_a_balanced_fleet() -> None:
    """And a draining one is not counted: it stays as it is."""
    fleet = a_fleet()
    assert what_if(premises(fleet), Question(workers=3)).moved == 0
    fleet.draining.add("w2")
    fleet.settle()
    found = what_if(premises(fleet), Question(workers=2))
    assert (found.moved, after(found)["w2"]) == (0, 0)


def test_without_the_last_worker_nobody_serves() -> None:
    """The answer says so: all groups go to nobody."""
    found = what_if(premises(a_fleet(6, 1)), Question(remove="w0"))
    assert [(each.target, each.groups) for each in found.moves] == [(None, 6)]
    assert found.balance_after == 0.0


@pytest.mark.parametrize("name", ["nobody", "w2"])
def test_a_worker_that_does_not_live_cannot_go(name: str) -> None:
    """Unknown, or dead already."""
    with pytest.raises(NoSuchWorker, match=name):
        what_if(premises(a_fleet(), dead=("w2",)), Question(remove=name))


def test_pins_are_kept_to() -> None:
    """All groups are pinned to two workers; without one of them the other gets all."""
    fleet = a_fleet()
    fleet.pins = dict.fromkeys(fleet.groups, Pin.parse("worker in (w0,w1)"))
    fleet.settle()
    found = what_if(premises(fleet, pins=fleet.pins), Question(remove="w0"))
    assert after(found) == {"w0": 0, "w1": 60, "w2": 0}


@pytest.mark.parametrize(
    ("query", "question"),
    [
        ({"remove": "w 0"}, Question(remove="w 0")),
        ({"workers": "1"}, Question(workers=1)),
        ({"workers": "1000"}, Question(workers=1000)),
    ],
)
def test_questions(query: dict[str, str], question: Question) -> None:
    """One of the two."""
    assert question_of(query) == question


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"remove": "a", "workers": "3"},
        {"remove": "a", "more": "x"},
        {"workers": "0"},
        {"workers": "1001"},
        {"workers": "-1"},
        {"workers": "٣"},
        {"workers": "1" * 5000},
        {"workers": ""},
    ],
)
def test_what_is_no_question(query: dict[str, str]) -> None:
    """Neither, both, something else, or no number in range."""
    with pytest.raises(ValueError, match=r"ask with either|is no number|out of range"):
        question_of(query)


def test_the_document() -> None:
    """JSON names, and at most 200 pairs of workers."""
    found = what_if(premises(a_fleet(900, 40)), Question(workers=3))
    document = plan_document(found, leader=LEADER, answered_by="coordinator-1")
    assert (document.format, document.epoch, document.groups) == (1, 1, 900)
    assert (document.question.remove, document.question.workers) == (None, 3)
    assert len(document.moves) <= MAX_MOVES
    assert document.moves[0].groups >= document.moves[-1].groups
    assert document.moved == found.moved > 800
    assert sum(row.owned_after for row in document.workers) == 900
    assert not document.loads_known
