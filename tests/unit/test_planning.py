"""Each transition of a group, from first placement to the last former owner leaving."""

from dataclasses import replace

import pytest

from coordinator.planning import (
    holder,
    rebuild,
    survivors,
)
from fleet.model import (
    Addresses,
    EpochVersion,
    Hold,
    Member,
    Phase,
    Placement,
    PoolId,
    PoolRef,
    Reason,
)
from tests.planning_world import LEADER, POOLS, G, World, moving, outcomes, peer, settled

# -- first placement --------------------------------------------------------------------------


def test_a_new_group_gets_its_owner_at_once_and_opens() -> None:
    """No acknowledgement is waited for."""
    world = World(peer("a"), peer("b"))
    world.plan("a", "b")
    assert world.group == Placement(
        G, POOLS, Phase.OPENING, ("a",), "b", Reason.INITIAL, since=1000.0
    )
    assert world.map.version == (5, 1)
    assert world.map.addresses == {"a": "a:9002", "b": "b:9002"}
    assert outcomes(world) == [("", "a", Reason.INITIAL, "done")]


@pytest.mark.parametrize(
    ("hold", "synced", "version", "owned"),
    [
        (Hold.OWNER, True, EpochVersion(5, 1), True),
        (Hold.OWNER, False, EpochVersion(5, 1), False),
        (Hold.STANDBY, True, EpochVersion(5, 1), False),
        (Hold.OWNER, True, EpochVersion(5, 0), False),
        (Hold.OWNER, True, EpochVersion(4, 9), False),
        (None, True, EpochVersion(5, 1), False),
    ],
)
def test_it_is_owned_once_the_owner_says_so_at_that_version(
    hold: Hold | None, synced: bool, version: EpochVersion, owned: bool
) -> None:
    """A report of an older share says nothing about this one."""
    world = World(peer("a"), peer("b"))
    world.plan("a", "b")
    world.tell("a", hold, synced=synced, version=version)
    world.later(1)
    world.plan("a", "b")
    assert world.group.phase is (Phase.OWNED if owned else Phase.OPENING)
    assert world.group.since == 1000.0


def test_nothing_to_say_is_no_new_map() -> None:
    """The version grows only by maps that differ."""
    world = settled()
    before = world.map
    world.later(1000)
    assert world.plan("a", "b", Reason.KEPT).shard_map is None
    assert world.map is before


def test_a_stand_by_of_whom_nobody_knows_inherits_as_if_its_owner_had_died() -> None:
    """A new leader had to begin with what workers hold, and nobody has said that it owns it: the
    stand-by has not joined, and has not had it before."""
    world = settled()
    orphan = replace(world.group, owners=(), phase=Phase.UNOWNED, reason=Reason.KEPT)
    world.at = replace(world.at, previous=replace(world.map, placements={G: orphan}))
    world.plan("c", "b", Reason.JOIN)
    assert (world.group.owners, world.group.reason) == (("b",), Reason.OWNER_DEAD)
    assert outcomes(world) == [("", "b", Reason.OWNER_DEAD, "done")]


def test_without_any_worker_the_group_is_unowned_until_one_comes() -> None:
    """It is in the map, so that it can be counted; the next worker gets it as a first placement."""
    world = World()
    world.plan(None)
    assert (world.group.phase, world.group.owners) == (Phase.UNOWNED, ())
    assert world.plan(None).shard_map is None
    world.peers(peer("a"))
    world.later(5)
    world.plan("a")
    assert (world.group.phase, world.group.owners) == (Phase.OPENING, ("a",))
    assert (world.group.reason, world.group.since) == (Reason.INITIAL, 1005.0)


def test_a_new_term_is_a_new_map_even_if_nothing_moved() -> None:
    """The epoch must reach every worker and every route."""
    world = settled()
    world.at = replace(world.at, version=EpochVersion(6, 9))
    outcome = world.plan("a", "b", Reason.KEPT)
    assert outcome.shard_map is not None
    assert outcome.shard_map.version == (6, 9)
    assert outcome.shard_map.placements == settled().map.placements
    assert not world.changes


# -- fail-over --------------------------------------------------------------------------------


def test_a_dead_owner_is_replaced_by_its_stand_by_at_once() -> None:
    """Whatever placement would like: the stand-by is warm."""
    world = settled()
    world.peers(peer("b"), peer("c"))
    world.later(7)
    world.plan("c", "b", Reason.OWNER_DEAD)
    assert (world.group.phase, world.group.owners) == (Phase.OPENING, ("b",))
    assert (world.group.reason, world.group.since) == (Reason.OWNER_DEAD, 1007.0)
    assert world.group.standby == "c"
    assert outcomes(world) == [("a", "b", Reason.OWNER_DEAD, "done")]
    world.tell("b", Hold.OWNER)
    world.plan("b", "c", Reason.KEPT)
    assert (world.group.phase, world.group.since) == (Phase.OWNED, 1007.0)


def test_without_a_stand_by_it_goes_where_placement_says() -> None:
    """A cold owner is better than none."""
    world = settled(standby=None)
    world.peers(peer("c"))
    world.plan("c", None, Reason.OWNER_DEAD)
    assert (world.group.owners, world.group.reason) == (("c",), Reason.OWNER_DEAD)


def test_a_restarted_owner_is_a_dead_owner() -> None:
    """The same id with another incarnation is cold: the stand-by takes over."""
    world = settled()
    world.peers(peer("a", incarnation="2"), peer("b"), peer("c"))
    world.plan("a", "c", Reason.KEPT)
    assert (world.group.owners, world.group.reason) == (("b",), Reason.OWNER_DEAD)
    assert world.map.incarnations["a"] == "2"


def test_a_lone_restarted_worker_gets_its_groups_again() -> None:
    """There is nobody else; it opens them like new ones."""
    world = settled(standby=None)
    world.peers(peer("a", incarnation="2"))
    world.later(1)
    world.plan("a", None, Reason.OWNER_DEAD)
    assert (world.group.phase, world.group.owners) == (Phase.OPENING, ("a",))
    assert world.group.since == 1001.0


def test_when_all_are_dead_the_group_is_unowned() -> None:
    """Since when, is when it lost its owner."""
    world = settled()
    world.peers()
    world.later(3)
    world.plan(None)
    assert (world.group.phase, world.group.owners, world.group.standby) == (
        Phase.UNOWNED,
        (),
        None,
    )
    assert (world.group.reason, world.group.since) == (Reason.OWNER_DEAD, 1003.0)


def test_a_draining_stand_by_takes_over_only_if_nobody_else_can() -> None:
    """A worker that drains accepts nothing; alone, it serves on."""
    world = settled()
    world.peers(peer("b", accepts=False), peer("c"))
    world.plan("c", None, Reason.OWNER_DEAD)
    assert world.group.owners == ("c",)
    alone = settled()
    alone.peers(peer("b", accepts=False))
    alone.plan(None, None, Reason.OWNER_DEAD)
    assert alone.group.owners == ("b",)


# -- the rest ---------------------------------------------------------------------------------


def test_a_new_stand_by_is_a_new_map_but_no_move() -> None:
    """`since` and `reason` stay: the owner did not change."""
    world = settled()
    world.later(50)
    world.plan("a", "c", Reason.KEPT)
    assert world.group.standby == "c"
    assert (world.group.since, world.group.reason) == (1000.0, Reason.INITIAL)
    assert not world.changes


def test_the_owner_is_never_its_own_stand_by() -> None:
    """Not even if placement says so."""
    world = World(peer("a"))
    world.plan("a", "a")
    assert world.group.standby is None


def test_a_pool_created_anew_changes_the_pools_alone() -> None:
    """The same name with another uid is another pool; the owner must learn of it."""
    world = settled()
    anew = (PoolId(PoolRef("models", "llama"), "u2"),)
    world.groups({G: anew})
    world.plan("a", "b", Reason.KEPT)
    assert world.group.pools == anew
    assert (world.group.owners, world.group.since) == (("a",), 1000.0)


def test_a_group_without_pools_is_gone() -> None:
    """It vanishes from the map in the next version."""
    world = settled()
    world.groups({})
    outcome = world.plan(None)
    assert outcome.shard_map is not None
    assert outcome.shard_map.placements == {}
    assert outcome.shard_map.version == (5, 3)


def test_placement_is_sticky_to_who_will_hold_the_group() -> None:
    """The gainer of a move, the heir of a dead owner, else the owner."""
    world = moving()
    everyone = frozenset("abc")
    assert holder(world.group, everyone) == "c"
    assert holder(world.group, frozenset("ab")) == "a"
    assert holder(world.group, frozenset("bc")) == "c"
    assert holder(world.group, frozenset("b")) == "b"
    assert holder(world.group, frozenset()) is None
    assert survivors(world.map, {"a": peer("a"), "b": peer("b", incarnation="2")}) == {"a"}


def member(worker: str, seen: EpochVersion, **holds: Hold) -> Member:
    return Member(
        worker,
        "1",
        Addresses(f"{worker}:1", f"{worker}:2", f"{worker}:3", f"{worker}:4"),
        seen=seen,
        applied=seen,
        holds={G._replace(service=service): hold for service, hold in holds.items()},
    )


def test_a_lost_map_is_rebuilt_from_what_workers_hold() -> None:
    """Owners stay owners; of two claims the one of the newer share is right."""
    groups = {G._replace(service=s): POOLS for s in ("x", "y", "z")}
    members = [
        member("a", EpochVersion(4, 7), x=Hold.OWNER, y=Hold.OWNER, gone=Hold.OWNER),
        member("b", EpochVersion(4, 9), y=Hold.OWNER, x=Hold.STANDBY),
        member("c", EpochVersion(4, 8), x=Hold.DRAINING, z=Hold.OPENING),
    ]
    rebuilt = rebuild(fleet="f", leader=LEADER, members=members, groups=groups, wall=9.0)
    assert rebuilt is not None
    assert rebuilt.version == (4, 9)
    assert {g.service: (p.owners, p.standby) for g, p in rebuilt.placements.items()} == {
        "x": (("a",), "b"),
        "y": (("b",), None),
    }
    x = rebuilt.placements[G._replace(service="x")]
    assert (x.draining, x.reason, x.phase) == (("c",), Reason.KEPT, Phase.OWNED)
    assert rebuilt.incarnations == {"a": "1", "b": "1", "c": "1"}


def test_a_group_of_which_only_the_standby_is_left_is_for_the_standby() -> None:
    """Its owner died with the map, and may be back, cold: nobody's, with the warm one named."""
    groups = {G._replace(service=s): POOLS for s in ("x", "y", "z")}
    members = [
        member("a", EpochVersion(0, 0)),
        member("b", EpochVersion(4, 9), y=Hold.OWNER, x=Hold.STANDBY),
    ]
    rebuilt = rebuild(fleet="f", leader=LEADER, members=members, groups=groups, wall=9.0)
    assert rebuilt is not None
    x = rebuilt.placements[G._replace(service="x")]
    assert (x.owners, x.standby, x.phase) == ((), "b", Phase.UNOWNED)
    assert G._replace(service="z") not in rebuilt.placements


def test_workers_that_own_nothing_remember_no_map() -> None:
    """A new fleet has no past."""
    fresh = [member("a", EpochVersion(0, 0))]
    assert rebuild(fleet="f", leader=LEADER, members=fresh, groups={G: POOLS}, wall=9.0) is None
