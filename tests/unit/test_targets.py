"""The targets of placement over time: budget and cool-down, joins, drains, no oscillation."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.model import GroupKey, Phase, Reason
from fleet.placement.pacing import BalancePace, RolloutWatch, Running
from fleet.settings.model import PlacementSettings
from tests.placed_fleet import PlacedFleet


def a_fleet(groups: int, workers: int, chosen: PlacementSettings | None = None) -> PlacedFleet:
    fleet = PlacedFleet(groups, settings=chosen)
    for number in range(workers):
        fleet.add(f"w{number}")
    fleet.settle()
    return fleet


def heat(fleet: PlacedFleet, worker: str) -> None:
    """Every group of `worker` becomes busy."""
    fleet.loads = {group: 100.0 for group, owner in fleet.owners().items() if owner == worker}


def test_balance_moves_a_share_and_then_rests() -> None:
    """One round moves at most 1 % (at least one group), the next comes 30 s later."""
    fleet = a_fleet(6, 3)
    heat(fleet, "w0")
    fleet.look(10.0)
    fleet.settle()
    assert fleet.reasons == {Reason.BALANCE: 1}
    for _ in range(5):
        fleet.look(5.0)
        fleet.settle()
    assert fleet.moves.total() == 1, "cooling down"
    fleet.look(30.0)
    fleet.settle()
    assert fleet.moves.total() <= 2


def test_share_and_rest_are_settings() -> None:
    """A tenth of 100 groups in a round, and no rest: the next look goes on."""
    settings = PlacementSettings(balance_share=0.1, balance_seconds=0.0)
    fleet = a_fleet(100, 2, settings)
    heat(fleet, "w0")
    fleet.look(10.0)
    fleet.settle()
    assert fleet.moves.total() == 10
    fleet.look(10.0)
    fleet.settle()
    assert 10 < fleet.moves.total() <= 20


def test_the_pace_of_balance() -> None:
    """1 % of 250 groups is 2, of 10 at least 1; nothing within 30 s of the last round."""
    pace = BalancePace(PlacementSettings())
    assert pace.budget(250, 100.0) == 2
    assert pace.budget(10, 100.0) == 1
    pace.moved(100.0)
    assert pace.budget(250, 129.9) == 0
    assert pace.budget(250, 130.0) == 2


@pytest.mark.parametrize(("groups", "workers"), [(4, 3), (6, 2), (6, 3), (7, 5), (12, 4), (50, 9)])
def test_a_newcomer_of_a_small_fleet_gets_its_share_at_once(groups: int, workers: int) -> None:
    """Also where it is no group's ring home: it takes from the fullest, up to its share, without
    waiting for a round of balance."""
    for name in ("a", "b", "c", "newcomer-1", "z"):
        fleet = a_fleet(groups, workers)
        fleet.add(name)
        fleet.settle()
        fair = groups / (workers + 1)
        assert int(fair * 0.6) <= fleet.owned()[name] <= fair
        assert fleet.owned()[name] >= 1
        assert fleet.reasons[Reason.JOIN] == fleet.owned()[name]
        assert fleet.reasons[Reason.BALANCE] <= 1
        assert fleet.now < 1000.0 + 10.0


def test_more_workers_than_groups_is_no_reason_to_move() -> None:
    """Three groups on three workers: a fourth can only take what another then lacks."""
    fleet = a_fleet(3, 3)
    fleet.add("w9")
    fleet.settle()
    assert not fleet.moves


def test_a_drained_worker_gets_its_share_back_when_it_is_undrained() -> None:
    """Drain takes all, nothing is given while it lasts, undrain is a join."""
    fleet = a_fleet(60, 3)
    fleet.draining.add("w0")
    fleet.settle()
    assert fleet.owned()["w0"] == 0
    assert set(fleet.reasons) == {Reason.DRAIN}
    fleet.draining.clear()
    fleet.settle()
    assert 12 <= fleet.owned()["w0"] <= 20


def test_a_draining_worker_gets_groups_only_if_nobody_else_is_left() -> None:
    """The last accepting worker dies: whoever drains serves rather than nobody."""
    fleet = a_fleet(6, 2)
    fleet.draining.add("w0")
    fleet.settle()
    fleet.die("w1")
    fleet.settle()
    assert fleet.owned() == {"w0": 6}


_events = st.lists(
    st.tuples(st.sampled_from(["add", "die", "drain", "undrain", "load"]), st.integers(0, 6)),
    max_size=8,
)


@given(_events, st.integers(1, 20), st.sampled_from(["1", "2"]))
@settings(max_examples=40)
def test_the_same_facts_again_move_nothing(
    events: list[tuple[str, int]], groups: int, version: str
) -> None:
    """Whatever happened: once balance is found, hours of the same facts change nothing."""
    fleet = a_fleet(groups, 3)
    for event, number in events:
        name = f"w{number}"
        if event == "add" and name not in fleet.members:
            fleet.add(name, version=version)
        elif event == "die" and name in fleet.members:
            fleet.die(name)
        elif event == "drain" and name in fleet.members:
            fleet.draining.add(name)
        elif event == "undrain":
            fleet.draining.discard(name)
        elif event == "load":
            fleet.loads = {g: 7.0 * (n % 5) for n, g in enumerate(fleet.groups) if n % 7 == number}
        fleet.settle()
    for _ in range(3 * groups):
        fleet.look(400.0)
        fleet.settle()
    before, moves = fleet.owners(), fleet.moves.total()
    for _ in range(5):
        fleet.look(400.0)
        fleet.settle()
    assert fleet.owners() == before
    assert fleet.moves.total() == moves
    if fleet.members:
        assert all(fleet.at(group).phase is Phase.OWNED for group in fleet.groups)


@pytest.mark.parametrize("weight", [-5, 0, 10**9])
def test_a_weight_out_of_bounds_is_clamped(weight: int) -> None:
    """One member's nonsense must not stop the placement."""
    fleet = PlacedFleet(6)
    fleet.add("w0", weight=weight)
    fleet.add("w1")
    fleet.settle()
    assert fleet.targets.ring.weights["w0"] in (1, 100)


# -- roll-outs ----------------------------------------------------------------------------------


def running(name: str, version: str, started: float, *, accepts: bool = True) -> Running:
    return Running(name, f"{name}-{started}", version, started, accepts)


def test_a_roll_out_is_workers_of_two_versions_that_come_and_go() -> None:
    """Its release is that of whoever started last, it ends with the last old worker, and one that
    stands still for 300 s is none any more."""
    watch = RolloutWatch(PlacementSettings())
    old = [running("a", "1", 10.0), running("b", "1", 11.0)]
    assert watch.release(old, 0.0) is None
    assert watch.release([*old, running("c", "2", 50.0)], 1.0) == "2"
    assert watch.release([*old, running("c", "2", 50.0)], 300.9) == "2"
    assert watch.release([*old, running("c", "2", 50.0)], 301.0) is None
    last = [replace(old[0], accepts=False), running("c", "2", 50.0)]
    assert watch.release(last, 302.0) == "2"
    assert watch.release(last[1:], 303.0) is None


def test_a_mix_of_versions_is_no_roll_out_for_ever() -> None:
    """Two Deployments side by side, one of them scaled every minute: an hour, then no more."""
    watch = RolloutWatch(PlacementSettings())
    old, new = running("a", "1", 10.0), running("b", "2", 20.0)
    said = {}
    for minute in range(62):
        extra = [running("c", "1", 5.0)] if minute % 2 else []
        said[minute] = watch.release([old, new, *extra], 60.0 * minute)
    assert {said[minute] for minute in range(60)} == {"2"}
    assert {said[60], said[61]} == {None}


def test_a_roll_back_prefers_the_lower_version_that_comes_back() -> None:
    """Versions are not compared: the later start tells where things go."""
    watch = RolloutWatch(PlacementSettings())
    mixed = [running("a", "2", 10.0), running("b", "1", 20.0)]
    assert watch.release(mixed, 0.0) == "1"
    assert watch.release([*mixed, running("c", "2", 5.0)], 0.0) == "1"


def roll_out(fleet: PlacedFleet, count: int, *, surge: bool) -> None:
    """Replace w0.. by n0.. one by one; with surge the new one comes first."""
    for number in range(count):
        if surge:
            fleet.add(f"n{number}", version="2")
            fleet.look(3.0)
            fleet.settle()
        fleet.draining.add(f"w{number}")
        fleet.look(1.0)
        fleet.settle()
        assert fleet.owned()[f"w{number}"] == 0
        fleet.die(f"w{number}")
        fleet.settle()
        if not surge:
            fleet.add(f"n{number}", version="2")
            fleet.look(3.0)
            fleet.settle()


def test_a_roll_out_moves_each_group_about_once() -> None:
    """10 workers, 1,000 groups, surge 1: at most 1.3 moves a group on average, each to a new
    worker as long as it has room, and balance is as promised at the end (akka-core#27367, #27368;
    an upgrade is one wave of moves, uberswe/createmod.com#1097)."""
    fleet = a_fleet(1000, 10)
    roll_out(fleet, 10, surge=True)
    average = fleet.moves.total() / 1000
    assert average <= 1.3
    assert max(fleet.moves.values()) <= 3
    assert max(fleet.owned().values()) <= 110
    assert set(fleet.reasons) <= {Reason.ROLLOUT, Reason.DRAIN}
    assert fleet.reasons[Reason.ROLLOUT] >= 900


def test_a_roll_out_without_surge_moves_little_more() -> None:
    """The first worker's groups must go to old ones, and so must the newcomer's share at the
    end."""
    fleet = a_fleet(1000, 10)
    roll_out(fleet, 10, surge=False)
    assert fleet.moves.total() / 1000 <= 1.4
    assert max(fleet.owned().values()) <= 110


def test_during_a_roll_out_nothing_moves_for_balance_or_to_newcomers() -> None:
    """Until the roll-out has stood still for 300 s: then it is a fleet like any other."""
    fleet = a_fleet(60, 3)
    fleet.add("n0", version="2")
    fleet.settle()
    heat(fleet, "w0")
    fleet.look(100.0)
    fleet.settle()
    assert not fleet.moves
    fleet.look(300.0)
    fleet.settle()
    assert fleet.reasons[Reason.JOIN] >= 5
    assert fleet.owned()["n0"] >= 5


def test_orphans_go_to_the_new_release_and_have_stand_bys_there() -> None:
    """An old worker dies in a roll-out with two new ones: who takes over is the warm stand-by,
    who stands by next is new."""
    fleet = a_fleet(40, 4)
    fleet.add("n0", version="2")
    fleet.add("n1", version="2")
    fleet.settle()
    fleet.draining.add("w0")
    fleet.settle()
    fleet.die("w0")
    fleet.settle()
    moved: list[GroupKey] = list(fleet.moves)
    assert moved
    assert {owner for group, owner in fleet.owners().items() if group in moved} <= {"n0", "n1"}
    lost = [group for group in fleet.groups if fleet.at(group).standby in ("n0", "n1")]
    assert len(lost) >= 10


def test_what_went_to_its_stand_by_past_the_deadline_stays_there() -> None:
    """`w0` drains, and whoever was to take over its group opens nothing: the warm stand-by gets
    it, and keeps it, whatever placement said when the group was still on its way elsewhere."""
    fleet = a_fleet(6, 2)
    fleet.add("w2")
    fleet.down.add("w2")
    fleet.look()
    moving = {group for group in fleet.groups if fleet.at(group).moving_to == "w2"}
    assert moving
    group = next(g for g in moving if fleet.at(g).owners == ("w0",))
    assert fleet.at(group).standby == "w1"
    fleet.draining.add("w0")
    for _ in range(6):
        fleet.look(5.0)
    assert fleet.at(group).owners == ("w1",)
    for _ in range(4):
        fleet.look()
    assert fleet.at(group).owners == ("w1",)
    assert (fleet.at(group).moving_to, fleet.moves[group]) == (None, 1)
