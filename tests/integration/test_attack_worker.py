"""A worker under attack on real sockets: another gateway's requests are answered all along, what
the attacker held is given back, and the log stays short."""

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from epp_worker.http2 import frames
from fleet.model import Hold
from fleet.settings import WorkerSettings
from tests.attackers import HELLO, Attacker, data, headers
from tests.http2_peer import grpc, raw
from tests.unit import extproc_messages as make
from tests.worker_inprocess import (
    Gateway,
    Running,
    TestLeader,
    running_worker,
    until,
    write_pool,
)

B = "10.0.0.2:8000"
KIB = 1024
SETTINGS = WorkerSettings(
    host="127.0.0.1",
    ext_proc_port=0,
    health_port=0,
    internal_port=0,
    http_port=0,
    max_body_bytes=64 * KIB,
    max_buffered_bytes=256 * KIB,
    stray_hold_streams=16,
)


@dataclass
class Scene:
    """A worker that owns both pools, and a gateway of pool-b that must not notice anything."""

    running: Running
    bystander: Gateway

    async def bystander_is_served(self) -> None:
        """Ten requests in a row."""
        for _ in range(10):
            assert await self.bystander.pick() == B

    async def nothing_is_held(self) -> None:
        """Every gauge is back where it was: the bystander's connection is all there is."""
        counters = self.running.worker.counters
        await until(lambda: counters.streams_open == 0, "no stream open")
        figures = self.running.worker.figures()
        assert sum(sum(pool.values()) for pool in figures.inflight.values()) == 0
        assert figures.strays_waiting == 0


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    """As `Scene` says."""
    write_pool(tmp_path, "pool-a", "10.0.0.1")
    write_pool(tmp_path, "pool-b", "10.0.0.2")
    async with running_worker(tmp_path, worker_settings=SETTINGS) as running:
        leader = TestLeader(running.worker.addresses.internal, 1)
        await leader.connect()
        await leader.assign(running.share(1, pool_a=Hold.OWNER, pool_b=Hold.OWNER))
        bystander = Gateway(running.worker.addresses.ext_proc, "pool-b-epp.ns1.svc:9002")
        yield Scene(running, bystander)
        await bystander.close()
        await leader.close()


HALF = grpc(make.request_headers(), make.request_body(b'{"model": "m", "x": "' + b"a" * 40 * KIB))


@pytest.mark.parametrize("ending", ["reset", "lost", "goaway"])
async def test_half_sent_bodies_starve_nobody(scene: Scene, ending: str) -> None:
    """20 bodies of 40 KiB that never end are more than the worker takes: it turns them away, not
    the bystander, and has room for all again however the attacker goes."""
    attacker = await Attacker.connect(scene.running.worker.addresses.ext_proc)
    streams = range(1, 41, 2)
    await attacker.send(HELLO)
    for stream_id in streams:
        await attacker.send(headers(stream_id, "pool-a-epp.ns1.svc:9002") + data(stream_id, HALF))
    await until(lambda: scene.running.worker.picks.by_outcome["429"] > 0, "some are turned away")
    await scene.bystander_is_served()
    if ending == "goaway":
        await attacker.send(frames.goaway(0, 0))
    if ending != "lost":
        await attacker.send(b"".join(frames.rst_stream(one, 8) for one in streams))
    else:
        attacker.close()
    await scene.nothing_is_held()
    await scene.bystander_is_served()
    attacker.close()


async def test_half_sent_messages_starve_nobody(scene: Scene) -> None:
    """The same with gRPC messages that are announced and never completed."""
    attacker = await Attacker.connect(scene.running.worker.addresses.ext_proc)
    await attacker.send(HELLO)
    half = b"\0" + (64 * KIB).to_bytes(4, "big") + b"a" * 40 * KIB
    for stream_id in range(1, 41, 2):
        await attacker.send(headers(stream_id, "pool-a-epp.ns1.svc:9002") + data(stream_id, half))
    refused = scene.running.worker.counters.streams_total
    await until(lambda: refused[8] > 0, "some are turned away")
    await scene.bystander_is_served()
    attacker.close()
    await scene.nothing_is_held()


async def test_made_up_pools_take_half_of_the_places(scene: Scene) -> None:
    """Streams of pools that nobody has wait within bounds; those that are here never notice."""
    attacker = await Attacker.connect(scene.running.worker.addresses.ext_proc)
    await attacker.send(HELLO)
    for stream_id in range(1, 101, 2):
        await attacker.send(headers(stream_id, f"x{stream_id}.y.svc:9002"))
    gate = scene.running.worker.gate
    await until(lambda: gate.counts.failed == 42, "all that are too many are refused")
    assert len(gate) == 8
    await scene.bystander_is_served()
    attacker.close()
    await scene.nothing_is_held()
    assert len(gate) == 0


@pytest.mark.parametrize(
    "noise",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        bytes.fromhex("1603010200010001fc0303") + b"\xa5" * 200,
        frames.PREFACE + b"\xff" * 100,
        HELLO + raw(frames.CONTINUATION, 0, 1, b"x"),
        HELLO + raw(frames.SETTINGS, 0, 0, b"\0\4" + b"\xff" * 4),
        HELLO + frames.ping(b"12345678") * 40_000,
    ],
    ids=["HTTP/1", "TLS", "garbage", "continuation", "window", "pings"],
)
async def test_noise_is_cut_off_and_told_once(
    scene: Scene, noise: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """The connection ends, the bystander's does not, and five of them are one line in the log."""
    caplog.set_level(logging.INFO)
    for _ in range(5):
        attacker = await Attacker.connect(scene.running.worker.addresses.ext_proc)
        try:
            await attacker.send(noise)
            async with asyncio.timeout(20):
                while await attacker.reader.read(64 * KIB):
                    continue
        except ConnectionError:
            pass  # cut off in the middle of it
        attacker.close()
    await scene.bystander_is_served()
    faults = [one for one in caplog.records if one.getMessage() == "connection fault"]
    assert len(faults) == 1
    await scene.nothing_is_held()
    connections = scene.running.worker.counters
    await until(lambda: connections.connections_open == 1, "the attacker is gone")


async def test_a_line_break_in_an_authority_never_reaches_the_log(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    """Control characters are quoted; a thousand refusals are one line."""
    attacker = await Attacker.connect(scene.running.worker.addresses.ext_proc)
    await attacker.send(HELLO)
    for stream_id in range(1, 2_001, 2):
        await attacker.send(headers(stream_id, f"127.0.0.1:{stream_id}\x1b[31m"))
    gate = scene.running.worker.gate
    await until(lambda: gate.counts.failed == 1_000, "all are refused")
    await scene.bystander_is_served()
    refusals = [one for one in caplog.records if one.getMessage() == "stream refused"]
    assert len(refusals) == 1
    assert "\x1b" not in str(vars(refusals[0])["reason"])
    attacker.close()
    await scene.nothing_is_held()
