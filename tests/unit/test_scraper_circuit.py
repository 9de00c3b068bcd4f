"""The scraper's circuit for each pod, its bounded places, and what ends it: in virtual time."""

import asyncio
import random
from dataclasses import replace

import pytest

from epp_worker.datalayer.metrics_text import EngineMetrics
from epp_worker.datalayer.scraper import BATCH, TICK_SECONDS, Scraper
from epp_worker.scheduling.contract import PickRequest, Refusal
from epp_worker.scheduling.pool import PoolState
from fleet.settings.model import ScrapeSettings
from tests.fake_endpoints import (
    Fetches,
    LoopClock,
    broken,
    pick,
    pool_of,
    refuse,
    scraping,
    traffic,
)

pytestmark = pytest.mark.looptime


@pytest.mark.parametrize("why", ["refused", "broken", "hang"])
async def test_a_pod_that_becomes_ready_anew_is_tried_at_once(why: str) -> None:
    """It has failed for a minute and is asked every 5 s by now; its container restarts, Ready goes
    and comes: it is read in that moment, and what was held against it is forgotten
    (llm-d-fast-model-actuation#629)."""
    fetches, pool = Fetches(), pool_of("p", 2)
    bad, well = (state.endpoint for state in pool.endpoints())
    if why == "hang":
        fetches.hangs.add(bad.address)
    else:
        fetches.answer[bad.address] = refuse if why == "refused" else broken
    async with scraping(fetches, pool) as scraper:
        await traffic([pool], 10, 60)
        assert scraper.endpoints_failing() == 1
        pool.set_endpoints([well])
        scraper.refresh(pool)
        assert scraper.endpoints_failing() == 0
        await traffic([pool], 10, 1)
        fetches.answer.clear()
        fetches.hangs.clear()
        before = fetches.count[bad.address]
        pool.set_endpoints([bad, well])
        scraper.refresh(pool)
        await asyncio.sleep(0.002)
        assert fetches.count[bad.address] == before + 1
        (anew, _) = pool.endpoints()
        assert (anew.failures, anew.refused, anew.waiting) == (0, False, 0.0)
        chosen = await traffic([pool], 10, 20)
        assert chosen[bad.address] > 50


async def test_a_flip_of_readiness_that_nobody_saw_counts_too() -> None:
    """Between two looks at the API server the pod was not ready and is again: only the time of its
    condition has changed. Its state stays, and it is tried at once (production-stack#1091)."""
    fetches, pool = Fetches(), pool_of("p", 2)
    bad, well = (state.endpoint for state in pool.endpoints())
    fetches.answer[bad.address] = refuse
    async with scraping(fetches, pool) as scraper:
        await traffic([pool], 10, 60)
        (state, _) = pool.endpoints()
        fetches.answer.clear()
        before = fetches.count[bad.address]
        pool.set_endpoints([replace(bad, ready_since="2026-01-01T00:00:00Z"), well])
        scraper.refresh(pool)
        await asyncio.sleep(0.002)
        assert fetches.count[bad.address] == before + 1
        assert (state.failures, state.refused, state.waiting) == (0, False, 0.0)


@pytest.mark.parametrize("why", ["refused", "broken", "hang"])
async def test_all_pods_unreadable_is_no_reason_to_refuse(why: str) -> None:
    """A network policy blocks the scrapes of a whole pool, not its traffic: every pick names a
    pod, all pods get their share, and a single readable one gets it all (inference-extension#336).
    """
    fetches, pool = Fetches(), pool_of("p", 4)
    addresses = [state.address for state in pool.endpoints()]
    if why == "hang":
        fetches.hangs.update(addresses)
    else:
        fetches.answer = dict.fromkeys(addresses, refuse if why == "refused" else broken)
    async with scraping(fetches, pool):
        await traffic([pool], 5, 120)
        chosen = await traffic([pool], 20, 20)
        assert sum(chosen.values()) == 400
        assert set(chosen) == set(addresses)
        fetches.hangs.discard(addresses[2])
        fetches.answer.pop(addresses[2], None)
        await traffic([pool], 20, 8)
        chosen = await traffic([pool], 20, 5)
        assert set(chosen) == {addresses[2]}


async def test_many_are_begun_a_few_at_a_time() -> None:
    """200 endpoints that are due together are begun in small batches, so that their answers do not
    stand between two picks, and all within their interval."""
    fetches, pool = Fetches(), pool_of("p", 200)
    settings = ScrapeSettings(max_in_flight=500)
    fetches.hangs = {state.address for state in pool.endpoints()}
    async with scraping(fetches, pool, settings=settings):
        before = 0
        for _ in range(200 // BATCH):
            await asyncio.sleep(TICK_SECONDS * 1.01)
            assert fetches.total - before <= 2 * BATCH
            before = fetches.total
        await asyncio.sleep(0.01)
        assert fetches.total == 200


async def test_nobody_is_read_twice_at_once() -> None:
    """A slow pod of a busy pool: its next scrape waits for the end of this one, and longer each
    time (the connection refuses a second fetch)."""
    fetches, pool = Fetches(), pool_of("p", 3)
    slow = next(iter(pool.endpoints())).address
    fetches.hangs = {slow}
    async with scraping(fetches, pool):
        await traffic([pool], 100, 20)
        assert 4 <= fetches.count[slow] <= 9


async def test_a_changed_engine_label_counts_from_the_next_scrape() -> None:
    """The same pod at the same address, said to be another engine."""
    fetches, pool = Fetches(), pool_of("p", 1)
    (state,) = pool.endpoints()
    async with scraping(fetches, pool) as scraper:
        await traffic([pool], 10, 1)
        assert fetches.engines[state.address] == "vllm"
        pool.set_endpoints([replace(state.endpoint, engine="sglang")])
        scraper.refresh(pool)
        await traffic([pool], 10, 1)
        assert fetches.engines[state.address] == "sglang"


async def test_what_a_page_no_longer_has_is_unknown_again() -> None:
    """Adapters and blocks, like queues and caches (inference-extension#495)."""
    fetches, pool = Fetches(), pool_of("p", 1)
    (state,) = pool.endpoints()
    full = EngineMetrics(1, 2, 0.5, 0, frozenset({"a"}), frozenset({"b"}), 4, 16, 100)
    fetches.answer[state.address] = lambda: full
    async with scraping(fetches, pool):
        await traffic([pool], 10, 1)
        assert (state.lora_running, state.lora_waiting) == (full.lora_running, full.lora_waiting)
        assert (state.lora_max, state.block_size, state.blocks) == (4, 16, 100)
        fetches.answer[state.address] = lambda: EngineMetrics(1, 2, 0.5, 0)
        await traffic([pool], 10, 1)
        assert not state.lora_running
        assert not state.lora_waiting
        assert (state.lora_max, state.block_size, state.blocks) == (None, None, None)


async def test_a_fault_of_ours_ends_it() -> None:
    """What is no failed scrape but a mistake in this program ends `run`, which takes the process
    to not-ready, instead of leaving figures to grow old silently."""
    fetches, pool = Fetches(), pool_of("p", 2)
    (state, _) = pool.endpoints()

    class Broken:
        busy_seconds = 0.0

        def fetch(self, _engine: object, done: object) -> None:
            assert callable(done)
            done(KeyError("a mistake"))

        def cancel(self) -> None: ...

        def close(self) -> None: ...

    scraper = Scraper(
        ScrapeSettings(), clock=LoopClock(), rng=random.Random(1), connect=lambda *_: Broken()
    )
    scraper.add(pool)
    with pytest.raises(KeyError):
        await scraper.run()
    assert state.metrics_at == float("-inf")
    assert fetches.total == 0


async def test_a_pick_never_waits_for_a_scrape() -> None:
    """The first pick of a pool that has been idle for a minute has its answer at once; the scrape
    it asks for serves those that follow."""
    fetches, pool = Fetches(), pool_of("p", 4)
    async with scraping(fetches, pool):
        await asyncio.sleep(25)
        fetches.hangs = {state.address for state in pool.endpoints()}
        before = fetches.total
        assert fresh(pool) > 20
        pick(pool)
        assert fetches.total == before
        await asyncio.sleep(0.001)
        assert fetches.total == before + 4


def fresh(pool: PoolState) -> float:
    """The age of what a pick would rest on, after one."""
    answer = pool.pick(PickRequest("m", None, lambda _: None))
    assert not isinstance(answer, Refusal)
    answer.release()
    now = asyncio.get_running_loop().time()
    return min(now - state.metrics_at for state in pool.endpoints())
