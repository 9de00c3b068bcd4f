"""What a placement respects besides loads: pins, a roll-out, quarantine, the budget of balance."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.model import GroupKey, Reason
from fleet.model.pins import Pin
from fleet.placement import Candidate, Conditions, Current, Decision, Plan, place
from fleet.settings import PlacementSettings

SETTINGS = PlacementSettings()
ZONES = [
    Candidate("a", zone="z1", node="n1"),
    Candidate("b", zone="z1", node="n2"),
    Candidate("c", zone="z2", node="n3"),
    Candidate("d", zone="z2", node="n4"),
]


def groups(count: int) -> list[GroupKey]:
    return [GroupKey("ns", f"epp-{number}", 9002) for number in range(count)]


def placed(
    candidates: list[Candidate],
    count: int,
    before: Plan | Mapping[GroupKey, Current] | None = None,
    conditions: Conditions | None = None,
) -> Plan:
    current: Mapping[GroupKey, Current] = {}
    if isinstance(before, Plan):
        current = {g: Current(d.owner, d.standby) for g, d in before.decisions.items()}
    elif before is not None:
        current = before
    return place(
        candidates,
        dict.fromkeys(groups(count), 1.0),
        current,
        cap=before.cap if isinstance(before, Plan) else None,
        settings=SETTINGS,
        conditions=conditions or Conditions(),
    )


def pinned(count: int, text: str) -> Conditions:
    return Conditions(pins=dict.fromkeys(groups(count), Pin.parse(text)))


def test_a_pinned_group_is_owned_within_its_pin_and_stands_by_there() -> None:
    """Six groups pinned to a zone of two workers: three each, and the other of the two stands
    by."""
    plan = placed(ZONES, 12, None, pinned(6, "zone=z2"))
    mine = [plan.decisions[group] for group in groups(6)]
    assert sorted(d.owner or "" for d in mine) == ["c"] * 3 + ["d"] * 3
    assert all({d.owner, d.standby} == {"c", "d"} for d in mine)


def test_a_new_pin_moves_its_group_with_its_own_reason() -> None:
    """One that is met already moves nothing."""
    first = placed(ZONES, 8)
    group = groups(1)[0]
    owner = first.decisions[group].owner
    others = ",".join(worker.id for worker in ZONES if worker.id != owner)
    plan = placed(ZONES, 8, first, pinned(1, f"worker in ({others})"))
    assert plan.decisions[group].owner in others.split(",")
    assert plan.decisions[group].reason is Reason.PINNED
    met = placed(ZONES, 8, first, pinned(1, f"worker={owner}"))
    assert {d.reason for d in met.decisions.values()} == {Reason.KEPT}


def test_a_pin_that_nobody_meets_is_as_good_as_none() -> None:
    """The same plan as without it; also if only a draining worker would meet it."""
    assert placed(ZONES, 8, None, pinned(8, "zone=mars")) == placed(ZONES, 8)
    draining = [*ZONES, Candidate("e", zone="z3", accepts=False)]
    assert placed(draining, 8, None, pinned(8, "zone=z3")) == placed(draining, 8)


def test_a_group_returns_to_its_pin_when_a_worker_of_it_is_back() -> None:
    """Zone z2 is away, the groups live elsewhere; then c comes back."""
    away = placed(ZONES[:2], 4, None, pinned(4, "zone=z2"))
    back = placed(ZONES[:3], 4, away, pinned(4, "zone=z2"))
    assert {(d.owner, d.reason) for d in back.decisions.values()} == {("c", Reason.PINNED)}
    assert all(d.standby in ("a", "b") for d in back.decisions.values())


def test_newcomers_and_balance_keep_to_pins() -> None:
    """All 40 groups are pinned to z1: a newcomer of z2 gets none, one of z1 its share."""
    first = placed(ZONES, 40, None, pinned(40, "zone=z1"))
    other = placed([*ZONES, Candidate("e", zone="z2")], 40, first, pinned(40, "zone=z1"))
    assert {d.owner for d in other.decisions.values()} == {"a", "b"}
    same = placed([*ZONES, Candidate("e", zone="z1")], 40, first, pinned(40, "zone=z1"))
    taken = [d for d in same.decisions.values() if d.owner == "e"]
    assert 5 <= len(taken) <= 14
    assert {d.owner for d in same.decisions.values()} == {"a", "b", "e"}


def test_a_pinned_stand_by_is_on_another_node_of_the_pin() -> None:
    """Three workers in the zone, two of them on the owner's node."""
    candidates = [
        Candidate("a", zone="z1", node="n1"),
        Candidate("b", zone="z1", node="n1"),
        Candidate("c", zone="z1", node="n2"),
        Candidate("d", zone="z2", node="n3"),
    ]
    plan = placed(candidates, 1, {groups(1)[0]: Current("a", "b")}, pinned(1, "zone=z1"))
    assert plan.decisions[groups(1)[0]] == Decision("a", "c", Reason.KEPT)


def test_in_a_roll_out_a_drained_worker_hands_over_to_the_new_release() -> None:
    """As far as that has room: 4 workers with 5 each; the cap of the remaining three is 7.2."""
    workers = [Candidate(name) for name in "abc"] + [Candidate("n", preferred=True)]
    current = {g: Current("abca"[n % 3], None) for n, g in enumerate(groups(15))}
    still = placed(workers, 15, current, Conditions(rolling=True))
    assert {d.reason for d in still.decisions.values()} == {Reason.KEPT}
    workers[0] = Candidate("a", accepts=False)
    plan = placed(workers, 15, current, Conditions(rolling=True))
    moved = [d for d in plan.decisions.values() if d.reason is not Reason.KEPT]
    assert [(d.owner, d.reason) for d in moved] == [("n", Reason.ROLLOUT)] * 5


def test_new_stand_bys_are_of_the_new_release_but_not_all_on_one_worker() -> None:
    """60 groups on six old workers without stand-bys and one new one: it stands by for twice its
    share of 60/7, the others for the rest."""
    workers = [Candidate(name) for name in "abcdef"] + [Candidate("n", preferred=True)]
    current = {g: Current("abcdef"[n % 6], None) for n, g in enumerate(groups(60))}
    plan = placed(workers, 60, current, Conditions(rolling=True))
    warm = sum(d.standby == "n" for d in plan.decisions.values())
    assert warm == 18
    assert all(d.standby not in (None, d.owner) for d in plan.decisions.values())


def test_the_budget_bounds_balance_and_nothing_else() -> None:
    """7 of 12 groups are on a, too many for the cap of 6.48: one could move, none may; when a dies
    all of its groups do."""
    workers = [Candidate("a"), Candidate("b")]
    current = {g: Current("a" if n < 7 else "b", None) for n, g in enumerate(groups(12))}
    for budget, expected in ((None, 1), (1, 1), (0, 0)):
        plan = placed(workers, 12, current, Conditions(balance=budget))
        reasons = [decision.reason for decision in plan.decisions.values()]
        assert reasons.count(Reason.BALANCE) == expected
    dead = placed(workers[1:], 12, current, Conditions(balance=0))
    assert [d.reason for d in dead.decisions.values()].count(Reason.OWNER_DEAD) == 7


def test_a_quarantined_group_goes_where_nothing_else_goes() -> None:
    """a is dead; b inherits already, c is the emptiest but receives, d gets it; no stand-by."""
    bad = groups(1)[0]
    current = {g: Current("bcd"[n % 3], None) for n, g in enumerate(groups(13))}
    current[bad] = Current("a", None)
    conditions = Conditions(quarantined=frozenset([bad]), receiving=frozenset(["b", "c"]))
    plan = placed([Candidate(name) for name in "bcd"], 13, current, conditions)
    assert plan.decisions[bad] == Decision("d", None, Reason.OWNER_DEAD)


def test_quarantined_groups_are_kept_together_and_resting_ones_away() -> None:
    """One worker for all of them; nobody for those that rest."""
    one, two, three = groups(3)
    current = {one: Current("a", "b"), two: Current("gone", None), three: Current("gone", None)}
    conditions = Conditions(quarantined=frozenset([one, two, three]), resting=frozenset([three]))
    plan = placed([Candidate(name) for name in "abc"], 9, current, conditions)
    assert plan.decisions[one] == Decision("a", None, Reason.KEPT)
    assert plan.decisions[two] == Decision("a", None, Reason.OWNER_DEAD)
    assert plan.decisions[three] == Decision(None, None, Reason.OWNER_DEAD)
    others = [plan.decisions[group].owner for group in groups(9)[3:]]
    assert sorted(others, key=str) == ["b"] * 3 + ["c"] * 3


def test_without_anybody_else_the_worker_of_a_quarantined_group_serves_all() -> None:
    """As far as possible it is given nothing new; here it is not possible."""
    bad = groups(1)[0]
    conditions = Conditions(quarantined=frozenset([bad]))
    plan = placed([Candidate("a")], 3, {bad: Current("a", None)}, conditions)
    assert {d.owner for d in plan.decisions.values()} == {"a"}


_ids = st.sampled_from(["a", "b", "c", "d", "e"])
_candidates = st.lists(
    st.builds(
        Candidate,
        id=_ids,
        weight=st.integers(1, 3),
        zone=st.sampled_from(["", "z1", "z2"]),
        node=st.sampled_from(["", "n1", "n2"]),
        accepts=st.booleans(),
        preferred=st.booleans(),
    ),
    max_size=5,
    unique_by=lambda candidate: candidate.id,
)
_group = st.sampled_from(groups(15))
_pins = st.sampled_from(["zone=z1", "zone=z2", "node!=n1", "worker=a", "worker in (b,c)", "zone"])
_conditions = st.builds(
    Conditions,
    rolling=st.booleans(),
    balance=st.none() | st.just(0),
    pins=st.dictionaries(_group, _pins.map(Pin.parse), max_size=6),
    quarantined=st.frozensets(_group, max_size=3),
)


@given(
    _candidates,
    st.dictionaries(_group, st.floats(0, 50) | st.just(1.0), max_size=15),
    st.dictionaries(_group, st.builds(Current, st.none() | _ids, st.none() | _ids)),
    _conditions,
)
def test_whatever_the_conditions_a_plan_is_whole_and_stable(
    candidates: list[Candidate],
    loads: dict[GroupKey, float],
    current: dict[GroupKey, Current],
    conditions: Conditions,
) -> None:
    """Every group has an owner that may own it, pins are met where they can be, quarantined
    groups have no stand-by, and the same facts again change nothing."""
    small = PlacementSettings(vnodes=8)
    plan = place(candidates, loads, current, cap=None, settings=small, conditions=conditions)
    again = place(
        candidates,
        loads,
        {g: Current(d.owner, d.standby) for g, d in plan.decisions.items()},
        cap=plan.cap,
        settings=small,
        conditions=conditions,
    )
    accepting = [each for each in candidates if each.accepts] or candidates
    names = {each.id for each in accepting}
    assert plan.decisions.keys() == loads.keys()
    for group, decision in plan.decisions.items():
        assert (decision.owner in names) if names else (decision.owner is None)
        pin = conditions.pins.get(group)
        meeting = {
            each.id
            for each in accepting
            if pin is not None and pin.meets(worker=each.id, zone=each.zone, node=each.node)
        }
        assert not meeting or decision.owner in meeting
        if group in conditions.quarantined:
            assert decision.standby is None
        elif len(candidates) > 1:
            assert decision.standby not in (None, decision.owner)
        if len(meeting) > 1 and group not in conditions.quarantined:
            assert decision.standby in meeting
        second = again.decisions[group]
        assert (second.owner, second.standby) == (decision.owner, decision.standby)


@pytest.mark.parametrize(
    ("text", "worker", "zone", "node", "meets"),
    [
        ("zone=z1", "a", "z1", "", True),
        ("zone=z1", "a", "", "", False),
        ("zone!=z1", "a", "", "", True),
        ("zone in (z1, z2),node!=n1", "a", "z2", "n1", False),
        ("worker=worker-0", "worker-0", "", "", True),
        ("zone", "a", "z1", "", True),
    ],
)
def test_a_pin_is_a_selector_over_worker_zone_and_node(
    text: str, worker: str, zone: str, node: str, meets: bool
) -> None:
    """What a worker does not say it does not have."""
    assert Pin.parse(text).meets(worker=worker, zone=zone, node=node) is meets


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "is empty"),
        ("region=eu", "'region' is unknown here; use zone, node or worker"),
        ("zone=", ""),
        ("zone=a b", "is no label value"),
        ("z" * 2000, "has 2000 characters"),
    ],
)
def test_a_pin_that_makes_no_sense_is_refused(text: str, fault: str) -> None:
    """With what is wrong and how to write it; an empty value is one that nobody has."""
    if not fault:
        assert not Pin.parse(text).meets(worker="a", zone="z", node="n")
        return
    with pytest.raises(ValueError, match=fault.replace("(", "\\(")):
        Pin.parse(text)
