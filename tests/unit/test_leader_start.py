"""What a new leader starts from, and how the targets of placement are kept still."""

from dataclasses import replace

import pytest

from coordinator.leader import recall
from coordinator.leader.targets import Targets
from coordinator.planning import Peer
from fleet.model import (
    Addresses,
    EpochVersion,
    GroupKey,
    Hold,
    LeaderInfo,
    Member,
    MemberState,
    MemberStatus,
    Phase,
    Placement,
    PoolId,
    PoolRef,
    Reason,
    ShardMap,
)
from fleet.settings.model import PlacementSettings

LEADER = LeaderInfo("coordinator-0", "h:1", "h:2")
KEYS = [GroupKey("ns", f"s{n}", 9002) for n in range(6)]
GROUPS = {key: (PoolId(PoolRef("ns", key.service), "u"),) for key in KEYS}


def member(worker: str, *, seen: EpochVersion | None = None, **holds: Hold) -> Member:
    return Member(
        worker,
        "i",
        Addresses(f"{worker}:1", f"{worker}:2", f"{worker}:3", f"{worker}:4"),
        seen=seen or EpochVersion(0, 0),
        holds={GroupKey("ns", service, 9002): hold for service, hold in holds.items()},
    )


def a_map(version: EpochVersion, owners: dict[str, str]) -> ShardMap:
    placements = {
        (key := GroupKey("ns", service, 9002)): Placement(
            key, GROUPS[key], Phase.OWNED, (owner,), None, Reason.DRAIN, 1.0
        )
        for service, owner in owners.items()
    }
    workers = sorted(set(owners.values()))
    return ShardMap(
        "f",
        version,
        0.0,
        LEADER,
        placements,
        dict.fromkeys(workers, "i"),
        {worker: f"{worker}:1" for worker in workers},
    )


def completed(previous: ShardMap | None, *members: Member) -> ShardMap | None:
    return recall.completed(
        previous, fleet="f", leader=LEADER, members=members, groups=GROUPS, wall=9.0
    )


def test_the_newest_map_counts() -> None:
    """A higher epoch beats any version of a lower one."""
    low, high = a_map(EpochVersion(3, 90), {}), a_map(EpochVersion(4, 1), {})
    assert recall.newest(low, None, high) is high
    assert recall.newest(None, None) is None


def test_workers_of_the_map_are_known_by_what_followers_heard_else_by_their_address() -> None:
    """A worker that did not beat again after a FLUSHALL is unknown, not forgotten."""
    shard_map = a_map(EpochVersion(3, 1), {"s0": "w0", "s1": "w1"})
    heard = MemberStatus(member("w0"), MemberState.ALIVE, None, 0, 0)
    full, bare = recall.known_members(shard_map, [heard])
    assert full == heard.member
    assert (bare.id, bare.incarnation) == ("w1", "i")
    assert bare.addresses == Addresses("w1:1", "", "", "")


def test_a_map_that_nobody_is_ahead_of_stands_as_it_is() -> None:
    """Holds of workers that lag behind it correct nothing."""
    previous = a_map(EpochVersion(4, 9), {"s0": "w0"})
    assert completed(previous, member("w1", seen=EpochVersion(4, 9), s0=Hold.OWNER)) is previous


def test_a_rolled_back_map_is_corrected_by_workers_that_have_seen_more() -> None:
    """Owners that differ are the workers' own word; the rest of the map is kept."""
    previous = a_map(EpochVersion(4, 2), {"s0": "w0", "s1": "w1"})
    ahead = member("w1", seen=EpochVersion(4, 9), s0=Hold.OWNER, s1=Hold.OWNER)
    corrected = completed(previous, ahead)
    assert corrected is not None
    assert corrected.version == (4, 9)
    assert corrected.placements[KEYS[0]].owners == ("w1",)
    assert corrected.placements[KEYS[0]].reason is Reason.KEPT
    assert corrected.placements[KEYS[1]] is previous.placements[KEYS[1]]


def test_without_any_map_the_workers_holds_are_the_map() -> None:
    """And without holds there is none."""
    rebuilt = completed(None, member("w1", seen=EpochVersion(4, 9), s0=Hold.OWNER))
    assert rebuilt is not None
    assert rebuilt.placements[KEYS[0]].owners == ("w1",)
    assert completed(None, member("w1")) is None


class Placed:
    """Targets over workers w0.. with one map that follows them."""

    def __init__(self, count: int, *, settings: PlacementSettings | None = None) -> None:
        self.targets = Targets(settings or PlacementSettings())
        self.members = {f"w{n}": member(f"w{n}") for n in range(count)}
        self.map: ShardMap | None = None
        self.now = 1000.0

    def update(self, loads: dict[GroupKey, float] | None = None) -> dict[str, str | None]:
        peers = {w: Peer(w, "i", f"{w}:1", accepts=True) for w in self.members}
        self.targets.update(
            previous=self.map,
            groups=GROUPS,
            peers=peers,
            members=self.members,
            loads=loads or {},
            now=self.now,
        )
        return {key.service: self.targets.of(key).owner for key in KEYS}

    def follow(self, owners: dict[str, str | None]) -> None:
        """Make a map of these owners that knows all workers."""
        shard_map = a_map(EpochVersion(5, 1), {s: o for s, o in owners.items() if o})
        self.map = replace(
            shard_map,
            incarnations=dict.fromkeys(self.members, "i"),
            addresses={worker: f"{worker}:1" for worker in self.members},
        )

    def moved(self, before: dict[str, str | None], after: dict[str, str | None]) -> int:
        return sum(before[service] != after[service] for service in before)


def hot(owners: dict[str, str | None], worker: str) -> dict[GroupKey, float]:
    """Every group of `worker` has become busy."""
    return {key: 100.0 for key in KEYS if owners[key.service] == worker}


def test_loads_alone_are_looked_at_every_few_seconds_and_move_little() -> None:
    """One round moves at most 1 % (at least one group), the next comes 30 s later."""
    world = Placed(3)
    first = world.update()
    world.follow(first)
    loads = hot(first, "w0")
    world.now += 1.0
    world.update(loads)  # the workers of the map are known only now: placed again
    start = {key.service: world.targets.of(key).owner for key in KEYS}
    assert world.moved(first, start) <= 1
    world.follow(start)
    for _ in range(5):
        world.now += 5.0
        assert world.update(loads) == start, "cooling down"
    world.now += 30.0
    assert world.moved(start, world.update(loads)) <= 1


def test_nothing_moves_for_balance_during_a_roll_out() -> None:
    """Two versions of workers: what moves has another reason."""
    world = Placed(3)
    first = world.update()
    world.follow(first)
    world.members["w2"] = replace(world.members["w2"], version="2")
    world.now += 100.0
    assert world.update(hot(first, "w0")) == first


@pytest.mark.parametrize("weight", [-5, 0, 10**9])
def test_a_weight_out_of_bounds_is_clamped(weight: int) -> None:
    """One member's nonsense must not stop the placement."""
    world = Placed(2)
    world.members["w0"] = replace(world.members["w0"], weight=weight)
    world.update()
    assert world.targets.ring.weights["w0"] in (1, 100)
