"""What every store promises: one suite over the in-memory store and a real Valkey."""

import pytest

from fleet.errors import StoreRefused, StoreUnavailable
from fleet.model import EpochVersion, LeaderInfo, Share
from fleet.model.identity import NONE
from fleet.store.contract import MAX_EPOCH, Guard, Lease, Store
from tests.contract.store_fixtures import (
    LEADER_A,
    LEADER_B,
    World,
    member,
    move,
    publication,
    shard_map,
)

TTL = 30.0


async def take(store: Store, *, request: str = "r1", floor: int = 0) -> Guard:
    """Acquire as leader A; the guard of that term."""
    lease = await store.acquire(LEADER_A, floor=floor, ttl_seconds=TTL, request=request)
    assert lease.leader == LEADER_A
    return Guard(LEADER_A.id, lease.epoch)


async def test_an_empty_store_has_no_lease(world: World) -> None:
    """Nobody leads, no epoch was given, no map is there."""
    assert await world.store().lease() == Lease(None, 0, 0.0, None)


async def test_the_first_acquire_gives_epoch_one(world: World) -> None:
    """Epoch = max(stored 0, floor 0) + 1, and the whole TTL remains."""
    store = world.store()
    lease = await store.acquire(LEADER_A, floor=0, ttl_seconds=TTL, request="r1")
    assert (lease.leader, lease.epoch, lease.map_version) == (LEADER_A, 1, None)
    assert TTL - 5.0 < lease.remaining_seconds <= TTL
    seen = await world.store().lease()
    assert (seen.leader, seen.epoch) == (LEADER_A, 1)


async def test_only_one_of_two_leaders_holds_the_lease(world: World) -> None:
    """The second is told who leads, and its try changes nothing."""
    first, second = world.store(), world.store()
    await take(first)
    lease = await second.acquire(LEADER_B, floor=40, ttl_seconds=TTL, request="r2")
    assert (lease.leader, lease.epoch) == (LEADER_A, 1)


async def test_the_epoch_is_above_the_floor(world: World) -> None:
    """A floor above the stored epoch wins; a lower one does not lower anything."""
    store = world.store()
    assert (await take(store, floor=23)).epoch == 24
    await store.release(Guard(LEADER_A.id, 24))
    assert (await take(store, request="r2", floor=3)).epoch == 25


async def test_the_same_request_gives_the_same_epoch(world: World) -> None:
    """A repetition after a lost answer is no second election."""
    store = world.store()
    assert (await take(store)).epoch == 1
    assert (await take(store)).epoch == 1


async def test_the_holder_may_acquire_again_higher(world: World) -> None:
    """Another request of the present holder gives a higher epoch and fences its own former one."""
    store = world.store()
    old = await take(store)
    new = await take(store, request="r2", floor=7)
    assert new.epoch == 8
    with pytest.raises(StoreRefused):
        await store.publish(old, publication(EpochVersion(1, 1)))


async def test_a_term_after_expiry_is_higher(world: World) -> None:
    """When the lease ran out the next holder gets the next epoch."""
    first, second = world.store(), world.store()
    await take(first)
    world.expire_lease()
    assert (await first.lease()).leader is None
    lease = await second.acquire(LEADER_B, floor=0, ttl_seconds=TTL, request="r2")
    assert (lease.leader, lease.epoch) == (LEADER_B, 2)


async def test_no_epoch_above_two_to_the_fifty(world: World) -> None:
    """2**50 itself is given, one more is refused, and the refusal changes nothing."""
    store = world.store()
    with pytest.raises(StoreRefused, match=str(MAX_EPOCH)):
        await store.acquire(LEADER_A, floor=MAX_EPOCH, ttl_seconds=TTL, request="r1")
    assert (await store.lease()).epoch == 0
    assert (await take(store, floor=MAX_EPOCH - 1)).epoch == 2**50
    assert (await store.lease()).epoch == 2**50
    with pytest.raises(StoreRefused):
        await take(store, request="r2")


async def test_renew_extends_only_for_holder_and_epoch(world: World) -> None:
    """Another holder's or an old epoch's renew changes nothing and shows who leads."""
    store = world.store()
    guard = await take(store)
    assert (await store.renew(guard, ttl_seconds=90.0)).remaining_seconds > 60.0
    for wrong in (Guard(LEADER_B.id, guard.epoch), Guard(LEADER_A.id, guard.epoch + 1)):
        lease = await store.renew(wrong, ttl_seconds=900.0)
        assert (lease.leader, lease.epoch) == (LEADER_A, 1)
        assert lease.remaining_seconds <= 90.0


async def test_renew_does_not_revive_a_lease(world: World) -> None:
    """Run out is run out: a new acquire is needed."""
    store = world.store()
    guard = await take(store)
    world.expire_lease()
    assert (await store.renew(guard, ttl_seconds=TTL)).leader is None
    assert (await store.lease()).leader is None


async def test_release_frees_only_ones_own_term(world: World) -> None:
    """A release by another epoch or holder does nothing; twice is no error; the epoch stays."""
    store = world.store()
    guard = await take(store)
    await store.release(Guard(LEADER_A.id, guard.epoch + 1))
    await store.release(Guard(LEADER_B.id, guard.epoch))
    assert (await store.lease()).leader == LEADER_A
    await store.release(guard)
    await store.release(guard)
    lease = await store.lease()
    assert (lease.leader, lease.epoch) == (None, 1)


async def test_beats_come_back_whole_and_in_order(world: World) -> None:
    """Every field of a member survives; members are ordered by id; the last beat counts."""
    store = world.store()
    await store.beat(member("worker-1"))
    await store.beat(member("worker-0", incarnation="old"))
    await store.beat(member("worker-0", incarnation="new"))
    beats = await world.store().members()
    assert [beat.member for beat in beats] == [
        member("worker-0", incarnation="new"),
        member("worker-1"),
    ]


async def test_ages_are_by_the_stores_clock(world: World) -> None:
    """An age is the time since the beat, whatever the member says of its own time."""
    store = world.store()
    await store.beat(member("worker-0"))
    await store.beat(member("worker-1"))
    world.age_beat("worker-0", 40.0)
    ages = {beat.member.id: beat.age_seconds for beat in await store.members()}
    assert 40.0 <= ages["worker-0"] < 50.0
    assert 0.0 <= ages["worker-1"] < 10.0


async def test_forget_needs_lease_and_incarnation(world: World) -> None:
    """A member that came back under a new incarnation is not forgotten; nor without the lease."""
    store = world.store()
    guard = await take(store)
    await store.beat(member("worker-0", incarnation="new"))
    await store.forget(guard, "worker-0", "old")
    await store.forget(guard, "never-there", "old")
    assert len(await store.members()) == 1
    with pytest.raises(StoreRefused) as refused:
        await store.forget(Guard(LEADER_B.id, 1), "worker-0", "new")
    assert (refused.value.holder, refused.value.epoch) == (LEADER_A.id, 1)
    await store.forget(guard, "worker-0", "new")
    assert await store.members() == ()


async def test_a_publication_is_readable_in_all_its_parts(world: World) -> None:
    """Map, ring, shares and moves come from one step and read back equal."""
    store = world.store()
    guard = await take(store)
    version = EpochVersion(1, 1)
    written = publication(version, moves=(move(0, version), move(1, version)))
    await store.publish(guard, written)
    reader = world.store()
    assert await reader.shard_map(NONE) == written.shard_map
    assert await reader.ring() == (written.ring, version)
    assert await reader.share("worker-0") == written.shares["worker-0"]
    assert await reader.share("stranger") is None
    assert await reader.moves(10) == (move(1, version), move(0, version))
    assert await reader.moves(1) == (move(1, version),)
    assert await reader.moves(0) == ()
    assert (await reader.lease()).map_version == version


async def test_an_empty_share_is_information(world: World) -> None:
    """A worker without groups reads an empty share, a removed one reads nothing."""
    store = world.store()
    guard = await take(store)
    await store.publish(guard, publication(EpochVersion(1, 1), groups=0))
    assert await store.share("worker-1") == Share("blue", "worker-1", "i1", EpochVersion(1, 1), ())
    await store.publish(guard, publication(EpochVersion(1, 2), groups=0, removed=("worker-1",)))
    assert await store.share("worker-1") is None
    assert await store.share("worker-0") is not None


def shares_of_version(version: EpochVersion, *workers: str) -> dict[str, Share]:
    given = publication(version).shares
    return {worker: given[worker] for worker in workers}


async def test_shares_follow_their_map(world: World) -> None:
    """Written or deleted behind it; others stay as they stand."""
    store = world.store()
    guard = await take(store)
    first, second, third = (EpochVersion(1, n) for n in (1, 2, 3))
    await store.publish(guard, publication(first))
    given = shares_of_version(second, "worker-0")
    for _ in range(2):  # the answer to the first try may be lost
        await store.publish_shares(guard, second, given, [])
        assert await store.share("worker-0") == given["worker-0"]
        assert (await store.share("worker-1")) == publication(first).shares["worker-1"]
    await store.publish_shares(guard, third, {}, ["worker-1", "never-there"])
    assert await store.share("worker-1") is None
    assert await store.share("worker-0") == given["worker-0"]
    assert await store.shard_map(NONE) == shard_map(first)


async def test_a_share_is_never_replaced_by_an_older_one(world: World) -> None:
    """A write that was given up and lands late takes back nothing that was written since."""
    store = world.store()
    guard = await take(store)
    late, newer = EpochVersion(1, 4), EpochVersion(1, 10)
    given = shares_of_version(newer, "worker-0", "worker-1")
    await store.publish_shares(guard, newer, given, [])
    await store.publish_shares(guard, late, shares_of_version(late, "worker-0"), ["worker-1"])
    assert [await store.share(worker) for worker in given] == list(given.values())


async def test_shares_are_written_by_the_leader_alone(world: World) -> None:
    """Fenced like a map: by the lease, by its epoch, and with shares of no other epoch."""
    sleeper, heir = world.store(), world.store()
    old = await take(sleeper)
    mine = EpochVersion(1, 1)
    with pytest.raises(StoreRefused):
        other = shares_of_version(EpochVersion(2, 1), "worker-0")
        await sleeper.publish_shares(old, mine, other, [])
    await sleeper.publish_shares(old, mine, shares_of_version(mine, "worker-1"), [])
    world.expire_lease()
    lease = await heir.acquire(LEADER_B, floor=0, ttl_seconds=TTL, request="r2")
    assert lease.epoch == 2
    with pytest.raises(StoreRefused) as refused:
        later = EpochVersion(1, 2)
        await sleeper.publish_shares(old, later, shares_of_version(later, "worker-0"), ["worker-1"])
    assert (refused.value.holder, refused.value.epoch) == (LEADER_B.id, 2)
    assert await heir.share("worker-0") is None
    assert await heir.share("worker-1") == shares_of_version(mine, "worker-1")["worker-1"]


async def test_a_map_is_read_only_when_newer(world: World) -> None:
    """Versions compare as pairs: a higher epoch beats any version of a lower one."""
    store = world.store()
    guard = await take(store, floor=6)
    await store.publish(guard, publication(EpochVersion(7, 3)))
    for older in (NONE, EpochVersion(7, 2), EpochVersion(6, 99)):
        assert await store.shard_map(older) == shard_map(EpochVersion(7, 3))
    for as_new in (EpochVersion(7, 3), EpochVersion(7, 4), EpochVersion(8, 0)):
        assert await store.shard_map(as_new) is None


async def test_repeating_a_publication_adds_no_move_twice(world: World) -> None:
    """The answer to the first try was lost: the second is good and changes nothing."""
    store = world.store()
    guard = await take(store)
    version = EpochVersion(1, 1)
    for _ in range(3):
        await store.publish(guard, publication(version, moves=(move(0, version),)))
    assert await store.moves(10) == (move(0, version),)


async def test_one_version_is_one_map(world: World) -> None:
    """Another map under a stored version is refused: readers would never see it."""
    store = world.store()
    guard = await take(store)
    await store.publish(guard, publication(EpochVersion(1, 1)))
    with pytest.raises(StoreRefused):
        await store.publish(guard, publication(EpochVersion(1, 1), groups=9))
    assert await store.shard_map(NONE) == shard_map(EpochVersion(1, 1))


async def test_versions_only_grow(world: World) -> None:
    """A lower version of the same epoch is refused."""
    store = world.store()
    guard = await take(store)
    await store.publish(guard, publication(EpochVersion(1, 5)))
    with pytest.raises(StoreRefused):
        await store.publish(guard, publication(EpochVersion(1, 4)))
    assert (await store.lease()).map_version == EpochVersion(1, 5)


@pytest.mark.parametrize("epoch", [1, 3])
async def test_a_map_of_another_epoch_is_refused(world: World, epoch: int) -> None:
    """The map's epoch must be the guard's, lower and higher alike."""
    store = world.store()
    guard = await take(store, floor=1)
    with pytest.raises(StoreRefused):
        await store.publish(guard, publication(EpochVersion(epoch, 1)))
    assert await store.shard_map(NONE) is None


async def test_a_paused_ex_leader_is_refused(world: World) -> None:
    """A leader that slept through its lease wakes and writes: refused, and nothing is changed.

    Replays kyverno#14984 (two writers after a stopped process woke).
    """
    sleeper, heir = world.store(), world.store()
    old = await take(sleeper)
    await sleeper.beat(member("worker-0"))
    world.expire_lease()
    lease = await heir.acquire(LEADER_B, floor=0, ttl_seconds=TTL, request="r2")
    new = Guard(LEADER_B.id, lease.epoch)
    await heir.publish(new, publication(EpochVersion(2, 1)))
    for version in (EpochVersion(1, 9), EpochVersion(2, 9)):
        with pytest.raises(StoreRefused) as refused:
            await sleeper.publish(old, publication(version, groups=9, moves=(move(0, version),)))
        assert (refused.value.holder, refused.value.epoch) == (LEADER_B.id, 2)
    with pytest.raises(StoreRefused):
        await sleeper.forget(old, "worker-0", "i1")
    await sleeper.release(old)
    assert (await heir.lease()).leader == LEADER_B
    assert await heir.shard_map(NONE) == shard_map(EpochVersion(2, 1))
    assert await heir.moves(10) == ()
    assert len(await heir.members()) == 1


async def test_an_expired_lease_writes_nothing(world: World) -> None:
    """Nobody took over, yet the term is over: a write under it is refused and says so."""
    store = world.store()
    guard = await take(store)
    world.expire_lease()
    with pytest.raises(StoreRefused) as refused:
        await store.publish(guard, publication(EpochVersion(1, 1)))
    assert (refused.value.holder, refused.value.epoch) == (None, 1)


async def test_a_flush_between_acquire_and_write_refuses_the_write(world: World) -> None:
    """An emptied store knows no holder: the write is refused, not taken for the first one."""
    store = world.store()
    guard = await take(store, floor=6)
    world.flush()
    with pytest.raises(StoreRefused) as refused:
        await store.publish(guard, publication(EpochVersion(7, 1)))
    assert (refused.value.holder, refused.value.epoch) == (None, 0)
    assert await store.lease() == Lease(None, 0, 0.0, None)
    assert (await take(store, request="r2", floor=7)).epoch == 8


async def test_the_stored_map_is_a_floor_too(world: World) -> None:
    """An epoch that a stored map carries is never given again."""
    store = world.store()
    guard = await take(store, floor=4)
    await store.publish(guard, publication(EpochVersion(5, 1)))
    await store.release(guard)
    assert (await take(store, request="r2")).epoch == 6


async def test_after_close_every_call_is_unavailable(world: World) -> None:
    """A closed client says unknown, never nothing; other clients go on."""
    store, other = world.store(), world.store()
    await take(store)
    await store.close()
    with pytest.raises(StoreUnavailable):
        await store.lease()
    with pytest.raises(StoreUnavailable):
        await store.members()
    assert (await other.lease()).leader == LEADER_A


# -- leaders whose lease is elsewhere -------------------------------------------------------------


def elsewhere(leader: LeaderInfo, epoch: int) -> Guard:
    return Guard(leader.id, epoch, elsewhere=True)


async def test_a_leader_elected_elsewhere_writes_without_a_lease_here(world: World) -> None:
    """Map, moves and members; the store shows no holder, and keeps the epoch."""
    store = world.store()
    guard = elsewhere(LEADER_A, 7)
    await store.beat(member("worker-0"))
    version = EpochVersion(7, 1)
    for _ in range(2):
        await store.publish(guard, publication(version, moves=(move(0, version),)))
    await store.forget(guard, "worker-0", "i1")
    assert await store.moves(10) == (move(0, version),)
    assert await store.members() == ()
    lease = await store.lease()
    assert (lease.leader, lease.epoch, lease.map_version) == (None, 7, version)


async def test_of_two_leaders_elected_elsewhere_the_higher_epoch_writes(world: World) -> None:
    """From its first write on the lower one is refused, whatever it writes."""
    old, new = world.store(), world.store()
    await old.beat(member("worker-0"))
    await old.publish(elsewhere(LEADER_A, 7), publication(EpochVersion(7, 30)))
    await new.publish(elsewhere(LEADER_B, 8), publication(EpochVersion(8, 1)))
    for version in (EpochVersion(7, 31), EpochVersion(8, 2)):
        with pytest.raises(StoreRefused) as refused:
            await old.publish(elsewhere(LEADER_A, 7), publication(version, groups=9))
        assert (refused.value.holder, refused.value.epoch) == (None, 8)
    with pytest.raises(StoreRefused):
        await old.forget(elsewhere(LEADER_A, 7), "worker-0", "i1")
    with pytest.raises(StoreRefused):
        await old.publish_shares(elsewhere(LEADER_A, 7), EpochVersion(7, 31), {}, ["worker-1"])
    assert await new.share("worker-1") is not None
    assert await new.shard_map(NONE) == shard_map(EpochVersion(8, 1))
    assert len(await new.members()) == 1


async def test_a_forgotten_member_fences_like_a_map(world: World) -> None:
    """The first write of an epoch may be any."""
    store = world.store()
    await store.beat(member("worker-0"))
    await store.forget(elsewhere(LEADER_B, 8), "worker-0", "i1")
    with pytest.raises(StoreRefused):
        await store.publish(elsewhere(LEADER_A, 7), publication(EpochVersion(7, 1)))
    assert (await store.lease()).epoch == 8


async def test_an_emptied_store_takes_a_leader_elected_elsewhere_at_its_epoch(
    world: World,
) -> None:
    """It cannot be behind itself; the map and all shares come back whole."""
    store = world.store()
    guard = elsewhere(LEADER_A, 7)
    await store.publish(guard, publication(EpochVersion(7, 3)))
    world.flush()
    await store.publish(guard, publication(EpochVersion(7, 3)))
    assert await store.shard_map(NONE) == shard_map(EpochVersion(7, 3))
    assert await store.share("worker-0") is not None
    assert (await store.lease()).epoch == 7


async def test_the_stored_epochs_bind_a_leader_elected_elsewhere(world: World) -> None:
    """Those of the map and of an election in this store too: the fleet may have changed sides."""
    store = world.store()
    guard = await take(store, floor=9)
    await store.publish(guard, publication(EpochVersion(10, 1)))
    with pytest.raises(StoreRefused) as refused:
        await store.publish(elsewhere(LEADER_B, 12), publication(EpochVersion(12, 1)))
    assert (refused.value.holder, refused.value.epoch) == (LEADER_A.id, 10), "it leads here"
    await store.release(guard)
    with pytest.raises(StoreRefused) as refused:
        await store.publish(elsewhere(LEADER_B, 9), publication(EpochVersion(9, 1)))
    assert (refused.value.holder, refused.value.epoch) == (None, 10)
    await store.publish(elsewhere(LEADER_B, 12), publication(EpochVersion(12, 1)))
    assert (await take(store, request="r2")).epoch == 13
