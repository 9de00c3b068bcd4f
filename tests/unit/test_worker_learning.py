"""Pools that share a Service learn from their model servers what they serve."""

import asyncio
import dataclasses
import random
from collections.abc import AsyncIterator

import pytest

from epp_worker.catalogue import Catalogue
from epp_worker.datalayer.models import NotTold
from epp_worker.holdings import Holdings
from epp_worker.learning import AGAIN_SECONDS, ASK_SECONDS, LOOK_SECONDS, ModelLearner
from epp_worker.scheduling.contract import PickRequest, Refusal
from fleet.model import Hold, Pool, PoolId, ShareEntry
from tests.fake_endpoints import LoopClock
from tests.worker_fakes import (
    FakeScraper,
    FakeSource,
    Tasks,
    group_of,
    pod_of,
    pool_of,
    settle,
    share_with,
)

pytestmark = pytest.mark.looptime
SHARED = group_of("shared")


class Servers:
    """What each address says; who is not in it says nothing."""

    def __init__(self) -> None:
        self.say: dict[str, set[str]] = {}
        self.asked: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def ask(self, address: str) -> frozenset[str]:
        self.asked.append(address)
        await self.gate.wait()
        if address not in self.say:
            raise NotTold("status 404")
        return frozenset(self.say[address])

    async def close(self) -> None:
        """Nothing is open."""


class Bench:
    """Two pools of one Service, held; one pod each."""

    def __init__(self) -> None:
        self.source = FakeSource()
        self.servers = Servers()
        self.tasks = Tasks()
        self.pools: dict[str, Pool] = {}
        loop = asyncio.get_running_loop()
        self.holdings = Holdings(
            Catalogue(self.source, self.tasks.spawn),
            FakeScraper(),
            self.tasks.spawn,
            fleet="f",
            worker="w",
            incarnation="i1",
            quiet_seconds=30.0,
            now=loop.time,
            rng=random.Random(1),
        )
        self.learner = ModelLearner(self.holdings, self.servers, LoopClock())

    def put(self, name: str, number: int, annotations: dict[str, str] | None = None) -> None:
        pool = dataclasses.replace(pool_of(name, group=SHARED), annotations=annotations or {})
        self.pools[name] = pool
        self.source.put(pool)
        self.source.put(pod_of(f"{name}-0", name, f"10.0.0.{number}"))

    async def hold(self, version: int, hold: Hold) -> None:
        pools = tuple(PoolId(pool.ref, pool.uid) for pool in self.pools.values())
        self.holdings.apply(share_with(version, ShareEntry(SHARED, hold, pools, "w")))
        await settle()

    def picked(self, model: str) -> str | int:
        group = self.holdings.get(SHARED)
        assert group is not None
        answer = group.picker.pick(PickRequest(model, None, lambda _: None))
        return answer.status if isinstance(answer, Refusal) else answer.pool.name

    def synced(self) -> bool:
        (report,) = self.holdings.reports()
        return report.synced


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    made.put("a", 1)
    made.put("b", 2)
    await made.holdings._catalogue.start(made.holdings.pools_changed)
    running = asyncio.create_task(made.learner.run())
    await settle()
    yield made
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_servers_are_asked_and_their_words_count(bench: Bench) -> None:
    bench.servers.say = {"10.0.0.1:8000": {"llama", "lora-1"}, "10.0.0.2:8000": {"qwen"}}
    await bench.hold(1, Hold.OWNER)
    await asyncio.sleep(LOOK_SECONDS)
    assert [bench.picked(model) for model in ("llama", "lora-1", "qwen", "x")] == [
        "a", "a", "b", 400,
    ]  # fmt: skip
    assert sorted(bench.servers.asked) == ["10.0.0.1:8000", "10.0.0.2:8000"]


async def test_an_opening_group_waits_for_the_answers(bench: Bench) -> None:
    """So that a planned move changes no answer."""
    bench.servers.say = {"10.0.0.1:8000": {"llama"}, "10.0.0.2:8000": {"qwen"}}
    bench.servers.gate.clear()
    await bench.hold(1, Hold.OPENING)
    await asyncio.sleep(10 * LOOK_SECONDS)
    assert not bench.synced()
    bench.servers.gate.set()
    await settle()
    assert bench.synced()
    assert bench.picked("qwen") == "b"


async def test_servers_that_say_nothing_hold_nothing_up(bench: Bench) -> None:
    """Asked again soon; what nobody says to serve is unknown then."""
    await bench.hold(1, Hold.OPENING)
    await asyncio.sleep(LOOK_SECONDS)
    assert bench.synced()
    assert bench.picked("llama") == 400
    bench.servers.say["10.0.0.1:8000"] = {"llama"}
    await asyncio.sleep(AGAIN_SECONDS + 2 * LOOK_SECONDS)
    assert bench.picked("llama") == "a"


async def test_words_are_kept_and_renewed(bench: Bench) -> None:
    """An adapter comes; a server falls silent; an endpoint goes, and its words with it."""
    bench.servers.say = {"10.0.0.1:8000": {"llama"}, "10.0.0.2:8000": {"qwen"}}
    await bench.hold(1, Hold.OWNER)
    await asyncio.sleep(LOOK_SECONDS)
    bench.servers.say["10.0.0.1:8000"] = {"llama", "lora-2"}
    del bench.servers.say["10.0.0.2:8000"]
    await asyncio.sleep(ASK_SECONDS + 2 * LOOK_SECONDS)
    assert [bench.picked(model) for model in ("lora-2", "qwen")] == ["a", "b"]
    bench.source.put(pod_of("a-0", "a", "10.0.0.9"))
    bench.servers.say["10.0.0.9:8000"] = {"mistral"}
    await asyncio.sleep(2 * LOOK_SECONDS)
    assert [bench.picked(model) for model in ("mistral", "lora-2")] == ["a", 400]


async def test_listed_pools_and_those_alone_are_not_asked() -> None:
    made = Bench()
    made.put("a", 1, {"epp-fleet.dev/models": "llama"})
    made.put("b", 2, {"epp-fleet.dev/models": ""})
    await made.holdings._catalogue.start(made.holdings.pools_changed)
    running = asyncio.create_task(made.learner.run())
    await made.hold(1, Hold.OWNER)
    await asyncio.sleep(2 * ASK_SECONDS)
    assert made.servers.asked == []
    assert (made.picked("llama"), made.picked("x")) == ("a", 400)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
