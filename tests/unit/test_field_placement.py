"""Rebalancing as it went wrong in the field, replayed on the placement and the planning of a term:
what is right is that nothing moves without a reason, and nobody is left without an owner."""

from collections import Counter
from dataclasses import replace

import pytest

from coordinator.leader.peers import peers_of
from coordinator.leader.targets import Targets
from coordinator.verdicts import Judged
from fleet.model import Addresses, GroupKey, Member, MemberState, Phase, Reason
from fleet.settings.model import PlacementSettings
from tests.placed_fleet import PlacedFleet, groups_of


def a_fleet(groups: int, workers: int, settings: PlacementSettings | None = None) -> PlacedFleet:
    fleet = PlacedFleet(groups, settings=settings)
    for number in range(workers):
        fleet.add(f"w{number}")
    fleet.settle()
    return fleet


def assert_all_owned(fleet: PlacedFleet) -> None:
    """Every group has one owner that lives, and all have acknowledged."""
    assert fleet.map is not None
    assert fleet.map.placements.keys() == fleet.groups.keys()
    for placement in fleet.map.placements.values():
        assert placement.phase is Phase.OWNED
        assert len(placement.owners) == 1
        assert placement.owners[0] in fleet.members


def test_groups_and_workers_come_and_go_and_none_is_forgotten() -> None:
    """A group that sorts first comes, one goes, three workers become two, one comes back under a
    new name: after each step all are owned by the living, and a step moves no more than it must
    (argo-cd#29476, #24147, #20965)."""
    fleet = a_fleet(30, 3)
    fleet.groups = {GroupKey("aaa", "first", 1): (), **fleet.groups}
    fleet.settle()
    assert_all_owned(fleet)
    fleet.groups = {key: fleet.groups[key] for key in list(fleet.groups)[1:]}
    fleet.settle()
    assert_all_owned(fleet)
    assert not fleet.moves
    had = fleet.owned()["w2"]
    fleet.die("w2")
    fleet.settle()
    assert_all_owned(fleet)
    assert fleet.moves.total() == had
    fleet.add("w3")
    fleet.settle()
    assert_all_owned(fleet)
    assert fleet.owned()["w3"] >= 6
    assert fleet.moves.total() <= had + 11


def test_a_worker_that_was_never_reached_is_given_nothing() -> None:
    """It beats, so it is known, but its pod is pending or it crashes before it answers
    (opentelemetry-operator#3781, #3807, #2201)."""
    there = Addresses("a:1", "a:2", "a:3", "a:4")
    reached, pending = (
        Judged(Member(name, "i", there), MemberState.ALIVE, None, answered)
        for name, answered in (("w0", True), ("w1", False))
    )
    assert peers_of((reached, pending), None).keys() == {"w0"}


def test_a_worker_that_is_being_deleted_gives_its_share_away_and_gets_none() -> None:
    """Its pod has a deletionTimestamp though it says that it is ready
    (opentelemetry-operator#1048, #5576)."""
    there = Addresses("a:1", "a:2", "a:3", "a:4")
    ending = Judged(Member("w0", "i", there), MemberState.DRAINING, None, True)
    assert not peers_of((ending,), None)["w0"].accepts
    fleet = a_fleet(20, 3)
    fleet.draining.add("w0")
    fleet.settle()
    fleet.groups = {**fleet.groups, **groups_of(40)}
    fleet.settle()
    assert_all_owned(fleet)
    assert fleet.owned()["w0"] == 0


def test_a_flap_that_is_shorter_than_the_verdict_moves_nothing() -> None:
    """A suspect is still a peer: its share stays until it is dead (opentelemetry-operator#3781)."""
    there = Addresses("a:1", "a:2", "a:3", "a:4")
    suspect = Judged(Member("w0", "i", there), MemberState.SUSPECT, None, True)
    assert peers_of((suspect,), None)["w0"].accepts


def test_edits_of_pools_move_nothing() -> None:
    """100 edits of what a group's pools say; where it goes follows from its name alone
    (opentelemetry-operator#2280, #5321)."""
    fleet = a_fleet(50, 5)
    for edit in range(100):
        fleet.objects = dict.fromkeys(fleet.groups, edit)
        fleet.groups = dict(fleet.groups)
        assert not fleet.look(10.0)
    assert not fleet.moves


def test_a_new_leader_decides_the_same() -> None:
    """It lists everything again, in another order, with an empty memory: nothing moves, and no
    group has two owners (opentelemetry-operator#1038, #4031, #968)."""
    fleet = a_fleet(200, 7)
    fleet.draining.add("w3")
    fleet.settle()
    before = fleet.owners()
    moves = fleet.moves.total()
    fleet.targets = Targets(PlacementSettings())
    fleet.groups = dict(reversed(fleet.groups.items()))
    fleet.members = dict(reversed(fleet.members.items()))
    fleet.look(10.0)
    fleet.settle()
    assert fleet.owners() == before
    assert fleet.moves.total() == moves


def test_a_newcomer_owns_a_group_only_after_it_has_opened_it() -> None:
    """It needs three seconds to list pods: until it acknowledges, the former owner serves and is
    what routes show (fluent#5)."""
    fleet = a_fleet(12, 2)
    before = fleet.owners()
    fleet.add("w2")
    fleet.down.add("w2")  # it is told, but says nothing yet
    for _ in range(12):
        fleet.look(0.25)
        assert fleet.owners() == before
    moving = [group for group in fleet.groups if fleet.at(group).phase is Phase.MOVING]
    assert {fleet.at(group).moving_to for group in moving} == {"w2"}
    fleet.down.clear()
    fleet.acknowledge()
    fleet.settle()
    assert {group for group, owner in fleet.owners().items() if owner == "w2"} == set(moving)


def test_a_thousand_groups_of_a_dead_worker_move_in_one_map() -> None:
    """Not one after the other: a single look gives all of them to others
    (kubernetes-controller-sharding#637)."""
    fleet = a_fleet(4000, 4)
    had = fleet.owned()["w0"]
    assert had >= 900
    fleet.die("w0")
    assert fleet.look()
    assert "w0" not in fleet.owned()
    assert fleet.reasons == {Reason.OWNER_DEAD: had}


@pytest.mark.parametrize("hot", [0, 5, 11])
def test_new_workers_get_work_though_one_pool_has_nearly_all_of_it(hot: int) -> None:
    """One worker becomes four, 12 pools, one of them with 90 % of the traffic: each newcomer has
    its share within a look, and in the end the hot pool is alone with its worker
    (opentelemetry-operator#2477, #5605)."""
    fleet = a_fleet(12, 1, PlacementSettings(balance_seconds=1.0))
    fleet.loads = {list(fleet.groups)[hot]: 99.0}
    for number in (1, 2, 3):
        fleet.add(f"w{number}")
        fleet.look(6.0)
        fleet.settle()
        assert fleet.owned()[f"w{number}"] >= 1
    for _ in range(12):
        fleet.look(6.0)
        fleet.settle()
    owned = fleet.owned()
    home = fleet.owners()[list(fleet.groups)[hot]]
    assert owned[home] == 1
    assert len(owned) == 4
    assert min(owned[name] for name in owned if name != home) >= 3


def test_one_join_moves_a_share_and_no_more() -> None:
    """A scale-out by one must not shuffle what stays (opentelemetry-operator#5605)."""
    fleet = a_fleet(500, 9)
    fleet.add("w9")
    fleet.settle()
    assert 30 <= fleet.moves.total() <= 55
    assert all(fleet.owners()[group] == "w9" for group in fleet.moves)


def test_half_of_the_workers_die_and_the_rest_restarts() -> None:
    """Five of ten at once, then all others one by one under their old names: no ghost stays in
    the ring, everything is owned throughout (dskit#207, #117, loki#5191, mimir#571)."""
    fleet = a_fleet(100, 10)
    fleet.die(*(f"w{number}" for number in range(5)))
    fleet.settle()
    assert_all_owned(fleet)
    assert fleet.targets.ring.weights.keys() == {f"w{number}" for number in range(5, 10)}
    for number in range(5, 10):
        fleet.look(20.0)
        fleet.die(f"w{number}")
        fleet.settle()
        assert all(fleet.at(group).owners for group in fleet.groups)
        fleet.add(f"w{number}")
        fleet.settle()
    assert_all_owned(fleet)


def test_a_shard_moves_to_a_worker_of_the_new_release_once() -> None:
    """Not onto one that is about to go, from where it would move again: three workers are
    replaced, and no group moves twice (akka-core#27367, #27368)."""
    fleet = a_fleet(30, 3)
    for number in range(3):
        fleet.add(f"n{number}", version="2")
        fleet.settle()
        fleet.draining.add(f"w{number}")
        fleet.settle()
        fleet.die(f"w{number}")
        fleet.settle()
    assert_all_owned(fleet)
    assert Counter(fleet.moves.values()) == {1: 30}


def test_workers_of_equal_names_in_two_lives_are_told_apart() -> None:
    """A restart within a look: the new life holds nothing, so its groups go to who is warm
    (kubernetes-controller-sharding#430, argo-cd#29476)."""
    fleet = a_fleet(20, 3)
    lost = {group for group, owner in fleet.owners().items() if owner == "w1"}
    warm = {group: fleet.at(group).standby for group in lost}
    fleet.die("w1")
    fleet.add("w1")
    fleet.look()
    for group in lost:
        assert fleet.at(group).owners == (warm[group],)
        assert fleet.at(group).reason is Reason.OWNER_DEAD
    fleet.members["w1"] = replace(fleet.members["w1"], started=5.0)
    fleet.settle()
    assert_all_owned(fleet)
