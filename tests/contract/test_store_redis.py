"""What only a server can get wrong: keys, unreadable values, evictions, scripts, replicas."""

import zlib

import pytest

from fleet.errors import FormatError, StoreUnavailable
from fleet.model import EpochVersion
from fleet.model.identity import NONE
from fleet.settings.model import RedisSettings
from fleet.store.contract import Guard
from fleet.store.redis import RedisStore
from tests.contract.store_fixtures import (
    LEADER_A,
    LEADER_B,
    ValkeyWorld,
    group,
    member,
    move,
    publication,
    shard_map,
)
from tests.valkey import running_valkey


def key(name: str, fleet: str = "blue") -> str:
    return f"epp:{{{fleet}}}:{name}"


async def fill(store: RedisStore, fleet: str = "blue") -> Guard:
    """Write at least one value of every kind."""
    lease = await store.acquire(LEADER_A, floor=0, ttl_seconds=30.0, request="r1")
    guard = Guard(LEADER_A.id, lease.epoch)
    version = EpochVersion(lease.epoch, 1)
    await store.publish(guard, publication(version, moves=(move(0, version),), fleet=fleet))
    await store.beat(member("worker-0"))
    return guard


async def test_every_key_carries_the_hash_tag(valkey_world: ValkeyWorld) -> None:
    """All keys of a fleet live in one slot; the names are those that operators are told."""
    await fill(valkey_world.store())
    names = {
        line.decode()
        for line in valkey_world.server.command("KEYS", "*").split(b"\r\n")
        if line.startswith(b"epp")
    }
    shares = {key("share:worker-0"), key("share:worker-1")}
    plain = ("leader", "epoch", "members", "beats", "ring", "map", "moves")
    assert names == {key(name) for name in plain} | shares


async def test_two_fleets_share_a_server(valkey_world: ValkeyWorld) -> None:
    """Each has its own lease, epochs, members and map."""
    blue, green = valkey_world.store("blue"), valkey_world.store("green")
    await fill(blue)
    assert (await green.lease()).epoch == 0
    assert await green.members() == ()
    assert await green.shard_map(NONE) is None
    lease = await green.acquire(LEADER_B, floor=8, ttl_seconds=30.0, request="r1")
    assert (lease.leader, lease.epoch) == (LEADER_B, 9)
    assert (await blue.lease()).leader == LEADER_A


async def test_unreadable_values_are_named(valkey_world: ValkeyWorld) -> None:
    """Every kind of value, damaged, raises FormatError with its key in the message."""
    store, put = valkey_world.store(), valkey_world.server.command
    guard = await fill(store)
    put("SET", key("map"), "garbage")
    with pytest.raises(FormatError, match="map"):
        await store.shard_map(NONE)
    put("SET", key("ring"), "1 1.1\nnot zlib")
    with pytest.raises(FormatError, match="ring"):
        await store.ring()
    put("SET", key("share:worker-0"), "9 1.1\n")
    with pytest.raises(FormatError, match="share:worker-0: format 9"):
        await store.share("worker-0")
    put("HSET", key("members"), "worker-0", "[")
    with pytest.raises(FormatError, match="members worker-0"):
        await store.forget(guard, "worker-0", "i1")
    put("XADD", key("moves"), "*", "other", "x")
    with pytest.raises(FormatError, match="moves"):
        await store.moves(1)


@pytest.mark.parametrize(
    "value", ["{}", "[", '{"format": 3, "id": "worker-0", "incarnation": "i", "addresses": {}}']
)
async def test_one_unreadable_member_hides_no_other(
    valkey_world: ValkeyWorld, caplog: pytest.LogCaptureFixture, value: str
) -> None:
    """It is left out and said once; the others' beats count as ever."""
    store = valkey_world.store()
    for name in ("worker-0", "worker-1"):
        await store.beat(member(name))
    valkey_world.server.command("HSET", key("members"), "worker-0", value)
    for _ in range(3):
        assert [beat.member.id for beat in await store.members()] == ["worker-1"]
    (said,) = [r for r in caplog.records if "left out" in r.message]
    assert "members worker-0" in vars(said)["error"]


async def test_a_clock_that_stepped_back_is_no_young_beat(valkey_world: ValkeyWorld) -> None:
    """The server's time is now before the beat's: the age says so."""
    store = valkey_world.store()
    await store.beat(member("worker-0"))
    beats = key("beats")
    score = float(valkey_world.server.command("ZSCORE", beats, "worker-0").split(b"\r\n")[1])
    valkey_world.server.command("ZADD", beats, str(score + 3600), "worker-0")
    (beat,) = await store.members()
    assert -3600 <= beat.age_seconds < -3500


@pytest.mark.parametrize("value", ["{", "7", '{"id": "x"}', '{"id": "x", "epoch": "many"}'])
async def test_an_unreadable_lease_is_named(valkey_world: ValkeyWorld, value: str) -> None:
    """Nobody acquires, renews or publishes over a lease that cannot be read."""
    store = valkey_world.store()
    valkey_world.server.command("SET", key("leader"), value)
    with pytest.raises(FormatError, match="leader"):
        await store.lease()
    with pytest.raises(FormatError, match="leader"):
        await store.acquire(LEADER_A, floor=0, ttl_seconds=1.0, request="r")
    with pytest.raises(FormatError, match="leader"):
        await store.renew(Guard(LEADER_A.id, 1), ttl_seconds=1.0)
    with pytest.raises(FormatError, match="leader"):
        await store.publish(Guard(LEADER_A.id, 1), publication(EpochVersion(1, 1)))


async def test_values_of_another_type_are_format_errors(valkey_world: ValkeyWorld) -> None:
    """A key of ours that somebody made a list of says so."""
    store = valkey_world.store()
    for name in ("map", "ring", "share:worker-0", "members", "moves", "leader"):
        valkey_world.server.command("RPUSH", key(name), "x")
    for call in (store.shard_map(NONE), store.ring(), store.share("worker-0"), store.lease()):
        with pytest.raises(FormatError, match="WRONGTYPE"):
            await call
    for more in (store.members(), store.moves(1)):
        with pytest.raises(FormatError, match="WRONGTYPE"):
            await more


async def test_an_epoch_that_is_no_number_is_named(valkey_world: ValkeyWorld) -> None:
    """The counter is never guessed."""
    valkey_world.server.command("SET", key("epoch"), "soon")
    with pytest.raises(FormatError, match="epoch"):
        await valkey_world.store().acquire(LEADER_A, floor=0, ttl_seconds=1.0, request="r")


async def test_a_damaged_map_does_not_keep_anybody_from_leading(valkey_world: ValkeyWorld) -> None:
    """The leader sees no map and writes it anew over whatever is there."""
    store = valkey_world.store()
    guard = await fill(store)
    valkey_world.server.command("SET", key("map"), "garbage")
    assert (await store.renew(guard, ttl_seconds=30.0)).map_version is None
    await store.publish(guard, publication(EpochVersion(1, 2)))
    assert await store.shard_map(NONE) == shard_map(EpochVersion(1, 2))


async def test_a_value_under_another_name_is_refused(valkey_world: ValkeyWorld) -> None:
    """A share or map that names another worker or fleet is never taken for the right one."""
    blue = valkey_world.store()
    await fill(blue)
    valkey_world.server.command("RENAME", key("share:worker-1"), key("share:worker-0"))
    with pytest.raises(FormatError, match="worker-1"):
        await blue.share("worker-0")
    valkey_world.server.command("RENAME", key("map"), key("map", "green"))
    with pytest.raises(FormatError, match="blue"):
        await valkey_world.store("green").shard_map(NONE)


async def test_an_evicted_beat_makes_a_member_unknown(valkey_world: ValkeyWorld) -> None:
    """Half of what a beat writes is no member, and no age is invented."""
    store = valkey_world.store()
    await store.beat(member("worker-0"))
    await store.beat(member("worker-1"))
    valkey_world.server.command("ZREM", key("beats"), "worker-0")
    assert [beat.member.id for beat in await store.members()] == ["worker-1"]


async def test_an_evicted_epoch_counter_is_repaired(valkey_world: ValkeyWorld) -> None:
    """The lease still knows its epoch: the next one is above it, the counter is written back."""
    store = valkey_world.store()
    lease = await store.acquire(LEADER_A, floor=6, ttl_seconds=30.0, request="r1")
    guard = Guard(LEADER_A.id, lease.epoch)
    valkey_world.server.command("DEL", key("epoch"))
    assert (await store.lease()).epoch == 7
    await store.renew(guard, ttl_seconds=30.0)
    await store.release(guard)
    lease = await store.acquire(LEADER_B, floor=0, ttl_seconds=30.0, request="r2")
    assert lease.epoch == 8


async def test_epochs_keep_all_their_digits(valkey_world: ValkeyWorld) -> None:
    """2**50 - 1 has 16 digits; a script's own number formatting keeps 14."""
    store = valkey_world.store()
    lease = await store.acquire(LEADER_A, floor=2**50 - 2, ttl_seconds=30.0, request="r1")
    assert lease.epoch == 2**50 - 1
    guard = Guard(LEADER_A.id, lease.epoch)
    version = EpochVersion(lease.epoch, 2**50 - 3)
    await store.publish(guard, publication(version))
    assert (await store.renew(guard, ttl_seconds=30.0)).map_version == version
    near = EpochVersion(version.epoch, version.version - 1)
    assert await store.shard_map(near) == shard_map(version)
    assert await store.shard_map(version) is None


async def test_scripts_are_loaded_again(valkey_world: ValkeyWorld) -> None:
    """A server that forgot the scripts is given them again, unnoticed."""
    store = valkey_world.store()
    await fill(store)
    valkey_world.server.command("SCRIPT", "FLUSH")
    assert (await store.lease()).leader == LEADER_A


async def test_too_few_replicas_make_an_acquire_unknown(valkey_world: ValkeyWorld) -> None:
    """With min_acks 1 and no replica nothing is confirmed, so nothing counts as acquired."""
    settings = RedisSettings(valkey_world.server.url, request_timeout_seconds=0.6, min_acks=1)
    store = RedisStore(settings, "blue")
    with pytest.raises(StoreUnavailable, match="confirmed by 0"):
        await store.acquire(LEADER_A, floor=0, ttl_seconds=30.0, request="r1")
    await store.close()


async def test_a_replica_confirms_and_refuses_writes() -> None:
    """With a replica min_acks 1 holds; a client of the replica itself reads, and never writes."""
    with running_valkey() as primary:
        follow = ("--replicaof", f"127.0.0.1 {primary.port}", "--repl-diskless-sync-delay", "0")
        primary.command("CONFIG", "SET", "repl-diskless-sync-delay", "0")
        with running_valkey(arguments=follow) as replica:
            settings = RedisSettings(primary.url, request_timeout_seconds=5.0, min_acks=1)
            writer = RedisStore(settings, "blue")
            reader = RedisStore(RedisSettings(replica.url, request_timeout_seconds=5.0), "blue")
            lease = await writer.acquire(LEADER_A, floor=0, ttl_seconds=60.0, request="r1")
            assert lease.epoch == 1
            assert (await reader.lease()).leader == LEADER_A
            with pytest.raises(StoreUnavailable, match="ReadOnly"):
                await reader.beat(member("worker-0"))
            await writer.close()
            await reader.close()


async def test_a_unix_socket_serves_as_well() -> None:
    """unix:// reaches the same store."""
    with running_valkey(unix=True) as server:
        store = RedisStore(RedisSettings(server.url, request_timeout_seconds=5.0), "blue")
        await fill(store)
        assert await store.shard_map(NONE) == shard_map(EpochVersion(1, 1))
        await store.close()


async def test_no_message_shows_the_password() -> None:
    """A wrong password is unavailable, names the server and not the secret; the right one works."""
    with running_valkey(arguments=("--requirepass", "s3same/:@")) as server:
        host = f"127.0.0.1:{server.port}"
        wrong = RedisStore(RedisSettings(f"redis://:wr0ng@{host}/0", 5.0), "blue")
        with pytest.raises(StoreUnavailable, match=host) as unavailable:
            await wrong.lease()
        assert "wr0ng" not in str(unavailable.value)
        none = RedisStore(RedisSettings(f"redis://{host}", 5.0), "blue")
        with pytest.raises(StoreUnavailable, match=r"NOAUTH|Authentication"):
            await none.lease()
        right = RedisStore(RedisSettings(f"redis://:s3same%2F%3A%40@{host}/0", 5.0), "blue")
        assert (await right.lease()).epoch == 0
        for store in (wrong, none, right):
            await store.close()


async def test_a_full_server_is_unavailable(valkey_world: ValkeyWorld) -> None:
    """OOM (maxmemory, noeviction) means unknown, and names what the server said."""
    with running_valkey(arguments=("--maxmemory", "1", "--maxmemory-policy", "noeviction")) as full:
        store = RedisStore(RedisSettings(full.url, 5.0), "blue")
        with pytest.raises(StoreUnavailable, match="OutOfMemory"):
            await store.beat(member("worker-0"))
        await store.close()


async def test_a_large_map_goes_through(valkey_world: ValkeyWorld) -> None:
    """2,000 groups, packed and unpacked by threads, read back equal; the stream is bounded."""
    store = valkey_world.store()
    guard = await fill(store)
    version = EpochVersion(1, 2)
    moves = tuple(move(n, version) for n in range(2000))
    await store.publish(guard, publication(version, groups=2000, moves=moves))
    assert await store.shard_map(NONE) == shard_map(version, groups=2000)
    assert [m.group for m in await store.moves(2)] == [str(group(1999)), str(group(1998))]


async def test_a_bomb_is_not_unpacked(valkey_world: ValkeyWorld) -> None:
    """A value that would unpack to more than 64 MiB is refused."""
    bomb = b"1 1.1\n" + zlib.compress(b" " * (65 * 1024 * 1024), 9)
    store = valkey_world.store()
    await store._data_link.command("SET", key("ring"), bomb)
    with pytest.raises(FormatError, match="more than"):
        await store.ring()
