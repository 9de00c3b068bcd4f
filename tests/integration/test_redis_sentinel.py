"""Real Sentinels: the store's clients find the primary, leave a demoted one, and leak nothing."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fleet.errors import StoreUnavailable
from fleet.model import Addresses, EpochVersion, LeaderInfo, Member, RingSpec, ShardMap, Share
from fleet.model.identity import NONE
from fleet.settings.model import RedisSettings
from fleet.store.contract import Guard, Publication
from fleet.store.redis import RedisStore
from tests.coordinators import running_fleet, until
from tests.ports import free_port
from tests.proxied_fleet import steady
from tests.redis_proxy import RedisProxy
from tests.sentinels import SERVICE, Sentinel, Watched, named, watched_valkey
from tests.valkey import Valkey, running_valkey

ME = LeaderInfo("c0", "c0:1", "c0:2")
MEMBER = Member("worker-0", "i0", Addresses("a:1", "a:2", "a:3", "a:4"))


@pytest.fixture(scope="module")
def server() -> Iterator[Valkey]:
    """A primary that no Sentinel watches."""
    with running_valkey() as valkey:
        yield valkey


def client(url: str, *, min_acks: int = 0, timeout: float = 0.5) -> RedisStore:
    return RedisStore(RedisSettings(url, timeout, min_acks), "blue")


@contextmanager
def replica_of(primary: Valkey) -> Iterator[Valkey]:
    """Once it is in step."""
    primary.command("CONFIG", "SET", "repl-diskless-sync-delay", "0")
    follow = ("--replicaof", f"127.0.0.1 {primary.port}", "--repl-diskless-sync-delay", "0")
    with running_valkey(arguments=follow) as replica:
        deadline = time.monotonic() + 20.0
        while b"state=online" not in primary.command("INFO", "replication"):
            assert time.monotonic() < deadline, "the replica does not follow"
            time.sleep(0.02)
        yield replica


def publication(epoch: int) -> Publication:
    version = EpochVersion(epoch, 1)
    share = Share("blue", "worker-0", "i0", version, ())
    ring = RingSpec("xxh3", 160, {"worker-0": 1})
    return Publication(ShardMap("blue", version, 1.0, ME, {}), ring, {"worker-0": share})


async def when_answered(
    call: Callable[[], Coroutine[Any, Any, Any]], *, seconds: float = 60.0
) -> int:
    """Repeat until it is answered; how many times it was unknown. Nothing else may come of it."""
    unknown = 0
    async with asyncio.timeout(seconds):
        while True:
            try:
                await call()
            except StoreUnavailable:
                unknown += 1
                await asyncio.sleep(0.05)
            else:
                return unknown


def clients_of(sentinel: Sentinel) -> int:
    """How many connections of ours it has now."""
    return sentinel.command("CLIENT", "LIST").count(b"lib-name=redis-py")


async def test_a_killed_primary_is_replaced_and_what_was_acknowledged_stays() -> None:
    """kill -9 under three Sentinels: lease, map and member are on the new primary, the
    next epoch is higher, and no question to a Sentinel stays open (redis/redis-py#688, #3259)."""
    with watched_valkey(sentinels=3, replicas=2) as watched:
        await through_a_kill(watched)


async def through_a_kill(watched: Watched) -> None:
    store = client(watched.url, min_acks=1)
    lease = await store.acquire(ME, floor=22, ttl_seconds=60.0, request="r1")
    guard = Guard(ME.id, lease.epoch)
    await store.publish(guard, publication(lease.epoch))
    await store.beat(MEMBER)
    watched.primary.kill()
    unknown = await when_answered(lambda: store.renew(guard, ttl_seconds=60.0))
    assert unknown > 0
    await when_answered(lambda: store.members())  # the other connections, too
    again = await store.lease()
    assert (again.leader, again.epoch, again.map_version) == (ME, 23, EpochVersion(23, 1))
    assert [beat.member for beat in await store.members()] == [MEMBER]
    await when_answered(lambda: store.acquire(ME, floor=0, ttl_seconds=60.0, request="r2"))
    assert (await store.lease()).epoch == 24
    assert sum(store.errors().values()) >= unknown
    for sentinel in watched.sentinels:
        assert clients_of(sentinel) == 0
    await store.close()


async def test_a_fleet_goes_on_after_a_fail_over(tmp_path: Path) -> None:
    """Lease and all in the primary that is killed: somebody leads again in a higher epoch by way of
    the Sentinels, with the same owners and routes, and the map is on the new primary."""
    with watched_valkey(replicas=2) as watched:
        redis = RedisSettings(watched.url, request_timeout_seconds=0.3, min_acks=1)
        async with running_fleet(tmp_path, redis, coordinators=2) as fleet, steady(fleet, 6):
            before = fleet.map
            assert before is not None
            watched.primary.kill()
            await until(lambda: not fleet.leaders(), what="nobody leads")

            def led() -> bool:
                shard_map = fleet.map
                return shard_map is not None and shard_map.version.epoch > before.version.epoch

            await until(led, seconds=20.0, what="somebody leads again")
            await when_answered(lambda: fleet.store.shard_map(before.version))
            stored = await fleet.store.shard_map(NONE)
            assert stored is not None
            assert stored.version > before.version


async def test_a_demoted_primary_is_left() -> None:
    """40 writers while the primary is demoted with all its connections open: unknown for a moment,
    then all write to the new one over few connections, and the old one hears nothing more
    (redis/redis-py#460, #435, #935)."""
    with watched_valkey() as watched:
        store = client(watched.url)
        await asyncio.gather(*(store.beat(MEMBER) for _ in range(40)))
        await asyncio.to_thread(watched.fail_over)
        (promoted,) = watched.replicas
        # A Sentinel does this too, and then also closes the connections.
        watched.primary.command("REPLICAOF", "127.0.0.1", str(promoted.port))
        writes = [when_answered(lambda: store.beat(MEMBER)) for _ in range(40)]
        unknown = await asyncio.gather(*writes)
        assert store.errors()["read_only"] > 0
        assert max(unknown) <= 4
        assert b"epp:{blue}:beats" in promoted.command("KEYS", "*")
        assert 1 <= promoted.command("CLIENT", "LIST").count(b"lib-name=redis-py") <= 6
        assert watched.primary.command("CLIENT", "LIST").count(b"lib-name=redis-py") == 0
        assert clients_of(watched.sentinels[0]) == 0
        await store.close()


async def test_a_primary_that_its_replicas_have_left_is_left(server: Valkey) -> None:
    """It does not know yet, and goes on taking writes: too few acknowledgements make the client ask
    the Sentinels again, so that an ex-leader finds its lease lost."""
    with running_valkey() as successor, replica_of(successor):
        async with RedisProxy.before(server.port) as sentinel:
            sentinel.canned = named(server.port, 1)
            url = f"redis+sentinel://127.0.0.1:{sentinel.port}/{SERVICE}"
            store = client(url, min_acks=1, timeout=0.4)
            with pytest.raises(StoreUnavailable, match="confirmed by 0"):
                await store.acquire(ME, floor=0, ttl_seconds=60.0, request="r1")
            sentinel.canned = named(successor.port, 2)
            assert (await store.renew(Guard(ME.id, 1), ttl_seconds=60.0)).leader is None
            assert store.errors()["replicas"] == 1
            await store.close()


async def test_a_renewal_that_no_replica_has_is_not_one() -> None:
    """The primary goes on renewing while its replica does not hear it: unknown to the holder, which
    so stops by the last confirmed one; the promoted replica lets nobody else in before that."""
    with running_valkey() as primary, replica_of(primary) as replica:
        holder = client(primary.url, min_acks=1, timeout=4.0)
        promoted = client(replica.url, timeout=4.0)
        lease = await holder.acquire(ME, floor=0, ttl_seconds=60.0, request="r1")
        confirmed = time.monotonic()
        await holder.renew(Guard(ME.id, lease.epoch), ttl_seconds=4.0)
        replica.command("REPLICAOF", "127.0.0.1", str(free_port()))
        with pytest.raises(StoreUnavailable, match=r"renew confirmed by 0"):
            await holder.renew(Guard(ME.id, lease.epoch), ttl_seconds=60.0)
        replica.command("REPLICAOF", "NO", "ONE")
        you = LeaderInfo("c1", "c1:1", "c1:2")
        async with asyncio.timeout(30.0):
            while (
                await promoted.acquire(you, floor=0, ttl_seconds=60.0, request="r2")
            ).leader != you:
                await asyncio.sleep(0.02)
        assert time.monotonic() - confirmed >= 3.99
        await holder.close()
        await promoted.close()


async def test_the_newest_configuration_counts(server: Valkey) -> None:
    """A Sentinel that was cut off goes on naming the old primary; one that is silent or refuses
    costs nothing."""
    async with (
        RedisProxy.before(server.port) as old,
        RedisProxy.before(server.port) as new,
        RedisProxy.before(server.port) as silent,
    ):
        old.canned, new.canned = named(free_port(), 3), named(server.port, 4)
        silent.black_hole = True
        hosts = [old.port, new.port, silent.port]
        url = ",".join(f"127.0.0.1:{port}" for port in hosts)
        store = client(f"redis+sentinel://{url}/{SERVICE}", timeout=30.0)
        begun = time.monotonic()
        await store.beat(MEMBER)
        assert time.monotonic() - begun < 20.0
        await store.close()


async def test_a_named_replica_is_no_primary(server: Valkey) -> None:
    """In the middle of a fail-over: unknown, never a read from a replica or a refused write."""
    with running_valkey(arguments=("--replicaof", f"127.0.0.1 {server.port}")) as replica:
        async with RedisProxy.before(server.port) as sentinel:
            sentinel.canned = named(replica.port, 1)
            store = client(f"redis+sentinel://127.0.0.1:{sentinel.port}/{SERVICE}", timeout=5.0)
            with pytest.raises(StoreUnavailable, match=f"{replica.port}.*is a slave"):
                await store.shard_map(NONE)
            assert store.errors()["sentinel"] == 1
            sentinel.canned = named(server.port, 2)
            assert await store.shard_map(NONE) is None
            await store.close()


async def test_what_is_wrong_with_sentinels_is_said() -> None:
    """An unknown service, a place where nobody listens, and silence, each by its address; within
    twice the time-out."""
    with running_valkey() as plain:
        async with RedisProxy.before(plain.port) as unknown, RedisProxy.before(plain.port) as hole:
            unknown.canned = b"-ERR No such master with that name\r\n"
            hole.black_hole = True
            nobody = free_port()
            hosts = f"127.0.0.1:{unknown.port},127.0.0.1:{nobody},127.0.0.1:{hole.port}"
            store = client(f"redis+sentinel://:SECRET@{hosts}/{SERVICE}", timeout=0.4)
            begun = time.monotonic()
            with pytest.raises(StoreUnavailable) as caught:
                await store.lease()
            assert time.monotonic() - begun < 10.0, "bounded; 0.8 s on an idle machine"
            said = str(caught.value)
            assert f"127.0.0.1:{unknown.port}: No such master" in said
            assert f"127.0.0.1:{nobody}: " in said
            assert "1 silent" in said
            assert f"no Sentinel names a primary of '{SERVICE}'" in said
            assert "SECRET" not in said
            await store.close()


async def test_closing_in_the_middle_of_a_question_leaves_nothing() -> None:
    """The caller is told that the client was closed; the connection to the Sentinel goes."""
    with running_valkey() as plain:
        async with RedisProxy.before(plain.port) as hole:
            hole.black_hole = True
            store = client(f"redis+sentinel://127.0.0.1:{hole.port}/{SERVICE}", timeout=60.0)
            asking = asyncio.create_task(store.lease())
            async with asyncio.timeout(20.0):
                while plain.command("CLIENT", "LIST").count(b"\n") < 4:
                    await asyncio.sleep(0.01)
            await store.close()
            with pytest.raises(StoreUnavailable, match="closed"):
                await asking
            async with asyncio.timeout(20.0):
                while plain.command("CLIENT", "LIST").count(b"\n") >= 4:
                    await asyncio.sleep(0.01)
