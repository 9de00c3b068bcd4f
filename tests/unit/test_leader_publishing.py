"""One map becomes public: in which order, to whom, and what an unknown answer stops."""

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest

from coordinator.election.contract import Term
from coordinator.leader.linkset import Links
from coordinator.leader.publishing import Publisher
from coordinator.leader.routekeeping import RouteKeeper
from coordinator.planning import Change, shares_of
from coordinator.planning.shares import Shares
from fleet.errors import StoreRefused, StoreUnavailable
from fleet.model import (
    DeadMember,
    EpochVersion,
    GroupKey,
    LeaderInfo,
    Phase,
    Placement,
    Reason,
    RingSpec,
    ShardMap,
    Share,
    share_of,
)
from fleet.store.contract import Publication
from tests.placed_fleet import PlacedFleet, groups_of

LEADER = LeaderInfo("coordinator-0", "h:1", "h:2")
RING = RingSpec("xxh3", 160, {"w0": 1})


def a_map(version: int, owners: dict[str, str], standby: str | None = None) -> ShardMap:
    placements = {
        (key := GroupKey("ns", service, 1)): Placement(
            key, (), Phase.OWNED, (owner,), standby, Reason.INITIAL, 0.0
        )
        for service, owner in owners.items()
    }
    incarnations = {"w0": "i", "w1": "i", "w2": "i"}
    return ShardMap("f", EpochVersion(5, version), 0.0, LEADER, placements, incarnations)


class World:
    """Records what is done, in order."""

    def __init__(self) -> None:
        self.acts: list[str] = []
        self.publications: list[Publication] = []
        self.fault: Exception | None = None
        self.links_send = False
        self.assigned: list[set[str]] = []
        self.counted: list[tuple[Reason, str]] = []
        self.publisher = Publisher(
            store=self,
            routes=cast("RouteKeeper", self),
            links=cast("Links", self),
            term=lambda: Term(LEADER, 5, 100.0),
            count_move=lambda reason, outcome: self.counted.append((reason, outcome)),
            clock=cast("Any", self),
        )

    def wall(self) -> float:
        return 9.0

    def monotonic(self) -> float:
        return 4.0

    async def write(self, publication: Publication) -> None:
        if self.fault is not None:
            raise self.fault
        self.acts.append("store")
        self.publications.append(publication)

    async def follow(self, shard_map: ShardMap) -> None:
        self.acts.append("routes")

    def assign(self, shares: object, changed: set[str]) -> None:
        self.acts.append("workers")
        self.assigned.append(set(changed))
        if self.links_send:
            asyncio.get_running_loop().call_soon(self.acts.append, "sent")


async def test_store_then_routes_then_workers() -> None:
    """A leader whose lease is gone is stopped by the store before it touches anything else."""
    world = World()
    await world.publisher.publish(a_map(1, {"a": "w0"}), RING, [], whole=True)
    assert world.acts == ["store", "routes", "workers"]
    assert set(world.publications[0].shares) == {"w0", "w1", "w2"}
    assert world.assigned == [{"w0", "w1", "w2"}]


@pytest.mark.parametrize(
    ("sources", "expected"),
    [(["", ""], ["store", "workers", "routes"]), (["", "w1"], ["store", "routes", "workers"])],
)
async def test_first_placements_reach_the_workers_before_the_routes(
    sources: list[str], expected: list[str]
) -> None:
    """They list their pods meanwhile; a group that was somebody's keeps the order."""
    world = World()
    changes = [
        Change(GroupKey("ns", f"g{n}", 1), source, "w0", Reason.INITIAL, 1.0, "done")
        for n, source in enumerate(sources)
    ]
    await world.publisher.publish(a_map(1, {"g0": "w0", "g1": "w0"}), RING, changes, whole=True)
    assert world.acts == expected


async def test_the_beginning_of_a_move_reaches_the_workers_before_the_routes() -> None:
    """It changes no route, and looking at those of ten thousand groups takes its time."""
    world = World()
    await world.publisher.publish(a_map(1, {"a": "w0"}), RING, [], whole=False)
    assert world.acts == ["store", "workers", "routes"]


@pytest.mark.parametrize("source", ["", "w1"])
async def test_links_send_before_the_leader_goes_on(source: str) -> None:
    """What they wait for is done first, whether routes come before or after."""
    world = World()
    world.links_send = True
    change = Change(GroupKey("ns", "a", 1), source, "w0", Reason.DRAIN, 1.0, "done")
    await world.publisher.publish(a_map(1, {"a": "w0"}), RING, [change], whole=False)
    assert world.acts.index("sent") == world.acts.index("workers") + 1


@pytest.mark.parametrize(
    "fault", [StoreUnavailable("?"), StoreRefused("no", holder="other", epoch=9)]
)
async def test_an_answer_that_is_not_yes_stops_everything(fault: Exception) -> None:
    """Neither routes nor workers hear of a map that the store may not have."""
    world = World()
    world.fault = fault
    change = Change(GroupKey("ns", "a", 1), "", "w0", Reason.INITIAL, 1.0, "done")
    with pytest.raises(type(fault)):
        await world.publisher.publish(a_map(1, {"a": "w0"}), RING, [change], whole=True)
    assert world.acts == []
    assert world.counted == []


async def test_the_audit_says_why_somebody_was_declared_dead() -> None:
    """Of the owner that was lost, or of the gainer that a move failed with; the latest death."""
    world = World()
    dead = tuple(
        DeadMember(worker, f"i{n}", "silent", float(n), why)
        for n, (worker, why) in enumerate([("w1", "old"), ("w1", "refused"), ("w2", "pod gone")])
    )
    group = GroupKey("ns", "a", 1)
    changes = [
        Change(group, "w1", "w0", Reason.OWNER_DEAD, 1.0, "done"),
        Change(group, "w0", "w2", Reason.BALANCE, 1.0, "gainer_dead"),
        Change(group, "w1", "w0", Reason.DRAIN, 1.0, "done"),
        Change(group, "w9", "w0", Reason.OWNER_DEAD, 1.0, "done"),
    ]
    shard_map = replace(a_map(1, {"a": "w0"}), dead=dead)
    await world.publisher.publish(shard_map, RING, changes, whole=True)
    assert [move.why for move in world.publications[0].moves] == ["refused", "pod gone", "", ""]


async def test_only_changed_shares_are_written_and_sent() -> None:
    """Who holds what it held before is not bothered; a dead worker's share is deleted."""
    world = World()
    await world.publisher.publish(a_map(1, {"a": "w0", "b": "w1"}), RING, [], whole=True)
    await world.publisher.publish(a_map(2, {"a": "w2", "b": "w1"}), RING, [], whole=False)
    assert set(world.publications[1].shares) == {"w0", "w2"}
    assert world.assigned[1] == {"w0", "w2"}
    fewer = a_map(3, {"a": "w2", "b": "w1"})
    del cast("dict[str, str]", fewer.incarnations)["w0"]
    await world.publisher.publish(fewer, RING, [], whole=False)
    assert world.publications[2].removed_shares == ["w0"]
    assert world.publications[2].shares == {}


async def test_changes_become_moves_and_are_counted_once_they_are_public() -> None:
    """The audit stream says from where, to where, why, when and how it ended."""
    world = World()
    change = Change(GroupKey("ns", "a", 1), "w1", "w0", Reason.DRAIN, 4.0, "done")
    await world.publisher.publish(a_map(1, {"a": "w0"}), RING, [change], whole=True)
    (move,) = world.publications[0].moves
    assert (move.group, move.source, move.target) == ("ns/a:1", "w1", "w0")
    assert (move.reason, move.outcome) == ("drain", "done")
    assert (move.started, move.finished, move.version) == (4.0, 9.0, EpochVersion(5, 1))
    assert world.counted == [(Reason.DRAIN, "done")]


def test_shares_in_one_pass_are_the_shares_one_by_one() -> None:
    """Owner, gainer, former owner, stand-by: the first that applies, for every worker."""
    key = [GroupKey("ns", s, 1) for s in "abc"]
    placements = {
        key[0]: Placement(key[0], (), Phase.MOVING, ("w0",), "w1", Reason.JOIN, 0.0, "w1", ("w2",)),
        key[1]: Placement(key[1], (), Phase.UNOWNED, (), None, Reason.INITIAL, 0.0),
        key[2]: Placement(
            key[2], (), Phase.OWNED, ("w2",), "w0", Reason.JOIN, 0.0, None, ("w0", "gone")
        ),
    }
    incarnations = {"w0": "i0", "w1": "i1", "w2": "i2", "w3": "i3"}
    shard_map = ShardMap("f", EpochVersion(5, 1), 0.0, LEADER, placements, incarnations)
    assert shares_of(shard_map) == {w: share_of(shard_map, w) for w in incarnations}


def test_shares_that_are_made_from_the_last_ones_are_the_same_as_from_nothing() -> None:
    """Workers come, drain and die, groups move, come and go; what is no more is not kept, and
    whoever has what it had before keeps the share that it had."""
    fleet = PlacedFleet(30)
    shares, last = Shares(), dict[str, Share]()
    for step in ("a", "b", "c", "d", "-a", "e", "~b", "+", "a", "-"):
        if step == "~b":
            fleet.draining.add("b")
        elif step == "-a":
            fleet.die("a")
        elif step == "+":
            fleet.groups = groups_of(40)
        elif step == "-":
            fleet.groups = groups_of(5)
        else:
            fleet.add(step)
        while fleet.look():
            assert fleet.map is not None
            made, wanted = shares.next(fleet.map, whole=False), shares_of(fleet.map)
            assert made.all.keys() == wanted.keys()
            for worker, share in made.all.items():
                found = {entry.group: entry for entry in share.entries}
                assert found == {entry.group: entry for entry in wanted[worker].entries}
                assert share.incarnation == wanted[worker].incarnation
                kept = share is last.get(worker)
                assert (worker in made.changed) != kept
                assert kept or share.version == fleet.map.version
            last = dict(made.all)
            assert shares._holders.keys() == fleet.map.placements.keys()


def test_all_shares_are_of_the_newest_version_where_it_is_asked_for() -> None:
    """After a doubt; nothing else is different."""
    shares = Shares()
    shares.next(a_map(1, {"a": "w0"}), whole=False)
    made = shares.next(a_map(2, {"a": "w0"}), whole=True)
    assert made.changed == {"w0", "w1", "w2"}
    assert made.all == shares_of(a_map(2, {"a": "w0"}))
