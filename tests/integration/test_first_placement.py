"""Cold starts: the first placement is over all workers that start together."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.coordinators import Fleet, until
from tests.valkey import Valkey, running_valkey

POOLS = 30


@pytest.fixture(scope="module")
def server() -> Iterator[Valkey]:
    """One real store."""
    with running_valkey() as valkey:
        yield valkey


@pytest.fixture
def valkey(server: Valkey) -> Valkey:
    """The module's server, emptied."""
    server.command("FLUSHALL")
    return server


async def cold(fleet: Fleet) -> None:
    """A leader that has shown that nobody owns anything."""
    fleet.pools(*[f"pool-{n}" for n in range(POOLS)])
    await fleet.coordinator("coordinator-0")
    await until(lambda: len(fleet.owners()) == POOLS, what="the map is shown")
    assert not any(fleet.owners().values())


async def test_the_first_of_three_workers_does_not_get_everything(
    tmp_path: Path, valkey: Valkey
) -> None:
    """They come a quarter of a second apart: each gets its part at once, and nothing moves
    afterwards (opentelemetry-operator#2477)."""
    fleet = Fleet(tmp_path, valkey.url)
    try:
        await cold(fleet)
        for number in range(3):
            await fleet.worker(f"worker-{number}")
            await asyncio.sleep(0.25)
        owners = await fleet.settled(POOLS)
        counts = Counter(owner for (owner,) in owners.values())
        assert set(counts) == set(fleet.workers)
        assert max(counts.values()) <= 11  # 30 / 3 x 1.08, rounded up
        moves = await fleet.store.moves(1000)
        assert {(move.source, move.reason) for move in moves} == {("", "initial")}
        assert len(moves) == POOLS
    finally:
        await fleet.close()


async def test_a_single_worker_waits_less_than_one_ttl(tmp_path: Path, valkey: Valkey) -> None:
    """From its start until all is owned and acknowledged; heartbeats and looks included."""
    fleet = Fleet(tmp_path, valkey.url)
    try:
        await cold(fleet)
        began = time.monotonic()
        await fleet.worker("worker-0")
        await fleet.settled(POOLS)
        ttl = fleet.settings.membership.ttl_seconds
        assert time.monotonic() - began < ttl + 5.0, "a TTL, and what a busy machine needs"
    finally:
        await fleet.close()
