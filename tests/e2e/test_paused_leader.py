"""A leader's process that stands still and wakes up within its lease: everything that it heard is
old then, some of what waits in its sockets is read before its first look and some after."""

import asyncio
import signal
import time
from pathlib import Path

from fleet.settings.model import RedisSettings
from fleet.store.redis import RedisStore
from tests.coordinator_process import TOKEN, CoordinatorProcess
from tests.coordinators import manifest
from tests.fake_worker import FakeWorker
from tests.valkey import running_valkey

WORKERS = 6
PAUSED_SECONDS = 3.0
"""Longer than the member TTL of 2 s, shorter than the lease of 60 s."""

WATCHED_SECONDS = 2.5
"""After it: whoever was thought silent on waking would be dead by then."""


def owners(leader: CoordinatorProcess) -> dict[str, list[str]]:
    """Owners by pool; empty while nothing is known."""
    shown = leader.get("/api/v1/map") or {"pools": []}
    return {pool["name"]: pool["owners"] for pool in shown["pools"]}


def states(leader: CoordinatorProcess) -> set[str]:
    """The states that workers are in."""
    shown = leader.get("/api/v1/workers") or {"workers": []}
    return {worker["state"] for worker in shown["workers"]}


async def test_a_leader_that_was_paused_buries_nobody(tmp_path: Path) -> None:
    """It wakes in the same term: no worker is dead, none is told so, and no pool moves
    (kyverno/kyverno#14984: a stopped process wakes and carries on)."""
    manifests = tmp_path / "manifests"
    manifests.mkdir()
    for number in range(WORKERS):
        (manifests / f"p{number}.yaml").write_text(manifest(f"p{number}"))
    environment = {"EPP_FLEET_ELECTION__TTL_SECONDS": "60"}
    with running_valkey() as valkey:
        store = RedisStore(RedisSettings(url=valkey.url), "default")
        workers = [
            await FakeWorker(f"worker-{number}", store, TOKEN).start() for number in range(WORKERS)
        ]
        with CoordinatorProcess(
            tmp_path,
            "coordinator-0",
            valkey.url,
            manifests=manifests,
            eds=tmp_path / "eds",
            environment=environment,
        ) as leader:

            async def shown() -> dict[str, list[str]]:
                return await asyncio.to_thread(owners, leader)

            def settled(found: dict[str, list[str]]) -> bool:
                return len(found) == WORKERS and all(found.values())

            while not settled(before := await shown()):
                assert leader.process is not None
                assert leader.process.poll() is None, leader.log
                await asyncio.sleep(0.05)
            leader.signal(signal.SIGSTOP)
            await asyncio.sleep(PAUSED_SECONDS)
            leader.signal(signal.SIGCONT)
            woke = time.monotonic()
            while time.monotonic() - woke < WATCHED_SECONDS:
                assert "dead" not in await asyncio.to_thread(states, leader), leader.log
                await asyncio.sleep(0.05)
            assert await shown() == before
            assert "worker dead" not in leader.log, leader.log
            assert not [verdict for worker in workers for verdict in worker.verdicts]
            assert {worker.share.version.epoch for worker in workers} == {1}, "another term"
        for worker in workers:
            await worker.kill()
        await store.close()
