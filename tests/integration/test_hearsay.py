"""Workers that start while no leader and no store tells them anything, among others that know."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from epp_worker.hearsay.seeds import Seeds
from epp_worker.neighbourhood import listen_to_peers
from fleet.clock import SystemClock
from fleet.control.messages import Assign
from fleet.model import Hold
from fleet.store.memory import MemoryStore
from tests.neighbours import AUTHORITY, GROUP, POD, Neighbourhood, neighbourhood, settings
from tests.worker_inprocess import (
    Gateway,
    Running,
    TestLeader,
    group_of,
    running_worker,
    until,
)

CLOCK = SystemClock()
OTHER = group_of("pool-b")


@asynccontextmanager
async def leaderless(folder: Path) -> AsyncIterator[Neighbourhood]:
    """worker-1 and worker-2, as a leader left them that is gone.

    worker-0 owned pool a, with worker-1 as its stand-by; worker-2 owns pool b.
    """
    async with neighbourhood(folder, 3) as made:
        await made.assign(1, 7, owner="worker-0", pool_a=Hold.STANDBY)
        await made.assign(2, 7, pool_b=Hold.OWNER)
        await made.leave()
        yield made


@asynccontextmanager
async def newcomer(
    folder: Path, made: Neighbourhood, *others: int, worker_id: str = "worker-0"
) -> AsyncIterator[Running]:
    """A worker that starts now; `others` are those that it can find."""
    addresses = ",".join(made[number].worker.addresses.internal for number in others)
    own = settings(peers=addresses)
    async with running_worker(folder, worker_settings=own, worker_id=worker_id) as running:
        yield running


async def test_a_worker_gets_its_groups_back_from_its_peers(tmp_path: Path) -> None:
    """It serves them, it is ready, and it knows where the others are."""
    async with leaderless(tmp_path) as made, newcomer(tmp_path, made, 1, 2) as running:
        worker = running.worker
        assert worker.unready() == "no leader has said yet what to hold"
        await until(lambda: worker.unready() is None, "readiness")
        holdings = worker.holdings
        assert holdings.holds() == {GROUP: Hold.OWNER}
        assert (holdings.applied, holdings.hearsay) == ((1, 7), True)
        await until(lambda: all(report.synced for report in holdings.reports()), "the pods")
        mine = Gateway(worker.addresses.ext_proc, AUTHORITY)
        assert await mine.pick() == POD + ":8000"
        assert not any(worker.figures().strays.values())
        theirs = Gateway(worker.addresses.ext_proc, "pool-b-epp.ns1.svc:9002")
        assert await theirs.pick() == "10.0.0.2:8000"
        assert worker.figures().strays["forwarded"] == 1
        await mine.close()
        await theirs.close()


async def test_without_peers_it_holds_what_comes_and_is_not_ready(tmp_path: Path) -> None:
    """Nobody can be asked: the stream waits, and is served when a leader comes."""
    async with leaderless(tmp_path) as made, newcomer(tmp_path, made) as running:
        worker = running.worker
        gateway = Gateway(worker.addresses.ext_proc, AUTHORITY)
        pick = asyncio.create_task(gateway.pick())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(pick), 2.0)
        assert not pick.done()
        assert worker.unready() is not None
        assert (worker.holdings.told, len(worker.gate)) == (False, 1)
        leader = TestLeader(worker.addresses.internal, 2)
        await leader.connect()
        await leader.say(Assign(running.share(1, epoch=2, pool_a=Hold.OWNER)))
        assert await pick == POD + ":8000"
        await leader.close()
        await gateway.close()


async def test_a_stream_that_came_first_is_served_by_what_peers_say(tmp_path: Path) -> None:
    """It waited less than its time."""
    async with leaderless(tmp_path) as made, newcomer(tmp_path, made, 1) as running:
        gateway = Gateway(running.worker.addresses.ext_proc, AUTHORITY)
        assert await gateway.pick() == POD + ":8000"
        assert running.worker.figures().strays["held"] == 1
        await gateway.close()


@pytest.mark.parametrize(
    ("version", "epoch", "applied"),
    [(7, 1, (1, 7)), (8, 1, (1, 8)), (1, 2, (2, 1)), (6, 1, None)],
)
async def test_a_leaders_word_takes_the_place_of_what_peers_say(
    tmp_path: Path, version: int, epoch: int, applied: tuple[int, int] | None
) -> None:
    """Of the same version or a higher one; an older one changes nothing."""
    async with leaderless(tmp_path) as made, newcomer(tmp_path, made, 1, 2) as running:
        holdings = running.worker.holdings
        await until(lambda: holdings.told, "the peers' answers")
        leader = TestLeader(running.worker.addresses.internal, epoch)
        await leader.connect()
        share = running.share(version, epoch, "worker-1", pool_b=Hold.STANDBY)
        await leader.say(Assign(share))
        if applied is not None:
            await leader.report_when(lambda report: report.version == applied)
            await until(lambda: OTHER in holdings.holds(), "the leader's share")
            assert holdings.hearsay is False
        else:
            await leader.report_when(lambda report: report.version == (1, 7))
            assert holdings.holds() == {GROUP: Hold.OWNER}
            assert holdings.hearsay is True
        await leader.close()


async def test_peers_change_nothing_once_a_leader_has_spoken(tmp_path: Path) -> None:
    """Neither what is held, nor whom it belongs to; also when they know a higher version."""
    async with leaderless(tmp_path) as made, newcomer(tmp_path, made, 1, 2) as running:
        leader = TestLeader(running.worker.addresses.internal, 1)
        await leader.connect()
        share = running.share(3)
        await leader.say(Assign(share))
        await leader.report_when(lambda report: report.version == (1, 3))
        await leader.close()
        await running.worker.hearsay.once()
        assert running.worker.holdings.applied == (1, 3)
        assert len(running.worker.holdings) == 0


async def test_the_stores_share_counts_for_more(tmp_path: Path) -> None:
    """The store comes back with a share of the same version."""
    async with leaderless(tmp_path) as made, newcomer(tmp_path, made, 1) as running:
        holdings = running.worker.holdings
        await until(lambda: holdings.told, "the peers' answers")
        running.worker.apply(running.share(7, 1, "worker-1", pool_b=Hold.STANDBY))
        assert holdings.hearsay is False
        assert holdings.holds()[OTHER] is Hold.STANDBY


async def test_peers_that_answer_no_more_take_nothing_away(tmp_path: Path) -> None:
    """Asked again, only the one answers that knows nothing of the group."""
    async with leaderless(tmp_path) as made, newcomer(tmp_path, made, 1, 2) as running:
        worker = running.worker
        await until(lambda: worker.holdings.told, "the peers' answers")
        seeds = Seeds(made[2].worker.addresses.internal, MemoryStore(CLOCK, running.server))
        fewer = listen_to_peers(worker, seeds)
        await fewer.once()
        assert worker.holdings.holds() == {GROUP: Hold.OWNER}
        assert set(worker.peers.all()) == {"worker-1", "worker-2"}


async def test_a_peer_that_was_told_nothing_tells_nothing(tmp_path: Path) -> None:
    """A young fleet: nobody is ready before its first leader."""
    own = settings()
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(
            running_worker(tmp_path, worker_settings=own, worker_id="worker-1")
        )
        peers = settings(peers=first.worker.addresses.internal)
        second = await stack.enter_async_context(
            running_worker(tmp_path, worker_settings=peers, worker_id="worker-0")
        )
        await second.worker.hearsay.once()
        assert second.worker.peers.get("worker-1") is not None
        assert second.worker.unready() == "no leader has said yet what to hold"
        assert second.worker.holdings.told is False


async def test_another_worker_learns_that_nothing_is_its_own(tmp_path: Path) -> None:
    """It is ready, holds nothing, and passes on what comes."""
    async with (
        leaderless(tmp_path) as made,
        newcomer(tmp_path, made, 1, 2, worker_id="worker-8") as running,
    ):
        await until(lambda: running.worker.unready() is None, "readiness")
        assert len(running.worker.holdings) == 0
        gateway = Gateway(running.worker.addresses.ext_proc, "pool-b-epp.ns1.svc:9002")
        assert await gateway.pick() == "10.0.0.2:8000"
        await gateway.close()
