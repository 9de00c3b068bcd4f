"""A worker that is told to stop while the store is away: the leader's word on others decides."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from epp_worker.stopping import Departure
from fleet.clock import SystemClock
from fleet.control.messages import Assign
from fleet.model import Hold
from fleet.store.memory import MemoryStore
from tests.coordinators import running_fleet
from tests.coordinators import until as until_true
from tests.valkey import Valkey, running_valkey
from tests.worker_inprocess import Running, TestLeader, running_worker, until, write_pool


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    """A worker over one pool whose store is away."""
    write_pool(tmp_path, "pool-a", "10.0.0.1")
    async with running_worker(tmp_path) as worker:
        worker.server.available = False
        yield worker


def departure(running: Running) -> Departure:
    return Departure(running.worker, MemoryStore(SystemClock(), running.server))


async def led(running: Running, others: bool | None) -> TestLeader:
    """A leader that has given the worker its pool."""
    leader = TestLeader(running.worker.addresses.internal, 1)
    await leader.connect()
    share = running.share(1, pool_a=Hold.OWNER)
    await leader.say(Assign(share, others))
    await leader.report_when(lambda report: report.version == share.version)
    return leader


async def test_it_leaves_at_once_where_the_leader_knows_of_nobody_else(running: Running) -> None:
    """Not after the 32 s that others would be given to take over."""
    leader = await led(running, others=False)
    async with asyncio.timeout(15):
        await departure(running).run()
    await leader.close()


async def test_it_serves_on_while_somebody_could_take_over(running: Running) -> None:
    """It holds its pool until the leader takes that back; a word that changes counts."""
    leader = await led(running, others=True)
    leaving = asyncio.create_task(departure(running).run())
    await leader.report_when(lambda report: report.draining)
    done, _ = await asyncio.wait({leaving}, timeout=0.5)
    assert not done
    await leader.say(Assign(running.share(1, pool_a=Hold.OWNER), False))
    async with asyncio.timeout(15):
        await leaving
    await leader.close()


async def test_the_word_of_a_leader_that_is_gone_counts_no_more(running: Running) -> None:
    """Nor does that of one that does not say."""
    leader = await led(running, others=False)
    assert running.worker.control.others() is False
    await leader.close()
    await until(lambda: running.worker.control.leader() is None, "the stream's end")
    assert running.worker.control.others() is None
    silent = TestLeader(running.worker.addresses.internal, 1)
    await silent.connect()
    assert running.worker.control.others() is None
    await silent.close()


@pytest.fixture(scope="module")
def valkey() -> Iterator[Valkey]:
    with running_valkey() as server:
        yield server


async def test_each_worker_hears_whether_there_is_another(tmp_path: Path, valkey: Valkey) -> None:
    """Two know of each other; one that drains is nobody to take over; a dead one neither."""
    async with running_fleet(tmp_path, valkey.url, workers=2, pools=2) as fleet:
        first, second = fleet.workers["worker-0"], fleet.workers["worker-1"]
        await until_true(lambda: first.others and second.others, what="both know")
        await fleet.leader.app.set_drain("worker-1", True)
        second.changed()
        await until_true(lambda: first.others is False, what="nobody else for worker-0")
        assert second.others is True
        await fleet.leader.app.set_drain("worker-1", False)
        second.changed()
        await until_true(lambda: first.others, what="worker-1 is back")
        await second.kill()
        await until_true(lambda: first.others is False, what="worker-0 is alone")
