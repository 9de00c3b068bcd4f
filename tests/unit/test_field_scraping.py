"""The scraper in virtual time: its pace, its budget, and pods that fail by the hundred."""

import asyncio
import gc
import itertools
import logging
from collections import Counter
from dataclasses import replace

import pytest

from epp_worker.datalayer import pace
from epp_worker.datalayer.counts import ScrapeCounts
from epp_worker.datalayer.fetch import ScrapeFailed
from epp_worker.datalayer.metrics_text import EngineMetrics
from epp_worker.scheduling.contract import PickRequest, Refusal
from epp_worker.scheduling.endpoint import EndpointState
from fleet.settings.model import ScrapeSettings
from tests.fake_endpoints import Fetches, broken, pick, pool_of, refuse, scraping, traffic

pytestmark = pytest.mark.looptime


@pytest.mark.parametrize(
    ("rate", "least", "most"),
    [(0.0, 2, 3), (1.0, 110, 132), (5.0, 550, 660), (10.0, 1100, 1320), (40.0, 1100, 1320)],
)
async def test_the_interval_follows_the_traffic(rate: float, least: int, most: int) -> None:
    """Twice per request, at most every 50 ms, at least every 30 s: scrapes of one endpoint in
    60 s, after the rate has settled (llm-d-router#337)."""
    fetches, pool = Fetches(), pool_of("p", 1)
    async with scraping(fetches, pool):
        if rate:
            await traffic([pool], rate, 40)
        else:
            await asyncio.sleep(40)
        before = fetches.total
        if rate:
            await traffic([pool], rate, 60)
        else:
            await asyncio.sleep(60)
        assert least <= fetches.total - before <= most


async def test_an_idle_pools_first_pick_hurries_the_scrape() -> None:
    """20 s after the last scrape a pick asks at once; the burst behind it asks 50 ms apart."""
    fetches, pool = Fetches(), pool_of("p", 4)
    async with scraping(fetches, pool):
        await asyncio.sleep(20)
        assert fetches.total == 4
        pick(pool)
        await asyncio.sleep(0.001)
        assert fetches.total == 8
        (one, *_) = pool.endpoints()
        assert asyncio.get_running_loop().time() - one.metrics_at < 0.01
        for _ in range(100):
            pick(pool)  # fresh by now: no reason to hurry
        await asyncio.sleep(0.001)
        assert fetches.total == 8


async def test_pages_without_values_are_not_asked_for_more_than_the_shortest_interval() -> None:
    """A server that reports nothing is always "old": 500 picks a second stay 20 scrapes/s
    (inference-extension#495)."""
    fetches, pool = Fetches(), pool_of("p", 1)
    fetches.answer["10.0.0.1:8000"] = lambda: EngineMetrics(None, None, None, 0)
    async with scraping(fetches, pool):
        await traffic([pool], 500, 2)
        assert fetches.total <= 2 * 20 * 1.15 + 2


@pytest.mark.parametrize("rate", [0.5, 1.0, 3.0])
async def test_scraping_stays_within_its_share_of_a_core(rate: float) -> None:
    """60 pools of 4 endpoints at 2.5 ms a page want 0.6 to 3.6 cores; all together take what they
    may, 0.05, although most picks find their data old and ask for more (llm-d-router#337)."""
    fetches = Fetches()
    fetches.seconds = 0.0025 - pace.FIXED_COST_SECONDS
    pools = [pool_of(f"p{i}", 4, net=i % 250) for i in range(60)]
    settings = ScrapeSettings(budget_ratio=0.05)
    async with scraping(fetches, *pools, settings=settings):
        await traffic(pools, rate, 40)
        before = fetches.total
        await traffic(pools, rate, 80)  # ten rounds or so: they come all together
        cores = (fetches.total - before) * 0.0025 / 80
        assert cores <= 0.05 * 1.35
        assert cores >= 0.05 * 0.5
        slowest = max(
            asyncio.get_running_loop().time() - state.metrics_at
            for pool in pools
            for state in pool.endpoints()
        )
        assert slowest < pools[0].stale_after, "stretched data must not count as overdue"


async def test_200_refusing_pods_cost_little_and_harm_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """All refuse for a minute under traffic: 40 attempts/s, a dozen log lines, the intervals of
    a healthy pool unchanged; when they come up all are read within 7 s
    (inference-extension#365, sglang#37554)."""
    caplog.set_level(logging.INFO)
    fetches, dead, well = Fetches(), pool_of("dead", 200, net=1), pool_of("well", 4, net=2)
    addresses = [state.address for state in dead.endpoints()]
    fetches.answer = dict.fromkeys(addresses, refuse)
    async with scraping(fetches, dead, well) as scraper:
        await traffic([dead, well], 20, 10)  # past the first, quick retries
        before, healthy = Counter(fetches.count), scraper.interval(well)
        await traffic([dead, well], 20, 50)
        grown = fetches.count - before
        assert sum(grown[address] for address in addresses) <= 50 * 40 * 1.1
        assert max(grown[address] for address in addresses) <= 50 / 5 * 1.5
        assert healthy == pytest.approx(0.05, rel=0.3)
        assert scraper.interval(well) == pytest.approx(0.05, rel=0.3)
        assert scraper.endpoints_failing() == 200
        assert len(caplog.records) <= 12
        assert sum("left out" in record.message for record in caplog.records) == 1
        fetches.answer.clear()
        await traffic([dead, well], 20, 7)
        assert scraper.endpoints_failing() == 0
        assert len(caplog.records) <= 36


async def test_a_pods_back_off_doubles_up_to_5_seconds() -> None:
    """Attempts of one failing pod beside good ones, by their distance."""
    fetches, pool = Fetches(), pool_of("p", 3)
    times: list[float] = []

    def fail() -> EngineMetrics:
        times.append(asyncio.get_running_loop().time())
        raise ScrapeFailed("connection failed")

    async with scraping(fetches, pool):
        await traffic([pool], 40, 5)
        fetches.answer["10.0.0.2:8000"] = fail
        await traffic([pool], 40, 40)
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    for gap, expected in zip(gaps, [0.25, 0.5, 1, 2, 4, 5, 5], strict=False):
        assert expected * 0.75 <= gap <= expected * 1.25 + 0.12
    assert len(gaps) >= 8


@pytest.mark.parametrize("why", ["hang", "refused", "broken", "cut"])
async def test_late_success_corrects_the_record(why: str) -> None:
    """Whatever failed for 90 s after Ready, the first good page ends it (sglang#37554)."""
    fetches, pool = Fetches(), pool_of("p", 2)
    late, _ = pool.endpoints()
    if why == "hang":
        fetches.hangs.add(late.address)
    else:
        fetches.answer[late.address] = refuse if why == "refused" else broken
    async with scraping(fetches, pool) as scraper:
        chosen = await traffic([pool], 5, 90)
        assert scraper.endpoints_failing() == 1
        assert chosen[late.address] <= 20, "used as long as nothing was known, not afterwards"
        fetches.hangs.clear()
        fetches.answer.clear()
        await traffic([pool], 10, 8)
        assert scraper.endpoints_failing() == 0
        chosen = await traffic([pool], 10, 20)
        assert chosen[late.address] > 50


async def test_hanging_pods_take_only_their_part_of_the_places() -> None:
    """100 pods accept and never answer: at most 16 of the 64 places; 40 others stay fresh
    (kube-state-metrics#2413)."""
    fetches, bad, well = Fetches(), pool_of("bad", 100, net=1), pool_of("well", 40, net=2)
    fetches.hangs = {state.address for state in bad.endpoints()}
    async with scraping(fetches, bad, well):
        await traffic([bad, well], 5, 10)
        fetches.most_open = 0
        oldest = 0.0
        for _ in range(50):
            pick(bad)
            pick(well)
            await asyncio.sleep(0.2)
            now = asyncio.get_running_loop().time()
            oldest = max(oldest, *(now - state.metrics_at for state in well.endpoints()))
        assert oldest < 1.0
        assert fetches.most_open <= 16 + 40


async def test_a_pod_that_goes_while_it_hangs_is_let_go_at_once() -> None:
    """Three pods hang in their scrape and are deleted: connections closed, nothing asked of them
    again, the others are read on (production-stack#1091)."""
    fetches, pool = Fetches(), pool_of("p", 6)
    gone = [state.address for state in list(pool.endpoints())[:3]]
    fetches.hangs = set(gone)
    async with scraping(fetches, pool) as scraper:
        await asyncio.sleep(0.5)
        assert fetches.open == 3
        pool.set_endpoints([state.endpoint for state in list(pool.endpoints())[3:]])
        scraper.refresh(pool)
        await asyncio.sleep(0.01)
        assert fetches.open == 0
        assert all(fetches.closed[address] for address in gone)
        before = Counter(fetches.count)
        await traffic([pool], 10, 5)
        assert set(fetches.count - before) == {state.address for state in pool.endpoints()}
        assert scraper.endpoints_failing() == 0


async def test_a_wish_older_than_the_removal_brings_no_pool_back() -> None:
    """A first scrape that was asked for before the pool was given up reads nothing: else it would
    be read for ever by a worker that does not hold it."""
    fetches, pool = Fetches(), pool_of("p", 2)
    async with scraping(fetches) as scraper:
        scraper.add(pool)
        wish = scraper.first(pool)
        scraper.remove(pool)
        await wish
        await asyncio.sleep(100)
        assert fetches.total == 0
        assert pool.on_stale is None


async def test_a_burst_on_an_idle_pool_makes_nobody_overdue() -> None:
    """The interval falls from 30 s to 50 ms at once; endpoints that have had no time to be read at
    that pace are not set aside for the first that answers (inference-extension#336)."""
    fetches, pool = Fetches(), pool_of("p", 8)
    async with scraping(fetches, pool):
        await asyncio.sleep(95)
        chosen = await traffic([pool], 400, 1)
        assert len(chosen) == 8
        assert max(chosen.values()) / 50 <= 1.5


async def test_what_scraping_found_is_counted() -> None:
    """Impossible values and pods that are ready but unreadable show in figures, not only in logs
    (erpc#696, sglang#37554)."""
    fetches, pool = Fetches(), pool_of("p", 3)
    fetches.answer["10.0.0.1:8000"] = lambda: EngineMetrics(None, 1.0, None, 2)
    fetches.answer["10.0.0.2:8000"] = broken
    async with scraping(fetches, pool) as scraper:
        await asyncio.sleep(1)
        assert scraper.counts() == ScrapeCounts(
            good=2, failed=1, dropped_values=2, endpoints_failing=1
        )


async def test_500_roll_outs_leave_nothing_behind() -> None:
    """Ten pods, replaced again and again under the same names and addresses, some with requests
    open across it: no state, connection or count of the dead ones stays, and what ends late does
    not bring them back (inference-extension#1289, llm-d-router#1738)."""
    fetches, pool = Fetches(), pool_of("p", 10)
    pods = [state.endpoint for state in pool.endpoints()]
    fetches.hangs = {pods[0].address}
    open_picks = []
    async with scraping(fetches, pool) as scraper:
        for life in range(500):
            picked = pool.pick(PickRequest("m", None, lambda _: None))
            assert not isinstance(picked, Refusal)
            open_picks.append(picked)
            pool.set_endpoints([replace(pod, pod_uid=f"{pod.pod}-{life}") for pod in pods])
            scraper.refresh(pool)
            await asyncio.sleep(0.02)
        assert set(pool.inflight().values()) == {0}
        for pick_ in open_picks:
            pick_.served_by(pods[1].address)
            pick_.release()
        assert set(pool.inflight().values()) == {0}
        del picked, pick_
        open_picks.clear()
        await asyncio.sleep(3)
        gc.collect()
        assert sum(isinstance(one, EndpointState) for one in gc.get_objects()) == 10
        assert fetches.open <= 1
        assert len(asyncio.all_tasks()) <= 3
