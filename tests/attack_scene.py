"""A worker under attack on real sockets, and a gateway of another pool that must not notice."""

import asyncio
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleet.model import Hold
from fleet.settings import BoundSettings, WorkerSettings
from tests.attackers import Attacker
from tests.bench.gateway import GatewayLink, body_of, request
from tests.worker_inprocess import Running, TestLeader, running_worker, until, write_pool

KIB = 1024
A, B = "pool-a-epp.ns1.svc:9002", "pool-b-epp.ns1.svc:9002"
WORKER = WorkerSettings(
    host="127.0.0.1",
    ext_proc_port=0,
    health_port=0,
    internal_port=0,
    http_port=0,
    max_body_bytes=64 * KIB,
    max_buffered_bytes=256 * KIB,
    max_streams_per_connection=200,
    stray_hold_streams=16,
)
BOUNDS = BoundSettings(
    max_connections=48,
    max_streams=400,
    max_buffered_bytes_per_pool=128 * KIB,
    max_unsent_bytes=1024 * KIB,
    max_idle_frames=1_000,
    max_unanswered_resets=500,
    preface_seconds=0.3,
    keepalive_seconds=0.3,
    keepalive_timeout_seconds=0.3,
)
CEILING_SECONDS = 2.0
"""No pick may take longer, however busy the machine: what is looked for is a stall."""

_SMALL = request(body_of(1024))
_PICKS = 100


@dataclass
class Scene:
    """A worker that owns both pools, attacked by way of pool-a; the bystander is pool-b's."""

    running: Running
    bystander: GatewayLink

    @property
    def address(self) -> str:
        """Where it is attacked."""
        return self.running.worker.addresses.ext_proc

    async def attacker(self) -> Attacker:
        """One more connection, without a word."""
        return await Attacker.connect(self.address)

    def hits(self, bound: str) -> int:
        """How often somebody has run into a bound."""
        return self.running.worker.bounds.hits()[bound]

    async def picks(self, count: int = _PICKS) -> list[float]:
        """Seconds of as many picks of the bystander, one after the other; each must succeed."""
        return [await self.bystander.pick(B, _SMALL) for _ in range(count)]

    async def during(self, name: str, attack: Coroutine[Any, Any, None]) -> None:
        """Every pick of the bystander succeeds, from the beginning of the attack to its end."""
        quiet = await self.picks()
        attacking = asyncio.create_task(attack)
        noisy = await self.picks()
        while not attacking.done():
            noisy += await self.picks(10)
        await attacking
        assert not self.bystander.failed
        assert not self.bystander.lost
        assert max(noisy) < CEILING_SECONDS
        told = f"p99 {_p99(quiet):.1f} ms quiet, {_p99(noisy):.1f} ms meanwhile"
        sys.stdout.write(f"bystander of {name}: {told}\n")

    async def nothing_is_held(self) -> None:
        """Every gauge is back where it was: the bystander's connection is all there is."""
        worker = self.running.worker
        await until(lambda: worker.counters.streams_open == 0, "no stream open")
        await until(lambda: worker.counters.connections_open == 1, "the attackers are gone")
        figures = worker.figures()
        assert sum(sum(pool.values()) for pool in figures.inflight.values()) == 0
        assert figures.strays_waiting == 0
        assert not any(figures.held_bytes.values())


def _p99(times: list[float]) -> float:
    return sorted(times)[len(times) * 99 // 100] * 1e3


@asynccontextmanager
async def attacked_worker(folder: Path, bounds: BoundSettings = BOUNDS) -> AsyncIterator[Scene]:
    """As `Scene` says."""
    write_pool(folder, "pool-a", "10.0.0.1")
    write_pool(folder, "pool-b", "10.0.0.2")
    async with running_worker(folder, worker_settings=WORKER, bounds=bounds) as running:
        leader = TestLeader(running.worker.addresses.internal, 1)
        await leader.connect()
        await leader.assign(running.share(1, pool_a=Hold.OWNER, pool_b=Hold.OWNER))
        bystander = await GatewayLink.connect(running.worker.addresses.ext_proc)
        yield Scene(running, bystander)
        bystander.close()
        await leader.close()
