"""`python -m coordinator` as people and kubelets meet it: start, signals, exit codes, faults."""

import asyncio
import contextlib
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from fleet.settings.model import RedisSettings
from fleet.store.redis import RedisStore
from tests.coordinator_process import TOKEN, CoordinatorProcess, wait_for
from tests.coordinators import manifest
from tests.fake_worker import FakeWorker
from tests.ports import free_port
from tests.valkey import Valkey, running_valkey

BUDGET_SECONDS = 15.0
"""4.5 s, and what a busy machine needs: the simulation is as strict as the promise."""


@pytest.fixture
def valkey() -> Iterator[Valkey]:
    with running_valkey() as server:
        yield server


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Manifests of four pools, and the EDS folder."""
    manifests = tmp_path / "manifests"
    manifests.mkdir()
    for number in range(4):
        (manifests / f"pool-{number}.yaml").write_text(manifest(f"pool-{number}"))
    return manifests, tmp_path / "eds"


@pytest.fixture
def coordinators(
    request: pytest.FixtureRequest, tmp_path: Path, valkey: Valkey, folders: tuple[Path, Path]
) -> Iterator[list[CoordinatorProcess]]:
    """Three coordinators, not started; a parameter is settings of theirs."""
    manifests, eds = folders
    made = [
        CoordinatorProcess(
            tmp_path,
            f"coordinator-{n}",
            valkey.url,
            manifests=manifests,
            eds=eds,
            environment=getattr(request, "param", None),
        )
        for n in range(3)
    ]
    yield made
    for process in made:
        process.kill()


@contextlib.asynccontextmanager
async def workers(url: str, count: int) -> AsyncIterator[list[FakeWorker]]:
    """Fake workers that beat to the store at `url`."""
    store = RedisStore(RedisSettings(url=url), "default")
    made = [await FakeWorker(f"worker-{n}", store, TOKEN).start() for n in range(count)]
    try:
        yield made
    finally:
        for worker in made:
            await worker.kill()
        await store.close()


def owners(document: dict[str, Any]) -> dict[str, list[str]]:
    return {pool["name"]: pool["owners"] for pool in document["pools"]}


def owned(process: CoordinatorProcess, count: int = 4) -> dict[str, Any] | None:
    """The document once it names a leader (map and lease are read apart) and all have owners."""
    document = process.get("/api/v1/map")
    pools = document["pools"] if document and document["leader"] else []
    if len(pools) == count and all(pool["phase"] == "owned" for pool in pools):
        return dict(document)
    return None


async def in_thread(wait: Any) -> Any:
    """Wait for a condition without blocking the fake workers' loop."""
    return await asyncio.to_thread(wait)


async def test_kill_9_of_the_leader_moves_nothing(
    coordinators: list[CoordinatorProcess], valkey: Valkey
) -> None:
    """Within the budget another leads with a higher epoch; every owner stays."""
    async with workers(valkey.url, 3) as fakes:
        for process in coordinators:
            process.start()
        before = await in_thread(
            lambda: wait_for(lambda: owned(coordinators[0]), what="first placement")
        )
        leader_id = before["leader"]["id"]
        leader = next(p for p in coordinators if p.name == leader_id)
        other = next(p for p in coordinators if p.name != leader_id)
        leader.kill()
        began = time.monotonic()
        after = await in_thread(
            lambda: wait_for(
                lambda: (
                    (document := owned(other)) and document["epoch"] > before["epoch"] and document
                ),
                what="a higher epoch",
            )
        )
        assert time.monotonic() - began < BUDGET_SECONDS
        assert owners(after) == owners(before)
        assert [p["since"] for p in after["pools"]] == [p["since"] for p in before["pools"]]
        await in_thread(
            lambda: wait_for(
                lambda: all(w.share.version.epoch >= after["epoch"] for w in fakes),
                what="every worker follows the new leader",
            )
        )


async def test_leader_and_worker_die_together(
    coordinators: list[CoordinatorProcess], valkey: Valkey
) -> None:
    """The next leader finds the refusing ports while it settles: good again within the budget."""
    async with workers(valkey.url, 3) as fakes:
        for process in coordinators:
            process.start()
        before = await in_thread(
            lambda: wait_for(lambda: owned(coordinators[0]), what="first placement")
        )
        leader = next(p for p in coordinators if p.name == before["leader"]["id"])
        other = next(p for p in coordinators if p is not leader)
        leader.kill()
        await fakes[1].kill()
        began = time.monotonic()

        def good_again() -> bool:
            document = owned(other)
            return bool(
                document
                and document["epoch"] > before["epoch"]
                and all("worker-1" not in pool["owners"] for pool in document["pools"])
            )

        await in_thread(lambda: wait_for(good_again, what="no pool at the dead worker"))
        assert time.monotonic() - began < BUDGET_SECONDS


# A machine that stands still for the usual 2 s would have yet another one elected.
@pytest.mark.parametrize(
    "coordinators", [{"EPP_FLEET_ELECTION__TTL_SECONDS": "4"}], ids=["4 s"], indirect=True
)
async def test_a_paused_leader_wakes_to_find_its_writes_refused(
    coordinators: list[CoordinatorProcess], valkey: Valkey
) -> None:
    """SIGSTOP for longer than the lease: the successor's map stands, the sleeper follows it."""
    async with workers(valkey.url, 3) as fakes:
        for process in coordinators:
            process.start()
        before = await in_thread(
            lambda: wait_for(lambda: owned(coordinators[0]), what="first placement")
        )
        leader = next(p for p in coordinators if p.name == before["leader"]["id"])
        other = next(p for p in coordinators if p is not leader)
        leader.signal(signal.SIGSTOP)
        try:
            await in_thread(
                lambda: wait_for(
                    lambda: (d := owned(other)) and d["epoch"] > before["epoch"],
                    what="a successor",
                )
            )
            await fakes[2].kill()
            after = await in_thread(
                lambda: wait_for(
                    lambda: (
                        (d := owned(other))
                        and all("worker-2" not in pool["owners"] for pool in d["pools"])
                        and d
                    ),
                    what="fail-over by the successor",
                )
            )
        finally:
            leader.signal(signal.SIGCONT)

        def agreed() -> bool:
            """Just woken it knows of no leader, or of itself; the other one may be a follower too,
            whose map is newer than its look at the lease."""
            seen, told = leader.get("/api/v1/map"), owned(other)
            return bool(
                seen
                and told
                and seen["epoch"] == after["epoch"]
                and seen["leader"] == told["leader"]
                and told["leader"]["id"] != leader.name
            )

        await in_thread(lambda: wait_for(agreed, what="the sleeper follows"))
        final = other.get("/api/v1/map")
        assert final["epoch"] == after["epoch"], [process.log for process in coordinators]
        assert owners(final) == owners(after)


async def test_drain_through_any_replica(
    coordinators: list[CoordinatorProcess], valkey: Valkey
) -> None:
    """The leader takes the command; a follower shows the way; the worker is emptied."""
    async with workers(valkey.url, 2) as fakes:
        for process in coordinators[:2]:
            process.start()
        before = await in_thread(
            lambda: wait_for(lambda: owned(coordinators[0]), what="first placement")
        )
        leader = next(p for p in coordinators if p.name == before["leader"]["id"])
        assert await asyncio.to_thread(leader.post, "/api/v1/workers/worker-0/drain") == 202
        await in_thread(
            lambda: wait_for(
                lambda: (
                    (d := owned(leader))
                    and all(pool["owners"] == ["worker-1"] for pool in d["pools"])
                ),
                what="all at the other worker",
            )
        )
        assert fakes[0].draining
        assert await asyncio.to_thread(leader.post, "/api/v1/workers/worker-0/drain") == 409
        assert await asyncio.to_thread(leader.post, "/api/v1/workers/nobody/drain") == 404
        assert await asyncio.to_thread(leader.post, "/api/v1/workers/worker-0/undrain") == 202
        metrics = await asyncio.to_thread(leader.text, "/metrics")
        assert "epp_fleet_leader 1.0" in metrics
        assert 'epp_fleet_moves_total{outcome="done",reason="drain"}' in metrics
        assert "epp_fleet_unowned_groups 0.0" in metrics


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_it_stops_in_order(
    number: int, coordinators: list[CoordinatorProcess], valkey: Valkey
) -> None:
    """Exit code 0, the lease released, no traceback, no task left behind."""
    async with workers(valkey.url, 1):
        process = coordinators[0].start()
        await in_thread(lambda: wait_for(lambda: owned(process), what="first placement"))
        process.signal(number)
        assert await asyncio.to_thread(process.wait) == 0
        assert valkey.command("EXISTS", "epp:{default}:leader") == b":0\r\n"
        assert "Traceback" not in process.log
        assert "never retrieved" not in process.log


async def test_without_the_store_it_waits_says_so_and_goes_on_when_it_comes(
    coordinators: list[CoordinatorProcess], valkey: Valkey
) -> None:
    """No traceback, not ready, alive; ready as soon as the store answers."""
    valkey.kill()
    process = coordinators[0].start()
    await in_thread(lambda: wait_for(lambda: process.log.count("WARNING") >= 2, what="it says so"))
    assert process.status("/healthz") == 200
    assert process.status("/readyz") == 503
    assert "Traceback" not in process.log
    valkey.start()
    await in_thread(process.wait_ready)
    assert process.process is not None
    assert process.process.poll() is None


async def test_while_the_store_is_away_reads_are_answered(
    coordinators: list[CoordinatorProcess], valkey: Valkey
) -> None:
    """Static stability: the last map stands and stays ready; nothing moves when it comes back."""
    async with workers(valkey.url, 2) as fakes:
        process = coordinators[0].start()
        before = await in_thread(lambda: wait_for(lambda: owned(process), what="first placement"))
        held = [len(worker.share.entries) for worker in fakes]
        valkey.kill()
        nobody = await in_thread(
            lambda: wait_for(
                lambda: (d := process.get("/api/v1/map")) and d["leader"] is None and d,
                what="nobody is shown as leader",
            )
        )
        assert owners(nobody) == owners(before)
        assert process.status("/readyz") == 200
        valkey.start()
        after = await in_thread(
            lambda: wait_for(
                lambda: (d := owned(process)) and d["epoch"] > before["epoch"] and d,
                what="a higher epoch",
            )
        )
        assert owners(after) == owners(before)
        assert [len(worker.share.entries) for worker in fakes] == held
        assert "Traceback" not in process.log


@pytest.mark.parametrize("which", ["http", "internal"])
def test_a_taken_port_is_a_clear_error(which: str, coordinators: list[CoordinatorProcess]) -> None:
    """Exit code 2 and one line that names the port."""
    process = coordinators[0]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", free_port()))
        taken.listen()
        port = taken.getsockname()[1]
        setattr(process, f"{which}_port", port)
        process.start()
        assert process.wait() == 2
    assert f"127.0.0.1:{port}" in process.log
    assert "Traceback" not in process.log


def test_bad_settings_are_told_one_line_each(
    tmp_path: Path, coordinators: list[CoordinatorProcess]
) -> None:
    """Exit code 2, every problem with its path."""
    config = tmp_path / "settings.yaml"
    config.write_text("coordinator: {tick_seconds: -1}\nelection: {ttl_seconds: no}\n")
    done = subprocess.run(
        [*coordinators[0].command, "--config", str(config)],
        capture_output=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 2
    text = done.stderr.decode()
    assert "coordinator.tick_seconds" in text
    assert "election.ttl_seconds" in text
    assert "Traceback" not in text
