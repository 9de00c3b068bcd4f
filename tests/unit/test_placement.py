"""Placement in small cases that can be worked out by hand."""

from collections import Counter
from collections.abc import Mapping

import pytest

from fleet.model import GroupKey, Reason, RingSpec
from fleet.placement import Candidate, Current, Decision, Plan, place
from fleet.placement.ledger import fair_level
from fleet.placement.plan import next_cap
from fleet.ring import Ring
from fleet.settings import PlacementSettings

SETTINGS = PlacementSettings()


def _groups(count: int) -> list[GroupKey]:
    return [GroupKey("ns", f"epp-{number}", 9002) for number in range(count)]


def _ones(count: int) -> dict[GroupKey, float]:
    return dict.fromkeys(_groups(count), 1.0)


def _workers(*names: str) -> list[Candidate]:
    return [Candidate(name) for name in names]


def _as_current(plan: Plan) -> dict[GroupKey, Current]:
    return {group: Current(d.owner, d.standby) for group, d in plan.decisions.items()}


def _place(
    candidates: list[Candidate],
    loads: Mapping[GroupKey, float],
    current: Mapping[GroupKey, Current] | None = None,
    cap: float | None = None,
) -> Plan:
    return place(candidates, loads, current or {}, cap=cap, settings=SETTINGS)


def _owned(plan: Plan) -> Counter[str | None]:
    return Counter(decision.owner for decision in plan.decisions.values())


def test_six_groups_on_three_workers_are_two_each() -> None:
    """Mean 2, cap 1.08 x 2 = 2.16: nobody may have a third."""
    plan = _place(_workers("a", "b", "c"), _ones(6))
    assert plan.cap == pytest.approx(2.16)
    assert _owned(plan) == {"a": 2, "b": 2, "c": 2}
    assert {d.reason for d in plan.decisions.values()} == {Reason.INITIAL}
    assert all(d.standby not in (None, d.owner) for d in plan.decisions.values())
    assert plan.ring == RingSpec("xxh3", 160, {"a": 1, "b": 1, "c": 1})


def test_a_dead_owners_groups_go_to_their_standbys() -> None:
    """Three workers of two groups; one dies, and both its stand-bys have room: mean 3, cap 3.24."""
    groups = _groups(6)
    owners = ["a", "a", "b", "b", "c", "c"]
    standbys = ["b", "c", "c", "a", "a", "b"]
    current = {g: Current(o, s) for g, o, s in zip(groups, owners, standbys, strict=True)}
    plan = _place(_workers("b", "c"), _ones(6), current, cap=2.16)
    assert plan.cap == pytest.approx(3.24)
    assert plan.decisions[groups[0]] == Decision("b", "c", Reason.OWNER_DEAD)
    assert plan.decisions[groups[1]] == Decision("c", "b", Reason.OWNER_DEAD)
    assert plan.decisions[groups[2]] == Decision("b", "c", Reason.KEPT)
    assert plan.decisions[groups[3]] == Decision("b", "c", Reason.KEPT)


def test_a_standby_without_room_is_passed_over() -> None:
    """All six orphans stand by on `b`; cap 3.24 gives it three, the rest go to `c`."""
    current = dict.fromkeys(_groups(6), Current("a", "b"))
    plan = _place(_workers("b", "c"), _ones(6), current)
    assert _owned(plan) == {"b": 3, "c": 3}


def test_nothing_changes_when_nothing_changes() -> None:
    """The plan of a plan keeps every owner and stand-by, with the same cap and ring."""
    first = _place(_workers("a", "b", "c"), _ones(7))
    again = place(
        _workers("a", "b", "c"),
        _ones(7),
        _as_current(first),
        cap=first.cap,
        settings=SETTINGS,
        ring=Ring.build(first.ring),
    )
    assert again == Plan(
        {g: Decision(d.owner, d.standby, Reason.KEPT) for g, d in first.decisions.items()},
        first.cap,
        first.ring,
    )


def test_a_draining_owner_gives_its_groups_away_and_takes_none() -> None:
    """A drain moves exactly the drainer's groups, with its own reason."""
    candidates = _workers("a", "b", "c")
    first = _place(candidates, _ones(6))
    candidates[0] = Candidate("a", accepts=False)
    plan = _place(candidates, _ones(6), _as_current(first), first.cap)
    assert _owned(plan) == {"b": 3, "c": 3}
    for group, decision in plan.decisions.items():
        left = first.decisions[group].owner == "a"
        assert decision.reason == (Reason.DRAIN if left else Reason.KEPT)
        assert {decision.owner, decision.standby} == {"b", "c"}
    assert "a" not in plan.ring.weights


def test_when_all_drain_the_owners_stay() -> None:
    """Better a draining owner than none, and no reason to move from one to another."""
    first = _place(_workers("a", "b"), _ones(4))
    draining = [Candidate("a", accepts=False), Candidate("b", accepts=False)]
    plan = _place(draining, _ones(4), _as_current(first), first.cap)
    assert {d.reason for d in plan.decisions.values()} == {Reason.KEPT}


def test_the_last_accepting_worker_has_a_draining_standby() -> None:
    """Every group has a stand-by whenever two workers live."""
    plan = _place([Candidate("a"), Candidate("b", accepts=False)], _ones(3))
    assert set(plan.decisions.values()) == {Decision("a", "b", Reason.INITIAL)}


def test_a_newcomer_takes_its_share_and_survivors_swap_nothing() -> None:
    """40 groups on four workers; the fifth's share is 8: first what is its ring home, then from
    those that are over the new cap of 8.64."""
    loads = _ones(40)
    first = _place(_workers("a", "b", "c", "d"), loads)
    plan = _place(_workers("a", "b", "c", "d", "e"), loads, _as_current(first), first.cap)
    joined = {g for g, d in plan.decisions.items() if d.reason is Reason.JOIN}
    assert _owned(plan) == dict.fromkeys("abcde", 8)
    assert len(joined) == 8
    for group, decision in plan.decisions.items():
        before = first.decisions[group].owner
        assert decision.owner == ("e" if group in joined else before)
        assert decision.reason is (Reason.JOIN if group in joined else Reason.KEPT)


def test_a_worker_over_the_cap_sheds_as_few_as_needed() -> None:
    """6, 3, 3 (mean 4, cap 4.32): two leave `a`, one to each of the others, which move nothing."""
    groups = _groups(12)
    owners = ["a"] * 6 + ["b"] * 3 + ["c"] * 3
    current = {g: Current(o, None) for g, o in zip(groups, owners, strict=True)}
    plan = _place(_workers("a", "b", "c"), _ones(12), current)
    assert _owned(plan) == {"a": 4, "b": 4, "c": 4}
    moved = {g for g, d in plan.decisions.items() if d.reason is not Reason.KEPT}
    assert len(moved) == 2
    assert moved < set(groups[:6])
    assert {plan.decisions[g].reason for g in moved} == {Reason.BALANCE}


def test_a_group_heavier_than_the_cap_goes_to_the_emptiest() -> None:
    """Mean (10 + 4) / 2 = 7, cap 7.56: the heavy group gets a worker, all the rest the other."""
    groups = _groups(5)
    loads = dict(zip(groups, [10.0, 1.0, 1.0, 1.0, 1.0], strict=True))
    plan = _place(_workers("a", "b"), loads)
    heavy = plan.decisions[groups[0]].owner
    assert {plan.decisions[g].owner for g in groups[1:]} == {"a", "b"} - {heavy}


def test_a_heavy_group_stays_and_its_neighbours_leave() -> None:
    """The worker of a heavy group sheds the light ones, not the heavy one."""
    groups = _groups(5)
    loads = dict(zip(groups, [10.0, 1.0, 1.0, 1.0, 1.0], strict=True))
    current = dict.fromkeys(groups, Current("a", "b"))
    plan = _place(_workers("a", "b"), loads, current)
    assert plan.decisions[groups[0]].owner == "a"
    assert {plan.decisions[g].owner for g in groups[1:]} == {"b"}


def test_noise_in_the_loads_moves_nothing() -> None:
    """3 groups of 1.01 against 2 of 1.0: moving one would only swap the two workers' roles."""
    groups = _groups(5)
    loads = dict(zip(groups, [1.01, 1.01, 1.01, 1.0, 1.0], strict=True))
    current = {g: Current("a" if loads[g] > 1 else "b", None) for g in groups}
    plan = _place(_workers("a", "b"), loads, current)
    assert {d.reason for d in plan.decisions.values()} == {Reason.KEPT}


def test_weights_are_shares() -> None:
    """12 groups on weights 1, 1, 2: 3, 3 and 6 (caps 3.24 and 6.48)."""
    plan = _place([Candidate("a"), Candidate("b"), Candidate("c", weight=2)], _ones(12))
    assert _owned(plan) == {"a": 3, "b": 3, "c": 6}


@pytest.mark.parametrize(
    ("previous", "mean", "expected"),
    [
        (None, 100.0, 108.0),
        (108.0, 100.0, 108.0),
        (108.0, 99.0, 108.0),
        (108.0, 98.0, 105.84),
        (108.0, 102.0, 108.0),
        (108.0, 103.0, 111.24),
        (0.0, 2.0, 2.16),
        (108.0, 0.0, 0.0),
    ],
)
def test_the_cap_moves_only_out_of_its_bounds(
    previous: float | None, mean: float, expected: float
) -> None:
    """108 stands while the mean is within 108/1.10 = 98.2 and 108/1.05 = 102.9."""
    assert next_cap(previous, mean, SETTINGS) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("loads", "weights", "expected"),
    [
        ([1.0] * 6, [1, 1, 1], 2.0),
        ([1.0] * 12, [1, 1, 2], 3.0),
        ([10.0, 1.0, 1.0, 1.0, 1.0], [1, 1], 4.0),
        ([50.0, 10.0, 2.0, 2.0, 2.0], [1, 1, 1, 1], 3.0),
        ([50.0, 50.0], [1, 1, 1], 0.0),
        ([], [1, 1], 0.0),
        ([7.0], [3], 7.0 / 3),
    ],
)
def test_the_fair_level_leaves_out_what_fills_a_worker_alone(
    loads: list[float], weights: list[int], expected: float
) -> None:
    """50 and 10 fill a worker each, 2 + 2 + 2 are shared by the other two."""
    assert fair_level(loads, weights) == pytest.approx(expected)


def test_the_standby_is_in_another_zone_if_there_is_one() -> None:
    """Two zones of two workers: owner and stand-by are never in the same."""
    candidates = [
        Candidate("a", zone="z1", node="n1"),
        Candidate("b", zone="z1", node="n2"),
        Candidate("c", zone="z2", node="n3"),
        Candidate("d", zone="z2", node="n4"),
    ]
    zones = {c.id: c.zone for c in candidates}
    plan = _place(candidates, _ones(40))
    for decision in plan.decisions.values():
        assert decision.owner and decision.standby
        assert zones[decision.owner] != zones[decision.standby]


def test_the_standby_is_on_another_node_if_there_is_one() -> None:
    """One zone, two nodes: the stand-by is on the other; an unknown node counts as no other."""
    candidates = [
        Candidate("a", zone="z", node="n1"),
        Candidate("b", zone="z", node="n1"),
        Candidate("c", zone="z", node="n2"),
        Candidate("d", zone="z"),
    ]
    nodes = {c.id: c.node for c in candidates}
    plan = _place(candidates, _ones(40))
    for decision in plan.decisions.values():
        assert decision.owner and decision.standby
        if nodes[decision.owner]:
            assert nodes[decision.standby] not in ("", nodes[decision.owner])


def test_a_standby_stays_while_it_is_good_and_is_replaced_when_it_is_not() -> None:
    """Kept: alive and as far as can be. Replaced: dead, draining, or near while others are far."""
    group = _groups(1)[0]
    alike = _workers("a", "b", "c")
    zones = [
        Candidate("a", zone="z1"),
        Candidate("b", zone="z1"),
        Candidate("c", zone="z2"),
    ]
    loads = {group: 1.0}

    def standby(candidates: list[Candidate], now: str) -> str | None:
        return _place(candidates, loads, {group: Current("a", now)}).decisions[group].standby

    assert standby(alike, "b") == "b"
    assert standby(alike, "c") == "c"
    assert standby(alike, "gone") in ("b", "c")
    assert standby(alike, "a") in ("b", "c")
    assert standby([alike[0], alike[1], Candidate("c", accepts=False)], "c") == "b"
    assert standby(zones, "b") == "c"


def test_one_worker_owns_all_without_standbys() -> None:
    """Nobody to stand by is no error."""
    plan = _place(_workers("a"), _ones(3))
    assert set(plan.decisions.values()) == {Decision("a", None, Reason.INITIAL)}


def test_without_workers_nobody_owns_and_the_reason_says_why() -> None:
    """A group that had an owner lost it; the others never had one."""
    groups = _groups(2)
    plan = _place([], _ones(2), {groups[0]: Current("a", "b")}, cap=5.0)
    assert plan.decisions == {
        groups[0]: Decision(None, None, Reason.OWNER_DEAD),
        groups[1]: Decision(None, None, Reason.INITIAL),
    }
    assert plan.cap == 5.0


def test_no_groups_and_idle_groups_are_placed_too() -> None:
    """A fleet without pools, or whose pools all have load zero, is no special case."""
    assert _place(_workers("a"), {}).decisions == {}
    plan = _place(_workers("a", "b"), dict.fromkeys(_groups(4), 0.0))
    assert all(d.owner for d in plan.decisions.values())
