"""What a new leader starts from."""

from dataclasses import replace

from coordinator.leader import recall
from coordinator.verdicts import Judged
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
from fleet.model.identity import NONE

LEADER = LeaderInfo("coordinator-0", "h:1", "h:2")
KEYS = [GroupKey("ns", f"s{n}", 9002) for n in range(6)]
GROUPS = {key: (PoolId(PoolRef("ns", key.service), "u"),) for key in KEYS}


def member(
    worker: str, *, seen: EpochVersion = NONE, applied: EpochVersion = NONE, **holds: Hold
) -> Member:
    return Member(
        worker,
        "i",
        Addresses(f"{worker}:1", f"{worker}:2", f"{worker}:3", f"{worker}:4"),
        seen=max(seen, applied),
        applied=applied,
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
    assert completed(previous, member("w1", applied=EpochVersion(4, 9), s0=Hold.OWNER)) is previous


def test_a_rolled_back_map_is_corrected_by_workers_that_have_seen_more() -> None:
    """Owners that differ are the workers' own word; the rest of the map is kept."""
    previous = a_map(EpochVersion(4, 2), {"s0": "w0", "s1": "w1"})
    ahead = member("w1", applied=EpochVersion(4, 9), s0=Hold.OWNER, s1=Hold.OWNER)
    corrected = completed(previous, ahead)
    assert corrected is not None
    assert corrected.version == (4, 9)
    assert corrected.placements[KEYS[0]].owners == ("w1",)
    assert corrected.placements[KEYS[0]].reason is Reason.KEPT
    assert corrected.placements[KEYS[1]] is previous.placements[KEYS[1]]


def test_a_leaders_hello_makes_no_worker_newer_than_the_map() -> None:
    """It has seen our epoch, and holds what a share below the map says, or what peers remember."""
    previous = a_map(EpochVersion(4, 9), {"s0": "w1"})
    behind = member("w2", seen=EpochVersion(5, 0), applied=EpochVersion(4, 8), s0=Hold.OWNER)
    by_hearsay = member("w3", seen=EpochVersion(5, 0), s0=Hold.OWNER)
    assert completed(previous, behind, by_hearsay) is previous


def test_who_came_back_inherits_nothing() -> None:
    """The map's owner died and is back, cold, as another incarnation: to the new leader the one of
    the map is dead, so that its stand-by takes over."""
    previous = a_map(EpochVersion(4, 9), {"s0": "w1", "s1": "w2"})
    seen = EpochVersion(5, 0)
    ahead = EpochVersion(4, 10)
    cold = replace(member("w1", seen=seen, applied=ahead), incarnation="another")
    found = completed(previous, cold, member("w2", applied=ahead, s1=Hold.OWNER))
    assert found is not None
    assert found.incarnations == {"w1": "i", "w2": "i"}
    told = replace(member("w1", applied=ahead, s0=Hold.OWNER), incarnation="another")
    found = completed(previous, told, member("w2", applied=ahead, s1=Hold.OWNER))
    assert found is not None
    assert found.incarnations == {"w1": "another", "w2": "i"}


def test_who_came_back_inherits_only_what_it_was_told_of() -> None:
    """The rest was its predecessor's; the stand-by of the map stays named."""
    previous = a_map(EpochVersion(4, 9), {"s0": "w1", "s1": "w1"})
    told = replace(member("w1", applied=EpochVersion(4, 10), s0=Hold.OWNER), incarnation="another")
    warm = member("w2", applied=EpochVersion(4, 10), s1=Hold.STANDBY)
    found = completed(previous, told, warm)
    assert found is not None
    assert found.placements[KEYS[0]].owners == ("w1",)
    assert (found.placements[KEYS[1]].owners, found.placements[KEYS[1]].phase) == (
        (),
        Phase.UNOWNED,
    )


def test_what_only_a_standby_reports_corrects_no_owner() -> None:
    previous = a_map(EpochVersion(4, 9), {"s0": "w0"})
    found = completed(previous, member("w1", applied=EpochVersion(4, 10), s0=Hold.STANDBY,
                                       s1=Hold.OWNER))  # fmt: skip
    assert found is not None
    assert found.placements[KEYS[0]].owners == ("w0",)


def test_a_stand_by_by_its_own_word_is_warm_where_that_of_an_older_map_holds_nothing() -> None:
    """`w0` stood by in the map that the store still has, died, and is back, cold; `w2` has stood by
    since. Who says that it stands by for itself is not believed; and a `w0` that says nothing may
    have taken over since."""
    previous = a_map(EpochVersion(4, 4), {"s0": "w1", "s1": "w2"})
    named = {
        key: replace(placement, standby="w0") for key, placement in previous.placements.items()
    }
    incarnations = {**previous.incarnations, "w0": "i"}
    previous = replace(previous, placements=named, incarnations=incarnations)
    ahead = member("w2", applied=EpochVersion(4, 8), s0=Hold.STANDBY, s1=Hold.STANDBY,
                   s2=Hold.OWNER)  # fmt: skip
    there = member("w0", applied=EpochVersion(4, 4), s0=Hold.STANDBY)
    back = replace(there, incarnation="another")
    gone = member("w0", applied=EpochVersion(4, 8))
    for others, standby in (((back,), "w2"), ((gone,), "w2"), ((there,), "w0"), ((), "w0")):
        found = completed(previous, ahead, *others)
        assert found is not None
        first, second = (found.placements[key] for key in KEYS[:2])
        assert (first.owners, first.standby) == (("w1",), standby)
        assert (second.owners, second.standby) == (("w2",), "w0")


def test_without_any_map_the_workers_holds_are_the_map() -> None:
    """And without holds there is none."""
    rebuilt = completed(None, member("w1", applied=EpochVersion(4, 9), s0=Hold.OWNER))
    assert rebuilt is not None
    assert rebuilt.placements[KEYS[0]].owners == ("w1",)
    assert completed(None, member("w1")) is None


def reached(*members: Member) -> list[Judged]:
    return [Judged(each, MemberState.ALIVE, None, True) for each in members]


def test_until_the_first_map_is_public_whoever_comes_late_is_heard() -> None:
    """`w1` was paused while the new leader settled without any map, and still owns `s1`, of which
    only the stand-by had spoken; who was heard before is not forgotten when its stream breaks."""
    begun = recall.Recollection(None, fleet="f", leader=LEADER)
    applied = EpochVersion(4, 9)
    early = member("w0", applied=applied, s0=Hold.OWNER, s1=Hold.STANDBY)
    found = begun.completed(reached(early), GROUPS, wall=9.0)
    assert found is not None
    assert (found.placements[KEYS[0]].owners, found.placements[KEYS[1]].owners) == (("w0",), ())
    assert begun.completed(reached(early), GROUPS, wall=9.5) is found
    unreached = replace(reached(early)[0], reached=False)
    late = reached(member("w1", applied=applied, s1=Hold.OWNER, s0=Hold.STANDBY))
    found = begun.completed([unreached, *late], GROUPS, wall=10.0)
    assert found is not None
    assert [found.placements[key].owners for key in KEYS[:2]] == [("w0",), ("w1",)]
    assert [found.placements[key].standby for key in KEYS[:2]] == ["w1", "w0"]


def test_another_life_of_who_was_heard_before_takes_its_place() -> None:
    """What the one before owned is nobody's, with its stand-by."""
    begun = recall.Recollection(None, fleet="f", leader=LEADER)
    applied = EpochVersion(4, 9)
    other = member("w1", applied=applied, s0=Hold.STANDBY, s1=Hold.OWNER)
    before = member("w0", applied=applied, s0=Hold.OWNER)
    begun.completed(reached(before, other), GROUPS, wall=9.0)
    after = replace(member("w0"), incarnation="another")
    found = begun.completed(reached(after, other), GROUPS, wall=9.5)
    assert found is not None
    assert (found.placements[KEYS[0]].owners, found.placements[KEYS[0]].standby) == ((), "w1")
