"""The worker as a process: how it starts, and with which exit code and manners it ends."""

import asyncio
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from fleet.control.messages import Verdict
from fleet.model import EpochVersion, Hold, PoolId, PoolRef, Share, ShareEntry
from tests.unit import extproc_messages
from tests.valkey import Valkey
from tests.worker_inprocess import (
    DEADLINE,
    Gateway,
    TestLeader,
    endpoint_in,
    group_of,
    write_pool,
)
from tests.worker_process import WorkerProcess

QUICK = {"worker": {"quiet_seconds": 1.5, "propagation_seconds": 0.2, "stream_drain_seconds": 60}}


@pytest.fixture(scope="module")
def valkey() -> Iterator[Valkey]:
    """One real store for all tests of this module."""
    server = Valkey()
    server.start()
    yield server
    server.close()


def share(version: int, hold: Hold, uid: str, incarnation: str) -> Share:
    pools = (PoolId(PoolRef("ns1", "pool-a"), uid),)
    entry = ShareEntry(group_of("pool-a"), hold, pools, "worker-0")
    return Share("default", "worker-0", incarnation, EpochVersion(1, version), (entry,))


async def owning(worker: WorkerProcess) -> tuple[TestLeader, str, str]:
    """Make the worker own pool-a; the leader, the incarnation and the uid used."""
    leader = TestLeader(worker.address("internal"), 1)
    hello = await leader.connect()
    incarnation = hello.member.incarnation
    await leader.assign(share(1, Hold.OWNER, UID, incarnation))
    return leader, incarnation, UID


UID = "uid-of-pool-a"


def with_pool(worker: WorkerProcess) -> None:
    """A pool with a known uid, and one pod."""
    write_pool(worker.manifests, "pool-a", "10.0.0.1", uid=UID)


async def test_sigterm_lets_an_open_stream_end_and_exits_0(tmp_path: Path, valkey: Valkey) -> None:
    """Nobody can take over: no new work is waited for, but the stream that is open ends well."""
    with WorkerProcess(tmp_path, redis_url=valkey.url, settings=QUICK) as worker:
        with_pool(worker)
        await asyncio.to_thread(worker.wait_up)
        leader, _, _ = await owning(worker)
        gateway = Gateway(worker.address("ext_proc"), "pool-a-epp.ns1.svc:9002")
        call = gateway.stream()
        body = extproc_messages.request_body(b'{"model": "m"}', end_of_stream=True)
        await call.write(extproc_messages.request_headers())
        await call.write(body)
        async with asyncio.timeout(DEADLINE):
            assert endpoint_in(await call.read()) == "10.0.0.1:8000"
            await call.read()
        worker.signal(signal.SIGTERM)
        await asyncio.to_thread(worker.wait_said, "step=leave")
        assert worker.process.poll() is None
        await call.write(extproc_messages.response_headers(end_of_stream=True))
        async with asyncio.timeout(DEADLINE):
            assert isinstance(await call.read(), bytes)
            await call.done_writing()
            assert await call.code() is grpc.StatusCode.OK
        await gateway.close()
        assert await asyncio.to_thread(worker.wait) == 0
        await leader.close()


async def test_sigterm_with_a_peer_waits_for_the_hand_over(tmp_path: Path, valkey: Valkey) -> None:
    """It reports the drain mark, serves until it is drained and quiet, and then exits 0."""
    peer = WorkerProcess(tmp_path, redis_url=valkey.url, worker_id="worker-1")
    with peer, WorkerProcess(tmp_path, redis_url=valkey.url, settings=QUICK) as worker:
        with_pool(worker)
        await asyncio.to_thread(peer.wait_up)
        await asyncio.to_thread(worker.wait_up)
        leader, incarnation, uid = await owning(worker)
        worker.signal(signal.SIGTERM)
        await leader.report_when(lambda report: report.draining)
        gateway = Gateway(worker.address("ext_proc"), "pool-a-epp.ns1.svc:9002")
        assert await gateway.pick() == "10.0.0.1:8000"
        assert "step=leave" not in worker.log()
        await leader.assign(share(2, Hold.DRAINING, uid, incarnation))
        assert await gateway.pick() == "10.0.0.1:8000"
        handed_over = time.monotonic()
        assert await asyncio.to_thread(worker.wait) == 0
        assert time.monotonic() - handed_over >= 1.3
        await gateway.close()
        await leader.close()


@pytest.mark.parametrize("signals", [(signal.SIGINT,), (signal.SIGTERM, signal.SIGTERM)])
async def test_sigint_or_a_second_sigterm_stops_at_once(
    tmp_path: Path, valkey: Valkey, signals: tuple[signal.Signals, ...]
) -> None:
    """With a stream open; exit 0 and no traceback (grpc#26123)."""
    with WorkerProcess(tmp_path, redis_url=valkey.url) as worker:
        with_pool(worker)
        await asyncio.to_thread(worker.wait_up)
        leader, _, _ = await owning(worker)
        gateway = Gateway(worker.address("ext_proc"), "pool-a-epp.ns1.svc:9002")
        call = gateway.stream()
        await call.write(extproc_messages.request_headers(end_of_stream=True))
        async with asyncio.timeout(DEADLINE):
            await call.read()
        for number in signals:
            worker.signal(number)
            await asyncio.sleep(0.3)
        assert await asyncio.to_thread(worker.wait, 20.0) == 0
        assert "Traceback" not in worker.log()
        await gateway.close()
        await leader.close()


async def test_a_duplicate_exits_2(tmp_path: Path, valkey: Valkey) -> None:
    """The leader says that the id is taken: loudly, and at once."""
    with WorkerProcess(tmp_path, redis_url=valkey.url) as worker:
        await asyncio.to_thread(worker.wait_up)
        leader = TestLeader(worker.address("internal"), 1)
        hello = await leader.connect()
        await leader.say(Verdict(hello.member.incarnation, "duplicate", "another one runs"))
        assert await asyncio.to_thread(worker.wait, 20.0) == 2
        assert "another one runs" in worker.log()
        await leader.close()


def test_an_idle_worker_leaves_at_once(tmp_path: Path, valkey: Valkey) -> None:
    """It never owned anything and has no leader: SIGTERM needs no quiet time."""
    with WorkerProcess(tmp_path, redis_url=valkey.url) as worker:
        worker.wait_up()
        worker.signal(signal.SIGTERM)
        assert worker.wait(5.0) == 0


def test_broken_settings_exit_2_with_a_line_per_field(tmp_path: Path) -> None:
    """Each line begins with the field's path."""
    settings = {"worker": {"weight": 0}, "scrape": {"timeout_seconds": -1}}
    with WorkerProcess(tmp_path, settings=settings) as worker:
        assert worker.wait() == 2
        starts = {line.partition(":")[0] for line in worker.log().splitlines()}
        assert {"worker.weight", "scrape.timeout_seconds"} <= starts
        assert "Traceback" not in worker.log()


@pytest.mark.parametrize("name", ["ext_proc", "health", "internal", "http"])
def test_a_taken_port_exits_2_and_names_it(tmp_path: Path, name: str) -> None:
    """Which listener, and which port."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        worker = WorkerProcess(tmp_path)
        worker.ports[name] = other.getsockname()[1]
        with worker:
            assert worker.wait() == 2
            assert f"worker.{name}_port" in worker.log()
            assert str(worker.ports[name]) in worker.log()
            assert "Traceback" not in worker.log()


def test_a_store_that_is_away_at_the_start_is_said_and_awaited(tmp_path: Path) -> None:
    """The worker is up, says what is missing without a traceback, and joins when it comes."""
    store = Valkey()
    with WorkerProcess(tmp_path, redis_url=store.url) as worker:
        worker.wait_up()
        worker.wait_said("store unreachable")
        assert worker.get("/healthz")[0] == 200
        assert worker.get("/readyz")[0] == 503
        store.start()
        try:
            worker.wait_said("store reachable")
        finally:
            store.close()
        assert "Traceback" not in worker.log()
