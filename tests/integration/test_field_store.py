"""The store as it fails in the field: demoted, loading, full, moved to another address."""

import asyncio
import contextlib
import random
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from fleet.errors import FormatError, StoreUnavailable
from fleet.model import Addresses, EpochVersion, LeaderInfo, Member, RingSpec, ShardMap, Share
from fleet.settings.model import RedisSettings
from fleet.store.contract import Guard, Publication
from fleet.store.redis import RedisStore
from tests.redis_proxy import RedisProxy
from tests.valkey import Valkey, running_valkey

ME = LeaderInfo("c0", "c0:1", "c0:2")
MEMBER = Member("worker-0", "i0", Addresses("a:1", "a:2", "a:3", "a:4"))


@pytest.fixture(scope="module")
def server() -> Iterator[Valkey]:
    """One real server."""
    with running_valkey() as valkey:
        yield valkey


@pytest.fixture
async def proxy(server: Valkey) -> AsyncIterator[RedisProxy]:
    """In front of an empty server."""
    server.command("FLUSHALL")
    async with RedisProxy.before(server.port) as proxy:
        yield proxy


@pytest.fixture
async def store(proxy: RedisProxy) -> AsyncIterator[RedisStore]:
    """A client that reaches the server through the proxy."""
    url = f"redis://127.0.0.1:{proxy.port}/0"
    store = RedisStore(RedisSettings(url, request_timeout_seconds=1.0), "blue")
    yield store
    await store.close()


async def lead(store: RedisStore, *, floor: int = 0) -> Guard:
    lease = await store.acquire(ME, floor=floor, ttl_seconds=60.0, request="r1")
    return Guard(ME.id, lease.epoch)


def publication(epoch: int, workers: list[str]) -> Publication:
    version = EpochVersion(epoch, 1)
    shard_map = ShardMap("blue", version, 1.0, ME, {})
    ring = RingSpec("xxh3", 160, dict.fromkeys(workers, 1))
    shares = {worker: Share("blue", worker, "i", version, ()) for worker in workers}
    return Publication(shard_map, ring, shares)


ERRORS = {
    "loading": b"-LOADING Redis is loading the dataset in memory\r\n",
    "no auth": b"-NOAUTH Authentication required.\r\n",
    "full": b"-OOM command not allowed when used memory > 'maxmemory'.\r\n",
    "disk": b"-MISCONF Redis is configured to save RDB snapshots, but is unable to persist\r\n",
    "master down": b"-MASTERDOWN Link with MASTER is down\r\n",
    "clients": b"-ERR max number of clients reached\r\n",
    "busy": b"-BUSY Redis is busy running a script.\r\n",
    "cluster": b"-CLUSTERDOWN The cluster is down\r\n",
    "moved": b"-MOVED 866 10.0.0.9:6379\r\n",
    "no permission": b"-NOPERM this user has no permissions to run the command\r\n",
    "read only": b"-READONLY You can't write against a read only replica.\r\n",
    "nonsense": b"+OK\r\n",
    "nil": b"$-1\r\n",
    "number": b":1\r\n",
    "no RESP": b"HTTP/1.1 400 Bad Request\r\n\r\n",
}


KINDS = {
    "loading": "loading",
    "no auth": "auth",
    "full": "memory",
    "disk": "disk",
    "master down": "cluster",
    "clients": "clients",
    "busy": "busy",
    "cluster": "cluster",
    "moved": "cluster",
    "no permission": "permission",
    "read only": "read_only",
    "no RESP": "connection",
}
"""What each is counted as."""


@pytest.mark.parametrize("name", ERRORS)
async def test_every_refusal_of_the_server_is_unknown(
    proxy: RedisProxy, store: RedisStore, name: str
) -> None:
    """Lease, beat, members, publication and map, each against each error: one kind of exception,
    no crash of another, no invented answer, each counted by its kind; all is well once the server
    is (certtools/intelmq#2446, Grokzen/redis-py-cluster#244)."""
    guard = await lead(store)
    proxy.canned = ERRORS[name]
    calls: list[Any] = [
        lambda: store.lease(),
        lambda: store.renew(guard, ttl_seconds=60.0),
        lambda: store.beat(MEMBER),
        lambda: store.members(),
        lambda: store.publish(guard, publication(guard.epoch, ["worker-0"])),
        lambda: store.shard_map(EpochVersion(0, 0)),
        lambda: store.share("worker-0"),
    ]
    answers = {"nonsense", "nil", "number"}
    for call in calls:
        if name in answers:
            with contextlib.suppress(StoreUnavailable, FormatError):
                await call()
            continue
        with pytest.raises(StoreUnavailable):
            await call()
    if name in KINDS:
        assert {kind: n for kind, n in store.errors().items() if n} == {KINDS[name]: len(calls)}
    proxy.canned = None
    async with asyncio.timeout(20):
        while True:
            with contextlib.suppress(StoreUnavailable):
                lease = await store.lease()
                await store.beat(MEMBER)
                break
    assert (lease.leader, lease.epoch) == (ME, guard.epoch)


async def test_a_demoted_server_is_left_for_its_successor(
    proxy: RedisProxy, store: RedisStore, server: Valkey
) -> None:
    """The primary becomes a replica with all its connections open; its address now leads to the
    new one: found at the next call, without any restart (redis/redis-py#460, #935)."""
    await lead(store)
    await store.beat(MEMBER)
    with running_valkey() as successor:
        server.command("REPLICAOF", "127.0.0.1", str(successor.port))
        proxy.target = successor.port
        try:
            failures = 0
            async with asyncio.timeout(10):
                while True:
                    try:
                        await store.beat(MEMBER)
                        await lead(store, floor=7)
                        break
                    except StoreUnavailable:
                        failures += 1
            assert failures <= 4
            assert b"beats" in successor.command("KEYS", "*")
        finally:
            server.command("REPLICAOF", "NO", "ONE")


async def test_an_emptied_successor_never_gives_an_old_epoch(
    proxy: RedisProxy, store: RedisStore
) -> None:
    """The promoted replica had not seen the last epochs: the floor that workers and routes report
    keeps the next one above (opsmill/infrahub#9450, redis/redis#6062, restate#4937)."""
    for floor in (0, 7, 22):
        guard = await lead(store, floor=floor)
        await store.release(guard)
    assert guard.epoch == 23
    with running_valkey() as successor:
        proxy.target = successor.port
        await store.close()
        url = f"redis://127.0.0.1:{proxy.port}/0"
        after = RedisStore(RedisSettings(url, request_timeout_seconds=1.0), "blue")
        assert (await lead(after, floor=guard.epoch)).epoch == 24
        await after.close()


async def test_a_name_is_looked_up_at_each_connect(
    proxy: RedisProxy, server: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Service's name leads elsewhere now and the old address refuses
    (aio-libs-abandoned/aioredis-py#353)."""
    real = socket.getaddrinfo
    address = "127.0.0.1"
    looked_up: list[str] = []

    def lookup(host: Any, *rest: Any, **options: Any) -> Any:
        if host in ("store.test", b"store.test"):
            looked_up.append(address)
            host = address
        return real(host, *rest, **options)

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    store = RedisStore(
        RedisSettings(f"redis://store.test:{server.port}/0", request_timeout_seconds=1.0), "blue"
    )
    guard = await lead(store)
    address = "127.0.0.77"  # nobody listens there
    server.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    for _ in range(4):
        with pytest.raises(StoreUnavailable):
            await store.renew(guard, ttl_seconds=60.0)
    address = "127.0.0.1"
    assert (await store.renew(guard, ttl_seconds=60.0)).leader == ME
    assert set(looked_up) == {"127.0.0.1", "127.0.0.77"}
    await store.close()


async def test_cancelled_callers_leak_no_connection(server: Valkey) -> None:
    """2,000 callers of which a half give up at a random moment: never more than the four
    connections, all usable afterwards, every answer the caller's own (redis/redis-py#2517, #4123,
    #2624)."""
    server.command("FLUSHALL")
    store = RedisStore(RedisSettings(server.url, request_timeout_seconds=5.0), "blue")
    workers = [f"worker-{n}" for n in range(8)]
    guard = await lead(store)
    await store.publish(guard, publication(guard.epoch, workers))
    rng = random.Random(5)
    right = 0

    async def ask(worker: str, patience: float) -> None:
        nonlocal right
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                share = await store.share(worker)
                assert share is not None
                assert share.worker == worker
                right += 1

    for _ in range(4):
        async with asyncio.TaskGroup() as tasks:
            for _ in range(500):
                patience = rng.choice([rng.uniform(0, 0.05), 30.0])
                tasks.create_task(ask(rng.choice(workers), patience))
    assert right >= 900
    assert server.command("CLIENT", "LIST").count(b"lib-name=redis-py") <= 6
    await asyncio.gather(*(ask(worker, 30.0) for worker in workers * 4))
    await store.close()


async def test_evicted_keys_are_unknown_not_empty(server: Valkey) -> None:
    """allkeys-lru takes any of our keys: a missing share or map is no information, a missing lease
    makes every write of the ex-holder refused, nothing raises (intelmq#2446)."""
    server.command("FLUSHALL")
    store = RedisStore(RedisSettings(server.url, request_timeout_seconds=5.0), "blue")
    guard = await lead(store)
    await store.publish(guard, publication(guard.epoch, ["worker-0"]))
    await store.beat(MEMBER)
    for key in ("share:worker-0", "map", "ring", "members", "beats", "epoch"):
        server.command("DEL", f"epp:{{blue}}:{key}")
    assert await store.share("worker-0") is None
    assert await store.shard_map(EpochVersion(0, 0)) is None
    assert await store.ring() is None
    assert await store.members() == ()
    assert (await store.renew(guard, ttl_seconds=60.0)).map_version is None
    assert (await lead(store)).epoch >= guard.epoch
    await store.close()
