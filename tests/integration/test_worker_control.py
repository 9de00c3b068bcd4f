"""The internal port, health and HTTP of a worker, asked by stock clients."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import grpc.aio
import msgspec
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fleet.control.messages import (
    SEEN_EPOCH_KEY,
    AskShare,
    Assign,
    LeaderHello,
    Report,
    SetDrain,
    Verdict,
    WorkerHello,
)
from fleet.control.sharing import ShareShortening
from fleet.model import EpochVersion, GroupKey, Hold, LeaderInfo, RingSpec, ShardMap, Share
from fleet.sources.contract import Kind
from fleet.store.contract import Guard, Publication
from fleet.store.memory import MemoryStore
from tests.worker_inprocess import (
    DEADLINE,
    TOKEN,
    Running,
    TestLeader,
    group_of,
    running_worker,
    until,
    write_pool,
)

SERVING, NOT_SERVING, SERVICE_UNKNOWN = 1, 2, 3


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    """A worker over one pool, with nothing assigned."""
    write_pool(tmp_path, "pool-a", "10.0.0.1")
    async with running_worker(tmp_path) as worker:
        yield worker


def leader_of(running: Running, epoch: int, token: str = TOKEN) -> TestLeader:
    return TestLeader(running.worker.addresses.internal, epoch, token)


async def test_a_wrong_token_is_refused(running: Running) -> None:
    """UNAUTHENTICATED, and nothing that was sent has any effect."""
    leader = leader_of(running, 9, token="guessed")
    assert await leader.end() is grpc.StatusCode.UNAUTHENTICATED
    assert running.worker.holdings.seen.epoch == 0
    await leader.close()


async def test_a_lower_epoch_is_refused_and_told_the_higher_one(running: Running) -> None:
    """FAILED_PRECONDITION with the epoch in the trailing metadata; the live stream stays."""
    first = leader_of(running, 7)
    await first.connect()
    late = leader_of(running, 6)
    await late.say(LeaderHello("default", 6, LeaderInfo("c1", "h:1", "h:2")))
    assert await late.end() is grpc.StatusCode.FAILED_PRECONDITION
    assert dict(await late.call.trailing_metadata())[SEEN_EPOCH_KEY] == "7"
    assert isinstance(await first.next(), Report)
    for leader in (first, late):
        await leader.close()


async def test_a_higher_epoch_takes_over_and_the_older_stream_ends(running: Running) -> None:
    """The older leader learns which epoch has replaced it, and its assignments count no more."""
    old, new = leader_of(running, 7), leader_of(running, 8)
    await old.connect()
    hello = await new.connect()
    assert hello.member.seen.epoch == 8
    while await old.next() is not None:
        pass
    assert await old.end() is grpc.StatusCode.FAILED_PRECONDITION
    assert dict(await old.call.trailing_metadata())[SEEN_EPOCH_KEY] == "8"
    await new.assign(running.share(1, epoch=8, pool_a=Hold.OWNER))
    for leader in (old, new):
        await leader.close()


async def test_of_two_streams_of_one_epoch_the_newer_wins(running: Running) -> None:
    """The leader has dialled anew; the old stream is ended without calling the epoch outdated."""
    old, new = leader_of(running, 7), leader_of(running, 7)
    await old.connect()
    await new.connect()
    while await old.next() is not None:
        pass
    assert await old.end() is grpc.StatusCode.ABORTED
    assert isinstance(await new.next(), Report)
    for leader in (old, new):
        await leader.close()


async def test_another_fleets_leader_is_refused(running: Running) -> None:
    """Two fleets that share addresses do not mix."""
    leader = leader_of(running, 99)
    await leader.say(LeaderHello("other", 99, LeaderInfo("c1", "h:1", "h:2")))
    assert await leader.end() is grpc.StatusCode.PERMISSION_DENIED
    assert running.worker.holdings.seen.epoch == 0
    await leader.close()


async def test_garbage_ends_the_stream_and_harms_nothing(running: Running) -> None:
    """INVALID_ARGUMENT; the next leader is served."""
    leader = leader_of(running, 1)
    await leader.connect()
    await leader.call.write(b"\xc1 no message")
    while await leader.next() is not None:
        pass
    assert await leader.end() is grpc.StatusCode.INVALID_ARGUMENT
    await leader.close()
    again = leader_of(running, 1)
    await again.connect()
    await again.close()
    assert running.worker.unwell() is None


async def test_the_drain_mark_is_reported_at_once_and_kept(running: Running) -> None:
    """In the report, in the beat, and in the hello of the next stream."""
    leader = leader_of(running, 1)
    await leader.connect()
    await leader.say(SetDrain(on=True))
    await leader.report_when(lambda report: report.draining)
    await until(
        lambda: running.server.state.beats["worker-0"][0].draining, "the beat carries the mark"
    )
    await leader.close()
    again = leader_of(running, 1)
    assert (await again.connect()).member.draining
    await again.say(SetDrain(on=False))
    await again.report_when(lambda report: not report.draining)
    await again.close()


async def test_a_duplicate_is_told_to_exit(running: Running) -> None:
    """The stream ends and the process is told why."""
    leader = leader_of(running, 1)
    hello = await leader.connect()
    await leader.say(Verdict(hello.member.incarnation, "duplicate", "the id is taken"))
    while await leader.next() is not None:
        pass
    assert running.refused == ["the id is taken"]
    await leader.close()


async def test_a_dead_worker_joins_anew_and_keeps_serving(running: Running) -> None:
    """A new incarnation in beat and hello; what it owned still answers strays."""
    leader = leader_of(running, 1)
    hello = await leader.connect()
    await leader.assign(running.share(1, pool_a=Hold.OWNER))
    await leader.say(Verdict(hello.member.incarnation, "dead", "silent"))
    while await leader.next() is not None:
        pass
    assert await leader.end() is grpc.StatusCode.OK
    await leader.close()
    again = leader_of(running, 1)
    reborn = await again.connect()
    assert reborn.member.incarnation != hello.member.incarnation
    assert reborn.member.holds == {group_of("pool-a"): Hold.DRAINING}
    await again.assign(running.share(2, pool_a=Hold.OWNER))
    await again.close()


async def test_a_missed_share_is_repaired_from_the_store(running: Running) -> None:
    """Nobody is connected; the stored share is found within a poll."""
    store = MemoryStore(running.worker._given.clock, running.server)
    info = LeaderInfo("c0", "h:1", "h:2")
    lease = await store.acquire(info, floor=0, ttl_seconds=60, request="r")
    share = running.share(1, epoch=lease.epoch, pool_a=Hold.OWNER)
    await _publish(store, info, share)
    await until(lambda: len(running.worker.holdings) == 1, "the share is applied")
    assert running.worker.unready() is None


async def _publish(store: MemoryStore, info: LeaderInfo, share: Share) -> None:
    shard_map = ShardMap("default", share.version, 0.0, info, {})
    ring = RingSpec("xxh3", 160, {"worker-0": 1})
    publication = Publication(shard_map, ring, {"worker-0": share})
    await store.publish(Guard(info.id, share.version.epoch), publication)


def _health(running: Running) -> tuple[grpc.aio.Channel, Any]:
    channel = grpc.aio.insecure_channel(
        running.worker.addresses.health, options=[("grpc.use_local_subchannel_pool", 1)]
    )
    return channel, health_pb2_grpc.HealthStub(channel)


async def test_health_names(running: Running) -> None:
    """Not ready until told; a pool serves only where it is owned; unknown names are unknown."""
    channel, stub = _health(running)

    async def check(name: str) -> int:
        answer = await stub.Check(health_pb2.HealthCheckRequest(service=name))
        return int(answer.status)

    assert await check("liveness") == SERVING
    assert await check("readiness") == await check("") == NOT_SERVING
    leader = leader_of(running, 1)
    await leader.connect()
    await leader.assign(running.share(1, pool_a=Hold.STANDBY))
    assert await check("readiness") == await check("") == SERVING
    assert await check("envoy.service.ext_proc.v3.ExternalProcessor") == SERVING
    assert await check("inference-extension") == SERVING
    assert await check("ns1/pool-a") == NOT_SERVING
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await check("nonsense")
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND
    await leader.close()
    await channel.close(None)


async def test_health_watch_is_pushed(running: Running) -> None:
    """Unknown before the pool is held, then serving with the ownership, then not any more."""
    channel, stub = _health(running)
    leader = leader_of(running, 1)
    await leader.connect()
    watch = stub.Watch(health_pb2.HealthCheckRequest(service="ns1/pool-a"))
    seen = []
    async with asyncio.timeout(DEADLINE):
        seen.append((await watch.read()).status)
        await leader.say(Assign(running.share(1, pool_a=Hold.OWNER)))
        while seen[-1] != SERVING:
            seen.append((await watch.read()).status)
        await leader.say(Assign(running.share(2, pool_a=Hold.DRAINING)))
        seen.append((await watch.read()).status)
    assert seen[0] == SERVICE_UNKNOWN
    assert seen[-2:] == [SERVING, NOT_SERVING]
    watch.cancel()
    await leader.close()
    await channel.close(None)


async def test_http_side(running: Running) -> None:
    """Metrics by their promised names, probes with a reason, holds only with the token."""
    leader = leader_of(running, 3)
    base = f"http://{running.worker.addresses.http}"
    async with aiohttp.ClientSession() as client:
        async with client.get(f"{base}/readyz") as answer:
            assert answer.status == 503
            assert "no leader" in await answer.text()
        await leader.connect()
        await leader.assign(running.share(4, epoch=3, pool_a=Hold.OWNER))
        async with client.get(f"{base}/readyz") as answer:
            assert answer.status == 200
        async with client.get(f"{base}/healthz") as answer:
            assert answer.status == 200
        async with client.get(f"{base}/metrics") as answer:
            lines = (await answer.text()).splitlines()
        async with client.get(f"{base}/debug/holds") as answer:
            assert answer.status == 401
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with client.get(f"{base}/debug/holds", headers=headers) as answer:
            holds = await answer.json()
    for line in (
        'epp_fleet_hold{hold="owner"} 1.0',
        'epp_fleet_hold{hold="standby"} 0.0',
        "epp_fleet_epoch 3.0",
        "epp_fleet_map_version 4.0",
        'epp_fleet_streams_total{code="OK"} 0.0',
        'epp_fleet_picks_total{outcome="picked"} 0.0',
        'epp_fleet_strays_total{outcome="held"} 0.0',
        'epp_fleet_inflight_requests{endpoint="10.0.0.1:8000",namespace="ns1",pool="pool-a"} 0',
        "epp_fleet_streams_open 0.0",
        "epp_fleet_owned_load 1.0",
    ):
        assert line in lines
    names = {line.partition(" ")[0].partition("{")[0] for line in lines}
    assert {
        "epp_fleet_connections_open",
        "epp_fleet_loop_lag_seconds",
        "epp_fleet_loop_busy_ratio",
        "process_resident_memory_bytes",
    } <= names
    assert holds["holds"][0]["group"] == "ns1/pool-a-epp:9002"
    assert holds["applied"] == str(EpochVersion(3, 4))
    await leader.close()


async def test_a_leader_that_reads_parts_is_told_what_changed(running: Running) -> None:
    """Everything once on each stream; heartbeats after it repeat nothing."""
    group = group_of("pool-a")
    for epoch in (3, 4):
        leader = leader_of(running, epoch)
        hello = LeaderHello("default", epoch, LeaderInfo("c0", "h:1", "h:2"), deltas=True)
        await leader.say(hello)
        assert isinstance(await leader.next(), WorkerHello)
        first = await leader.report_when(lambda _: True)
        assert not first.partial
        if epoch == 3:
            assert first.holds == ()
            await leader.say(Assign(running.share(1, epoch, pool_a=Hold.OWNER)))
            news = await leader.report_when(lambda report: any(h.synced for h in report.holds))
            assert (news.partial, [held.group for held in news.holds]) == (True, [group])
        else:
            assert [held.group for held in first.holds] == [group]
        quiet = await leader.report_when(lambda report: report.holds == ())
        assert (quiet.partial, quiet.gone) == (True, ())
        await leader.close()


async def test_parts_of_shares_come_to_what_wholes_say(running: Running, tmp_path: Path) -> None:
    """A worker says that it reads them; one that does not fit is not applied, and the worker asks
    for the whole, after which parts fit again."""
    for name in ("pool-b", "pool-c"):
        write_pool(tmp_path, name, "10.0.0.1")
    await until(lambda: len(running.source.objects(Kind.POOL)) == 3, "the pools are known")
    leader = leader_of(running, 3)
    hello = await leader.connect()
    assert hello.deltas
    telling = ShareShortening()

    async def tell(share: Share, **wrong: int) -> None:
        part = telling.next(share)
        await leader.say(Assign(share) if part is None else msgspec.structs.replace(part, **wrong))

    def named() -> dict[GroupKey, Hold]:
        return {entry.group: entry.hold for entry in holdings.named()}

    holdings = running.worker.holdings
    await tell(running.share(1, 3, pool_a=Hold.OWNER, pool_b=Hold.STANDBY, pool_c=Hold.STANDBY))
    await tell(running.share(2, 3, pool_a=Hold.OWNER, pool_b=Hold.STANDBY))
    await leader.report_when(lambda report: report.version == EpochVersion(3, 2))
    assert named() == {group_of("pool-a"): Hold.OWNER, group_of("pool-b"): Hold.STANDBY}

    await tell(running.share(3, 3, pool_a=Hold.STANDBY, pool_b=Hold.STANDBY), sum=1)
    async with asyncio.timeout(DEADLINE):
        while not isinstance(message := await leader.next(), AskShare):
            assert isinstance(message, Report)
    assert holdings.applied == EpochVersion(3, 2)
    telling.forget()
    await tell(running.share(3, 3, pool_a=Hold.STANDBY, pool_b=Hold.STANDBY))
    await tell(running.share(4, 3, pool_a=Hold.STANDBY, pool_b=Hold.OWNER))
    await leader.report_when(lambda report: report.version == EpochVersion(3, 4))
    assert named() == {group_of("pool-a"): Hold.STANDBY, group_of("pool-b"): Hold.OWNER}
    await leader.close()
