"""What a real server says when it cannot, and writes that landed though nobody was told."""

import asyncio
import logging
import shutil
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from coordinator.election.redis import StoreElection
from fleet.clock import SystemClock
from fleet.errors import StoreUnavailable
from fleet.model import EpochVersion, LeaderInfo
from fleet.model.identity import NONE
from fleet.settings.model import ElectionSettings, RedisSettings
from fleet.store.contract import Guard
from fleet.store.redis import RedisStore
from tests.contract.store_fixtures import LEADER_A, member, move, publication
from tests.redis_proxy import RedisProxy
from tests.valkey import Valkey, running_valkey

OTHER = LeaderInfo("c1", "c1:1", "c1:2")


@pytest.fixture
def server() -> Iterator[Valkey]:
    """A real server."""
    with running_valkey() as valkey:
        yield valkey


@pytest.fixture
async def proxy(server: Valkey) -> AsyncIterator[RedisProxy]:
    """What may lose answers."""
    async with RedisProxy.before(server.port) as proxy:
        yield proxy


@pytest.fixture
async def store(proxy: RedisProxy) -> AsyncIterator[RedisStore]:
    """A client by the proxy."""
    store = RedisStore(RedisSettings(proxy.url, request_timeout_seconds=0.4), "blue")
    yield store
    await store.close()


async def test_a_server_that_cannot_snapshot_takes_no_writes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """MISCONF: reads go on, writes are unknown, said once with what to do
    (certtools/intelmq#2446)."""
    folder = tmp_path / "gone"
    folder.mkdir()
    arguments = ("--save", "3600 1", "--dir", str(folder))
    with running_valkey(arguments=arguments) as server:
        shutil.rmtree(folder)
        server.command("SET", "any", "1")
        server.command("BGSAVE")
        async with asyncio.timeout(10.0):
            while b"rdb_last_bgsave_status:err" not in server.command("INFO", "persistence"):
                await asyncio.sleep(0.01)
        store = RedisStore(RedisSettings(server.url, 5.0), "blue")
        with caplog.at_level(logging.WARNING, "fleet.store.faults"):
            for _ in range(3):
                with pytest.raises(StoreUnavailable, match="MISCONF"):
                    await store.beat(member("worker-0"))
        assert (await store.lease()).epoch == 0
        assert store.errors()["disk"] == 3
        (said,) = caplog.records
        assert "snapshots" in vars(said)["remedy"]
        await store.close()


async def test_a_server_that_loads_is_waited_for(tmp_path: Path) -> None:
    """LOADING at the start: unknown, not empty; what was stored is there afterwards."""
    arguments = ("--save", "3600 1", "--dir", str(tmp_path), "--key-load-delay", "2000")
    slow = ("--loading-process-events-interval-bytes", "1024")
    with running_valkey(arguments=(*arguments, *slow)) as server:
        store = RedisStore(RedisSettings(server.url, 5.0), "blue")
        await store.beat(member("worker-0"))
        for n in range(400):
            server.command("SET", f"other-{n}", "x" * 100)
        assert server.command("SAVE") == b"+OK\r\n"
        server.kill()
        starting = asyncio.create_task(asyncio.to_thread(server.start))
        async with asyncio.timeout(20.0):
            while store.errors()["loading"] == 0:
                try:
                    assert await store.members() != ()
                except StoreUnavailable:
                    await asyncio.sleep(0.005)
        await starting
        assert [beat.member.id for beat in await store.members()] == ["worker-0"]
        await store.close()


async def do_all(store: RedisStore) -> None:
    """Every method once: the server knows every script afterwards."""
    lease = await store.acquire(LEADER_A, floor=0, ttl_seconds=60.0, request="r1")
    guard = Guard(LEADER_A.id, lease.epoch)
    await store.renew(guard, ttl_seconds=60.0)
    await store.beat(member("worker-0"))
    version = EpochVersion(lease.epoch, 1)
    moves = (move(0, version), move(1, version))
    await store.publish(guard, publication(version, moves=moves, removed=("worker-1",)))
    await store.members()
    await store.shard_map(NONE)
    await store.ring()
    await store.share("worker-0")
    await store.moves(5)
    await store.forget(guard, "worker-0", "i1")
    await store.release(guard)
    await store.lease()


async def unheard(
    proxy: RedisProxy, store: RedisStore, call: Callable[[], Coroutine[Any, Any, Any]]
) -> None:
    """The server does it, the caller never hears of it."""
    await store.lease()  # both links have a connection now
    await store.members()
    proxy.answers = False
    with pytest.raises(StoreUnavailable):
        await call()
    proxy.answers = True
    await proxy.reset()
    async with asyncio.timeout(10.0):
        while True:
            try:
                await store.lease()
                await store.members()
                return
            except StoreUnavailable:
                await asyncio.sleep(0.01)


@pytest.fixture
async def direct(server: Valkey) -> AsyncIterator[RedisStore]:
    """Another client, without a proxy; the server knows all scripts."""
    store = RedisStore(RedisSettings(server.url, 5.0), "blue")
    await do_all(store)
    server.command("FLUSHALL")
    yield store
    await store.close()


async def test_an_election_that_was_won_unheard(
    direct: RedisStore, proxy: RedisProxy, store: RedisStore
) -> None:
    """The script ran, its answer was lost: tried again it is the same term, not a second one; a
    renewal and a release repeat as well."""
    settings = ElectionSettings(ttl_seconds=60.0)
    election = StoreElection(store, LEADER_A, settings, SystemClock())
    await unheard(proxy, store, lambda: election.acquire(floor=6))
    landed = await direct.lease()
    assert (landed.leader, landed.epoch) == (LEADER_A, 7)
    term = await election.acquire(floor=6)
    assert term is not None
    assert term.epoch == 7
    await unheard(proxy, store, lambda: election.renew(term))
    kept, _ = await election.renew(term)
    assert kept is not None
    await unheard(proxy, store, lambda: election.release(term))
    assert (await direct.lease()).leader is None
    kept, standing = await election.renew(term)
    assert (kept, standing.leader, standing.epoch) == (None, None, 7)
    rival = StoreElection(direct, OTHER, settings, SystemClock())
    theirs = await rival.acquire(floor=0)
    assert theirs is not None
    assert theirs.epoch == 8
    await election.release(term)  # late: it is not his any more
    assert (await direct.lease()).leader == OTHER


async def test_writes_that_landed_unheard(
    direct: RedisStore, proxy: RedisProxy, store: RedisStore
) -> None:
    """Publication, beat and burial tried again change nothing more: no move is told twice, and no
    newer member is buried."""
    lease = await store.acquire(LEADER_A, floor=0, ttl_seconds=60.0, request="r1")
    guard = Guard(LEADER_A.id, lease.epoch)
    version = EpochVersion(lease.epoch, 1)
    published = publication(version, moves=(move(0, version), move(1, version)))
    await unheard(proxy, store, lambda: store.publish(guard, published))
    assert await direct.shard_map(NONE) == published.shard_map
    await store.publish(guard, published)
    assert len(await direct.moves(10)) == 2
    await unheard(proxy, store, lambda: store.beat(member("worker-0")))
    assert [beat.member.id for beat in await direct.members()] == ["worker-0"]
    await unheard(proxy, store, lambda: store.forget(guard, "worker-0", "i1"))
    assert await direct.members() == ()
    await direct.beat(member("worker-0", incarnation="i2"))
    await store.forget(guard, "worker-0", "i1")
    assert [beat.member.incarnation for beat in await direct.members()] == ["i2"]


async def test_a_release_that_was_cancelled_leaves_a_lease_that_ends(
    server: Valkey, proxy: RedisProxy, store: RedisStore
) -> None:
    """Cancelled under way, repeated, or too late: no error, and never a lease without an end
    (redis/redis-py#3847, #1095, #3532)."""
    lease = await store.acquire(LEADER_A, floor=0, ttl_seconds=60.0, request="r1")
    guard = Guard(LEADER_A.id, lease.epoch)
    proxy.black_hole = True
    releasing = asyncio.create_task(store.release(guard))
    await asyncio.sleep(0)
    releasing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await releasing
    assert server.command("PTTL", "epp:{blue}:leader")[:1] == b":"
    assert int(server.command("PTTL", "epp:{blue}:leader")[1:]) > 0
    proxy.black_hole = False
    await proxy.reset()
    for _ in range(2):
        async with asyncio.timeout(10.0):
            while True:
                try:
                    await store.release(guard)
                    break
                except StoreUnavailable:
                    await asyncio.sleep(0.02)
    assert (await store.lease()).leader is None


async def test_a_stopped_server_is_found_again_by_itself(
    server: Valkey, direct: RedisStore, store: RedisStore
) -> None:
    """Nothing is subscribed to, so nothing can be deaf: a map that was stored while this client got
    no answers is read at its next look (redis/redis-py#2089, #2417, #1137)."""
    assert await store.shard_map(NONE) is None
    server.pause()
    with pytest.raises(StoreUnavailable):
        await store.shard_map(NONE)
    server.resume()
    lease = await direct.acquire(LEADER_A, floor=0, ttl_seconds=60.0, request="r1")
    version = EpochVersion(lease.epoch, 1)
    await direct.publish(Guard(LEADER_A.id, lease.epoch), publication(version))
    async with asyncio.timeout(10.0):
        while True:
            try:
                found = await store.shard_map(NONE)
                break
            except StoreUnavailable:
                await asyncio.sleep(0.02)
    assert found is not None
    assert found.version == version


def watched_keys(lines: list[bytes]) -> set[tuple[str, str]]:
    """Commands that MONITOR saw inside scripts and out, with the key that each names."""
    found = set()
    for line in lines:
        words = [word.decode() for word in line.split(b'"')[1::2]]
        if len(words) < 2 or words[0] in ("CLIENT", "SCRIPT", "TIME", "MONITOR"):
            continue
        if words[0] in ("EVALSHA", "EVAL"):
            # The text of a script has quotes of its own: only digests can be taken apart.
            found |= {(words[0], key) for key in words[3 : 3 + int(words[2])]}
        else:
            found.add((words[0], words[1]))
    return found


async def test_every_key_that_is_touched_carries_the_fleets_tag(server: Valkey) -> None:
    """MONITOR sees every command of every method: each key, declared or touched inside a script, is
    of the fleet's slot, and scripts touch none that they did not declare."""
    store = RedisStore(RedisSettings(server.url, 5.0), "blue")

    await do_all(store)  # now the server has the scripts, and is called by their digests
    server.command("FLUSHALL")
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"MONITOR\r\n")
    assert await reader.readline() == b"+OK\r\n"
    await do_all(store)
    server.command("SET", "the end", "x")
    lines: list[bytes] = []
    async with asyncio.timeout(10.0):
        while not lines or b"the end" not in lines[-1]:
            lines.append(await reader.readline())
    writer.close()
    touched = watched_keys(lines[:-1])
    assert {key.partition("}")[0] for _, key in touched} == {"epp:{blue"}
    declared = {key for command, key in touched if command == "EVALSHA"}
    direct = {"GET", "XREVRANGE"}
    assert {key for command, key in touched if command not in direct} <= declared
    assert {"XADD", "ZADD", "HDEL", "PEXPIRE", *direct} <= {command for command, _ in touched}
    await store.close()
