"""Whole coordinators whose store is cut off, rolled back, emptied, refuses or is slow.

Each test ends with what `proxied_fleet` promises: nobody was declared dead, no group changed hands,
at no moment did two lead, and no map, share or route went back.
"""

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import aiohttp
import pytest

import tests.coordinators
from fleet.clock import SystemClock
from fleet.model import EpochVersion, Hold, MemberState
from fleet.settings.model import ElectionSettings, RedisSettings
from fleet.store.redis import RedisStore
from tests.coordinators import Running, until
from tests.ports import free_port
from tests.proxied_fleet import ProxiedFleet, proxied_fleet
from tests.redis_proxy import RedisProxy
from tests.tcp_proxy import TcpProxy
from tests.valkey import Valkey, frame, running_valkey

TTL_SECONDS = 2.0
"""Of the lease and of a member, by default."""


@pytest.fixture
def server() -> Iterator[Valkey]:
    """A real server."""
    with running_valkey() as valkey:
        yield valkey


def cut_off(*proxies: RedisProxy) -> None:
    """Nothing comes through any more, and nothing is closed."""
    for proxy in proxies:
        proxy.black_hole = True


async def heal(*proxies: RedisProxy) -> None:
    """The network is back; what hung in it is not."""
    for proxy in proxies:
        proxy.black_hole = False
        await proxy.reset()


async def unheard(fleet: ProxiedFleet, *workers: str) -> None:
    """Wait until the store has heard nothing of these workers for longer than a member's TTL."""
    async with asyncio.timeout(20.0):
        while True:
            beats = {beat.member.id: beat.age_seconds for beat in await fleet.store.members()}
            if all(beats[worker] > 1.2 * TTL_SECONDS for worker in workers):
                return
            await asyncio.sleep(0.05)


async def test_the_leader_alone_is_cut_off(tmp_path: Path, server: Valkey) -> None:
    """It stops acting at its deadline, somebody else leads in a higher epoch with the same owners,
    and once it is back it follows (patroni/patroni#3572)."""
    async with proxied_fleet(tmp_path, server.port) as fleet:
        first = await fleet.led()
        epoch = first.app.shard_map().version.epoch  # type: ignore[union-attr]
        proxy = fleet.proxies[first.app.id]
        cut_off(proxy)
        second = await fleet.led(above=epoch)
        assert second is not first
        assert not first.app.leading()
        await heal(proxy)
        wanted = (await fleet.led()).map
        assert wanted is not None
        await until(lambda: first.map and first.map.version >= wanted.version, what="it follows")


async def test_one_worker_alone_is_cut_off(tmp_path: Path, server: Valkey) -> None:
    """It does not beat for longer than a member may be silent, but its control stream stands: it
    is not dead, and keeps its groups."""
    async with proxied_fleet(tmp_path, server.port, coordinators=1) as fleet:
        proxy = fleet.proxies["worker-0"]
        cut_off(proxy)
        await unheard(fleet, "worker-0")
        states = {s.member.id: s.state for s in fleet.leader.app.members()}
        assert states["worker-0"] in (MemberState.ALIVE, MemberState.SUSPECT)
        assert states["worker-1"] is MemberState.ALIVE
        await heal(proxy)


async def test_all_are_cut_off(tmp_path: Path, server: Valkey) -> None:
    """Nobody leads, nobody dies, workers keep what they hold; then somebody leads in a higher epoch
    and publishes the same owners (ray-project/ray#34281, grafana/mimir#13810)."""
    async with proxied_fleet(tmp_path, server.port) as fleet:
        epoch = (await fleet.led()).map.version.epoch  # type: ignore[union-attr]
        held = {name: worker.holds(Hold.OWNER) for name, worker in fleet.workers.items()}
        proxies = list(fleet.proxies.values())
        cut_off(*proxies)
        await until(lambda: not fleet.leaders(), what="nobody leads")
        await unheard(fleet, "worker-0", "worker-1")
        assert {name: worker.holds(Hold.OWNER) for name, worker in fleet.workers.items()} == held
        assert all(count > 0 for count in fleet.errors("timeout"))
        await heal(*proxies)
        await fleet.led(above=epoch)


async def test_killed_and_emptied_under_load(tmp_path: Path, server: Valkey) -> None:
    """Pools come and go while the server is flushed four times and killed twice: the map is in the
    store again each time, in a higher epoch than the one that was lost (cortexproject/cortex#4528,
    grafana/dskit#165)."""
    steady = [f"pool-{n}" for n in range(40)]
    async with proxied_fleet(tmp_path, server.port, workers=8, pools=40) as fleet:
        for n in range(6):
            before = (await fleet.led()).map
            assert before is not None
            fleet.pools(*steady, f"extra-{n}")
            if n % 3 == 2:
                await asyncio.to_thread(server.restart_empty)
            else:
                server.command("FLUSHALL")
            leader = await fleet.led(above=before.version.epoch)
            assert leader.map is not None
            await fleet.in_store(leader.map.version)
            await until(lambda: fleet.known_leaders() == {leader.app.id}, what="all know")  # noqa: B023
        await until(lambda: "extra-5-epp" in fleet.owners(), what="the last pool is placed")


async def promote(fleet: ProxiedFleet, replica: Valkey) -> None:
    """What a Sentinel does, and what its clients find then."""
    replica.command("REPLICAOF", "NO", "ONE")
    for proxy in fleet.proxies.values():
        proxy.target = replica.port
        await proxy.reset()


@pytest.mark.parametrize("min_acks", [0, 1])
async def test_a_fail_over_rolls_the_store_back(
    tmp_path: Path, server: Valkey, min_acks: int
) -> None:
    """The replica was cut off while leaders changed and maps were published: no epoch is used
    twice, and the promoted replica gets a map above all that were seen (opsmill/infrahub#9450,
    redis/redis#6062, restatedev/restate#4937). What no replica has may be lost: without
    acknowledgements that can be a lease whose holder acts on for one TTL, in the lower epoch."""
    redis = RedisSettings(min_acks=min_acks)
    async with TcpProxy.before("127.0.0.1", server.port) as replication:
        with replica_of(replication.port) as replica:
            await attached(server)
            overlap = 0.0 if min_acks else TTL_SECONDS
            async with proxied_fleet(
                tmp_path, server.port, redis=redis, overlap_seconds=overlap
            ) as fleet:
                first = await fleet.led()
                proxy = fleet.proxies[first.app.id]
                await replication.cut()
                cut_off(proxy)
                if min_acks:
                    # Whoever tries to be elected has it from no replica, and does not lead.
                    await until(lambda: not fleet.leaders(), what="nobody leads")
                    tries = sum(fleet.errors("replicas"))
                    await until(lambda: sum(fleet.errors("replicas")) > tries, what="no acks")
                    assert not fleet.leaders()
                    highest = first.map.version  # type: ignore[union-attr]
                else:
                    second = await fleet.led(above=first.map.version.epoch)  # type: ignore[union-attr]
                    highest = second.map.version  # type: ignore[union-attr]
                await promote(fleet, replica)
                await heal(proxy)
                with replica_of(replica.port):
                    third = await fleet.led(above=highest.epoch)
                    await stored(replica, third.map.version)  # type: ignore[union-attr]


def replica_of(port: int) -> AbstractContextManager[Valkey]:
    follow = ("--replicaof", f"127.0.0.1 {port}")
    return running_valkey(arguments=(*follow, "--repl-diskless-sync-delay", "0"))


async def attached(primary: Valkey) -> None:
    """Wait until a replica has it all."""
    primary.command("CONFIG", "SET", "repl-diskless-sync-delay", "0")
    async with asyncio.timeout(10.0):
        while b"state=online" not in primary.command("INFO", "replication"):
            await asyncio.sleep(0.02)


async def stored(server: Valkey, version: EpochVersion) -> None:
    """Wait until this server has this map or a later one."""
    store = RedisStore(RedisSettings(server.url, 5.0), "default")
    below = version._replace(version=version.version - 1)
    async with asyncio.timeout(20.0):
        while await store.shard_map(below) is None:
            await asyncio.sleep(0.02)
    await store.close()


async def test_a_server_that_refuses(tmp_path: Path, server: Valkey) -> None:
    """Full, without a password, able to renew but not to read members, demoted: each counted by its
    kind; afterwards somebody leads (certtools/intelmq#2446)."""
    away = free_port()
    faults = {
        "memory": (("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "SET", "maxmemory", "0")),
        "auth": (
            ("ACL", "SETUSER", "default", "resetpass", ">x"),
            ("ACL", "SETUSER", "default", "nopass"),
        ),
        "permission": (
            ("ACL", "SETUSER", "default", "-hgetall"),
            ("ACL", "SETUSER", "default", "+@all"),
        ),
        "read_only": (("REPLICAOF", "127.0.0.1", str(away)), ("REPLICAOF", "NO", "ONE")),
    }
    async with proxied_fleet(tmp_path, server.port) as fleet:
        server.command("ACL", "SETUSER", "admin", "on", "nopass", "+@all", "~*")
        for kind, (break_it, mend_it) in faults.items():
            epoch = (await fleet.led()).map.version.epoch  # type: ignore[union-attr]
            assert as_admin(server, *break_it) == b"+OK\r\n"
            if kind == "auth":  # who is logged in stays so
                for proxy in fleet.proxies.values():
                    await proxy.reset()
            await until(lambda k=kind: sum(fleet.errors(k)) > 2, what=kind)  # type: ignore[misc]
            assert as_admin(server, *mend_it) == b"+OK\r\n"
            await fleet.led(above=epoch - 1)
        page = await metrics_of(await fleet.led())
        for kind in faults:
            assert f'epp_fleet_store_errors_total{{kind="{kind}"}}' in page
        assert "\nepp_fleet_store_behind_seconds 0.0\n" in page


async def metrics_of(running: Running) -> str:
    leader = running.app.leader()
    assert leader is not None
    url = f"http://{leader.http}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return await response.text()


def as_admin(server: Valkey, *words: str) -> bytes:
    """By a user of its own: the default one may have no rights just now."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=1.0) as link:
        link.sendall(frame(("AUTH", "admin", "any")))
        assert link.recv(64) == b"+OK\r\n"
        link.sendall(frame(words))
        return link.recv(64)


async def test_200_ms_of_latency(tmp_path: Path, server: Valkey) -> None:
    """Every command takes 0.2 s to arrive: the leader stays, and places a new pool."""
    redis = RedisSettings(request_timeout_seconds=0.6)
    slow = ElectionSettings(ttl_seconds=3.6)
    async with proxied_fleet(tmp_path, server.port, redis=redis, election=slow) as fleet:
        leader = await fleet.led()
        assert leader.map is not None
        epoch = leader.map.version.epoch
        for proxy in fleet.proxies.values():
            proxy.delay_seconds = 0.2
        began = time.monotonic()
        fleet.pools(*[f"pool-{n}" for n in range(6)], "late")
        await until(lambda: "late-epp" in fleet.owners(), what="the new pool is placed")
        await until(lambda: time.monotonic() - began > 4.0, what="a lease's time")
        assert fleet.leader is leader
        assert leader.map.version.epoch == epoch


class OffClock(SystemClock):
    """A process whose clocks, wall and monotonic, stand elsewhere."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def monotonic(self) -> float:
        return super().monotonic() + self._seconds

    def wall(self) -> float:
        return super().wall() + self._seconds


async def test_clocks_that_are_two_hours_off_change_nothing(
    tmp_path: Path, server: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coordinator whose clocks are ahead takes over from one that is right, and one whose clocks
    are behind from that: by the store's clock nobody is late."""
    async with proxied_fleet(tmp_path, server.port, coordinators=1) as fleet:
        for hours in (2.0, -2.0):
            before = await fleet.led()
            monkeypatch.setattr(tests.coordinators, "CLOCK", OffClock(hours * 3600))
            await fleet.coordinator(f"coordinator-off-{hours:g}")
            await before.stop()
            fleet.coordinators.remove(before)
            await fleet.led(above=before.map.version.epoch)  # type: ignore[union-attr]
