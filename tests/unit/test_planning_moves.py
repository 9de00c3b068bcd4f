"""Planned moves: made before they are broken, each on its own, and all of them bounded."""

from dataclasses import replace

import pytest

from coordinator.planning import holder
from fleet.model import (
    EpochVersion,
    Hold,
    Phase,
    Placement,
    Reason,
)
from tests.planning_world import POOLS, G, World, moving, outcomes, peer, settled


def test_a_planned_move_leaves_the_owner_serving_while_the_gainer_opens() -> None:
    """Make before break: nothing changes for gateways yet."""
    world = moving()
    assert (world.group.reason, world.group.since) == (Reason.JOIN, 1000.0)
    assert world.group.standby == "b"
    assert not world.changes
    assert world.plan("c", "b", Reason.KEPT).shard_map is None


def test_the_gainer_owns_it_once_it_is_synced_and_the_loser_drains() -> None:
    """One map makes the switch; `since` is the switch."""
    world = moving()
    world.tell("c", Hold.OPENING, synced=False)
    assert world.plan("c", "a", Reason.KEPT).shard_map is None
    world.tell("c", Hold.OPENING)
    world.later(1)
    world.plan("c", "a", Reason.KEPT)
    assert world.group == Placement(
        G, POOLS, Phase.OWNED, ("c",), "a", Reason.JOIN, since=1011.0, draining=("a",)
    )
    assert outcomes(world) == [("a", "c", Reason.JOIN, "done")]
    assert world.changes[0].started == 1010.0


def test_a_synced_report_from_before_the_move_does_not_count() -> None:
    """The gainer may have held the group earlier."""
    world = settled()
    world.tell("c", Hold.OPENING)
    world.plan("c", "b", Reason.JOIN)
    world.plan("c", "b", Reason.KEPT)
    assert world.group.phase is Phase.MOVING


def leaving() -> World:
    """G moves from `a`, which drains, to `c`; the stand-by is `b`."""
    world = settled()
    world.peers(peer("a", accepts=False), peer("b"), peer("c"))
    world.later(10)
    world.plan("c", "b", Reason.DRAIN)
    assert world.group.moving_to == "c"
    return world


def test_after_the_deadline_a_leaving_owner_hands_over_by_a_plain_move() -> None:
    """30 s, not less; the group then opens at its new owner."""
    world = leaving()
    world.later(29.9)
    assert world.plan("c", "b", Reason.KEPT).shard_map is None
    world.later(0.1)
    assert not world.plan("c", "b", Reason.KEPT).astray
    assert (world.group.phase, world.group.owners, world.group.draining) == (
        Phase.OPENING,
        ("c",),
        ("a",),
    )
    assert outcomes(world) == [("a", "c", Reason.DRAIN, "deadline")]


def test_after_the_deadline_a_warm_stand_by_takes_what_a_leaving_owner_had() -> None:
    """It knows the pods already; the gainer, which does not, is not given what it cannot serve."""
    world = leaving()
    world.tell("b", Hold.STANDBY)
    world.later(30)
    assert world.plan("c", "b", Reason.KEPT).astray, "its target was found for where it was before"
    assert (world.group.phase, world.group.owners, world.group.draining) == (
        Phase.OPENING,
        ("b",),
        ("a",),
    )
    assert outcomes(world) == [("a", "b", Reason.DRAIN, "deadline")]


def test_after_the_deadline_an_owner_that_can_stay_keeps_the_group() -> None:
    """A gainer that cannot list the pods could not serve: it is asked again after ten deadlines,
    or when another life of it has joined."""
    world = moving()
    world.later(30)
    assert world.plan("c", "b", Reason.KEPT).astray
    assert (world.group.phase, world.group.owners, world.group.draining) == (
        Phase.OWNED,
        ("a",),
        (),
    )
    assert outcomes(world) == [("a", "c", Reason.JOIN, "deadline")]
    world.later(299.9)
    assert world.plan("c", "b", Reason.JOIN).shard_map is None
    world.later(0.1)
    world.plan("c", "b", Reason.JOIN)
    assert world.group.moving_to == "c"
    other = moving()
    other.later(30)
    other.plan("c", "b", Reason.KEPT)
    other.peers(peer("a"), peer("b"), peer("c", incarnation="2"))
    other.plan("c", "b", Reason.JOIN)
    other.plan("c", "b", Reason.JOIN)
    assert other.group.moving_to == "c"


def test_a_drain_that_is_lifted_in_the_middle_of_a_move_keeps_the_group() -> None:
    """Placement is sticky to the owner again, so the move is called off; once the gainer owns the
    group, lifting the drain changes nothing."""
    world = leaving()
    everyone = frozenset("abc")
    assert holder(world.group, everyone, {"b", "c"}) == "c"
    assert holder(world.group, everyone, everyone) == "a"
    world.peers(peer("a"), peer("b"), peer("c"))
    world.plan("a", "b", Reason.KEPT)
    assert (world.group.phase, world.group.owners, world.group.moving_to) == (
        Phase.OWNED,
        ("a",),
        None,
    )
    assert outcomes(world) == [("a", "c", Reason.DRAIN, "cancelled")]
    wanted = leaving()
    wanted.peers(peer("a"), peer("b"), peer("c"))
    wanted.plan("c", "b", Reason.JOIN)
    assert (wanted.group.moving_to, wanted.group.reason) == ("c", Reason.JOIN), "not for the drain"
    wanted.plan("b", None, Reason.BALANCE)
    assert (wanted.group.moving_to, wanted.group.reason) == ("c", Reason.JOIN), "well under way"
    elsewhere = leaving()
    elsewhere.peers(peer("a"), peer("b"), peer("c"))
    elsewhere.plan("b", None, Reason.BALANCE)
    assert (elsewhere.group.moving_to, elsewhere.group.reason) == ("b", Reason.BALANCE)
    late = leaving()
    late.tell("c", Hold.OPENING)
    late.plan("c", "b", Reason.KEPT)
    assert holder(late.group, everyone, everyone) == "c"


def test_a_new_leader_counts_the_deadline_from_its_own_start() -> None:
    """It cannot know when the move began."""
    world = leaving()
    world.later(20)
    world.at = replace(world.at, pending={}, version=EpochVersion(6, 20))
    world.plan("c", "b", Reason.KEPT)
    world.later(29)
    world.plan("c", "b", Reason.KEPT)
    assert world.group.phase is Phase.MOVING
    world.later(1)
    world.plan("c", "b", Reason.KEPT)
    assert world.group.owners == ("c",)


@pytest.mark.parametrize("hold", [Hold.DRAINING, None])
def test_the_loser_leaves_once_it_is_quiet_or_has_dropped_the_group(hold: Hold | None) -> None:
    """The owner is not touched by that."""
    world = moving()
    world.tell("c", Hold.OPENING)
    world.plan("c", "b", Reason.KEPT)
    world.tell("a", Hold.DRAINING, quiet=False)
    assert world.plan("c", "b", Reason.KEPT).shard_map is None
    world.tell("a", hold, quiet=True)
    world.later(30)
    world.plan("c", "b", Reason.KEPT)
    assert (world.group.owners, world.group.draining) == (("c",), ())
    assert world.group.since == 1010.0


def test_a_report_from_before_the_switch_does_not_end_the_draining() -> None:
    """The loser has not heard of the switch yet: its silence about the group means nothing."""
    world = moving()
    world.tell("c", Hold.OPENING)
    world.plan("c", "b", Reason.KEPT)
    world.tell("a", None, version=EpochVersion(5, 2))
    assert world.plan("c", "b", Reason.KEPT).shard_map is None
    world.tell("a", Hold.OWNER, quiet=True)
    assert world.plan("c", "b", Reason.KEPT).shard_map is None


def test_a_dead_loser_leaves_at_once() -> None:
    """Nothing can stray to it."""
    world = moving()
    world.tell("c", Hold.OPENING)
    world.plan("c", "b", Reason.KEPT)
    world.peers(peer("b"), peer("c"))
    world.plan("c", "b", Reason.KEPT)
    assert world.group.draining == ()


def test_a_gainer_that_dies_gives_the_group_back() -> None:
    """The owner never stopped serving; the next plan looks for another."""
    world = moving()
    world.peers(peer("a"), peer("b"))
    world.plan("a", "b", Reason.KEPT)
    assert (world.group.phase, world.group.owners, world.group.moving_to) == (
        Phase.OWNED,
        ("a",),
        None,
    )
    assert world.group.since == 1000.0
    assert outcomes(world) == [("a", "c", Reason.JOIN, "gainer_dead")]


def test_an_owner_that_dies_while_moving_hands_over_to_the_gainer() -> None:
    """The gainer is as warm as can be."""
    world = moving()
    world.peers(peer("b"), peer("c"))
    world.later(1)
    world.plan("b", "c", Reason.OWNER_DEAD)
    assert (world.group.phase, world.group.owners, world.group.moving_to) == (
        Phase.OPENING,
        ("c",),
        None,
    )
    assert world.group.reason is Reason.OWNER_DEAD
    assert world.group.standby == "b"


def test_a_gainer_that_begins_to_drain_is_replaced() -> None:
    """Placement is sticky to the owner again, which has not left: the group stays, or moves to
    whom placement names now, for a reason of its own."""
    world = moving()
    everyone = frozenset("abc")
    assert holder(world.group, everyone, everyone) == "c"
    assert holder(world.group, everyone, {"a", "b"}) == "a"
    assert holder(world.group, everyone, {"b"}) == "c", "both leave: the nearest to an owner"
    world.peers(peer("a"), peer("b"), peer("c", accepts=False))
    world.plan("b", "a", Reason.JOIN)
    assert (world.group.phase, world.group.owners, world.group.moving_to) == (
        Phase.MOVING,
        ("a",),
        "b",
    )
    assert outcomes(world) == [("a", "c", Reason.JOIN, "cancelled")]


def test_a_move_whose_owner_is_wanted_back_is_cancelled() -> None:
    """Nothing happened for gateways."""
    world = moving()
    world.plan("a", "b", Reason.KEPT)
    assert (world.group.phase, world.group.owners, world.group.moving_to) == (
        Phase.OWNED,
        ("a",),
        None,
    )
    assert outcomes(world) == [("a", "c", Reason.JOIN, "cancelled")]


def test_a_drained_worker_that_alone_is_left_keeps_serving() -> None:
    """Placement has nobody; the group stays."""
    world = settled(standby=None)
    world.peers(peer("a", accepts=False))
    world.plan(None, None, Reason.DRAIN)
    assert (world.group.phase, world.group.owners) == (Phase.OWNED, ("a",))


def test_a_former_owner_that_gains_the_group_again_drains_no_more() -> None:
    """a -> c -> a while a still drains."""
    world = moving()
    world.tell("c", Hold.OPENING)
    world.plan("c", "b", Reason.KEPT)
    world.tell("a", Hold.DRAINING)
    world.plan("a", "b", Reason.BALANCE)
    assert (world.group.moving_to, world.group.draining) == ("a", ())
    world.tell("a", Hold.OPENING)
    world.plan("a", "b", Reason.KEPT)
    assert (world.group.owners, world.group.draining) == (("a",), ("c",))
