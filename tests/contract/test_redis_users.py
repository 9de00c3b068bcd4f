"""The documented users: their rights suffice, each is needed, and one that is missing is named."""

import asyncio
from collections.abc import Iterator

import pytest

from fleet.errors import StoreUnavailable
from fleet.model import EpochVersion, LeaderInfo
from fleet.model.identity import NONE
from fleet.settings.model import RedisSettings
from fleet.store.contract import Guard
from fleet.store.redis import RedisStore
from tests.contract.store_fixtures import LEADER_A, member, move, publication
from tests.redis_proxy import RedisProxy
from tests.redis_users import (
    COORDINATOR,
    PASSWORD,
    SENTINEL,
    WORKER,
    rights,
    rules,
    set_user,
    url_of,
)
from tests.sentinels import SERVICE, named, watched_valkey
from tests.valkey import Valkey, running_valkey

KEYS = ("leader", "epoch", "members", "beats", "map", "ring", "moves", "share:worker-0")
UNSEEN = "+client|setinfo"
"""Without it the server keeps a line in its ACL LOG, and nothing else happens."""


@pytest.fixture(scope="module")
def server() -> Iterator[Valkey]:
    """A primary with a replica that confirms, so that WAIT is needed."""
    with running_valkey(arguments=("--repl-diskless-sync-delay", "0")) as primary:
        follow = ("--replicaof", f"127.0.0.1 {primary.port}")
        with running_valkey(arguments=follow):
            while b"state=online" not in primary.command("INFO", "replication"):
                pass
            yield primary


async def lead(store: RedisStore) -> None:
    """All that a coordinator ever does."""
    lease = await store.acquire(LEADER_A, floor=0, ttl_seconds=30.0, request="r1")
    guard = Guard(LEADER_A.id, lease.epoch)
    await store.renew(guard, ttl_seconds=30.0)
    version = EpochVersion(lease.epoch, 1)
    moves = (move(0, version), move(1, version))
    written = publication(version, moves=moves, removed=("worker-1",))
    await store.publish(guard, written)
    await store.publish_shares(guard, version, written.shares, ["worker-1"])
    await store.members()
    await store.forget(guard, "worker-0", "i1")
    await store.shard_map(NONE)
    await store.ring()
    await store.moves(1)
    await store.lease()
    await store.release(guard)


async def work(store: RedisStore) -> None:
    """All that a worker ever does."""
    await store.beat(member("worker-0"))
    await store.members()
    await store.share("worker-0")


async def use(server: Valkey, user: str, words: list[str]) -> dict[str, int]:
    """Do all that this user does, by Sentinels, in database 1; the errors by kind.

    Raises:
        StoreUnavailable: a right is missing.
    """
    server.command("FLUSHALL")
    server.command("SCRIPT", "FLUSH")
    set_user(server, user, words)
    async with RedisProxy.before(server.port) as sentinel:
        sentinel.canned = named(server.port, 1)
        url = f"redis+sentinel://{user}:{PASSWORD}@127.0.0.1:{sentinel.port}/{SERVICE}/1"
        settings = RedisSettings(url, request_timeout_seconds=5.0, min_acks=1)
        store = RedisStore(settings, "blue")
        try:
            if user == COORDINATOR:
                admin = RedisStore(RedisSettings(f"{server.url[:-1]}1", 5.0), "blue")
                await admin.beat(member("worker-0"))
                await admin.close()
                await lead(store)
            else:
                await work(store)
        except StoreUnavailable:
            assert {kind for kind, n in store.errors().items() if n} == {"permission"}
            raise
        finally:
            await store.close()
        return {kind: n for kind, n in store.errors().items() if n}


@pytest.mark.parametrize("user", [COORDINATOR, WORKER])
async def test_the_documented_rights_suffice_and_nothing_is_refused(
    server: Valkey, user: str
) -> None:
    """Not one error, and not one line in the server's ACL LOG."""
    server.command("ACL", "LOG", "RESET")
    assert await use(server, user, rules(user)) == {}
    assert server.command("ACL", "LOG") == b"*0\r\n"


@pytest.mark.parametrize(
    ("user", "right"),
    [(user, right) for user in (COORDINATOR, WORKER) for right in rights(user) if right != UNSEEN],
)
async def test_a_command_that_is_taken_away_is_named(server: Valkey, user: str, right: str) -> None:
    """Each right is needed; without it the error says which command, and what it was for."""
    without = [rule for rule in rules(user) if rule != right]
    with pytest.raises(StoreUnavailable, match=rf"'{right[1:]}'"):
        await use(server, user, without)


@pytest.mark.parametrize(
    ("user", "missing"),
    [
        *((COORDINATOR, key) for key in KEYS),
        *((WORKER, key) for key in ("members", "beats", "share:worker-0")),
    ],
)
async def test_a_key_that_is_taken_away_is_named(server: Valkey, user: str, missing: str) -> None:
    """The error has the pattern that the user needs, or the key itself."""
    plain = [rule for rule in rules(user) if not rule.startswith("~")]
    others = [f"~epp:{{blue}}:{key}" for key in (*KEYS, "share:worker-1") if key != missing]
    with pytest.raises(StoreUnavailable, match=r"epp:\{blue\}:") as caught:
        await use(server, user, [*plain, *others])
    assert missing.partition(":")[0] in str(caught.value)


async def test_a_worker_cannot_lead_or_publish(server: Valkey) -> None:
    """Nor read the map, nor touch another fleet."""
    set_user(server, WORKER, rules(WORKER))
    store = RedisStore(RedisSettings(url_of(WORKER, server.port), 5.0), "blue")
    green = RedisStore(RedisSettings(url_of(WORKER, server.port), 5.0), "green")
    me = LeaderInfo("worker-0", "h:1", "h:2")
    version = EpochVersion(1, 1)
    calls = (
        store.acquire(me, floor=0, ttl_seconds=1.0, request="r"),
        store.publish(Guard("worker-0", 1), publication(version)),
        store.forget(Guard("worker-0", 1, elsewhere=True), "worker-1", "i1"),
        store.shard_map(NONE),
        green.beat(member("worker-0")),
    )
    for call in calls:
        with pytest.raises(StoreUnavailable, match="NoPermission"):
            await call
    await asyncio.gather(store.close(), green.close())


async def test_a_sentinels_own_user() -> None:
    """A real Sentinel whose user has the documented rights; the wrong password is said."""
    line = " ".join(["user", SENTINEL, *rules(SENTINEL)[1:]])
    with watched_valkey(lines=(line,)) as watched:
        place = f"127.0.0.1:{watched.sentinels[0].port}/{SERVICE}?sentinel_username={SENTINEL}"
        for password, good in ((PASSWORD, True), ("wr0ng", False)):
            url = f"redis+sentinel://{place}&sentinel_password={password}"
            store = RedisStore(RedisSettings(url, request_timeout_seconds=5.0), "blue")
            if good:
                await store.beat(member("worker-0"))
            else:
                with pytest.raises(StoreUnavailable, match="invalid username-password") as caught:
                    await store.lease()
                assert password not in str(caught.value)
            await store.close()
