"""Pools that share a Service learn from their model servers what they serve."""

import asyncio
import dataclasses
import random
from collections.abc import AsyncIterator

import pytest

from epp_worker.catalogue import Catalogue
from epp_worker.datalayer.models import ANSWER_SECONDS, MAX_NAMES, NotTold
from epp_worker.holdings import Holdings
from epp_worker.learning import (
    AGAIN_SECONDS,
    ASK_SECONDS,
    LOOK_SECONDS,
    OPENING_SECONDS,
    ModelLearner,
)
from epp_worker.scheduling.contract import PickRequest, Refusal
from fleet.model import GroupKey, Hold, Pool, PoolId, ShareEntry
from fleet.sources.contract import Kind
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
        self.hang: set[str] = set()

    async def ask(self, address: str) -> frozenset[str]:
        self.asked.append(address)
        if address in self.hang:
            await asyncio.sleep(ANSWER_SECONDS)
            raise NotTold("no answer")
        await self.gate.wait()
        if address not in self.say:
            raise NotTold("status 404")
        return frozenset(self.say[address])


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

    def put(
        self,
        name: str,
        number: int,
        annotations: dict[str, str] | None = None,
        group: GroupKey = SHARED,
    ) -> None:
        pool = dataclasses.replace(pool_of(name, group=group), annotations=annotations or {})
        self.pools[name] = pool
        self.source.put(pool)
        self.source.put(pod_of(f"{name}-0", name, f"10.0.0.{number}"))

    async def hold(self, version: int, hold: Hold) -> None:
        pools: dict[GroupKey, list[PoolId]] = {}
        for pool in self.pools.values():
            assert pool.group is not None
            pools.setdefault(pool.group, []).append(PoolId(pool.ref, pool.uid))
        entries = (ShareEntry(key, hold, tuple(each), "w") for key, each in pools.items())
        self.holdings.apply(share_with(version, *entries))
        await settle()

    def picked(self, model: str, key: GroupKey = SHARED) -> str | int:
        group = self.holdings.get(key)
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
    await asyncio.sleep(OPENING_SECONDS - LOOK_SECONDS)
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


async def test_servers_that_hang_keep_no_other_group_waiting(bench: Bench) -> None:
    """60 of one pool take 2 s for each question; another Service's are asked, now and later."""
    for number in range(60):
        bench.source.put(pod_of(f"a-h{number}", "a", f"10.1.0.{number}"))
        bench.servers.hang.add(f"10.1.0.{number}:8000")
    other = group_of("other")
    bench.put("c", 3, group=other)
    bench.put("d", 4, group=other)
    bench.servers.say = {"10.0.0.3:8000": {"llama"}, "10.0.0.4:8000": {"qwen"}}
    await bench.hold(1, Hold.OWNER)
    await asyncio.sleep(LOOK_SECONDS)
    assert [bench.picked(model, other) for model in ("llama", "qwen")] == ["c", "d"]
    bench.servers.say["10.0.0.4:8000"] = {"qwen-2"}
    await asyncio.sleep(ASK_SECONDS + 2 * LOOK_SECONDS)
    assert bench.picked("qwen-2", other) == "d"


async def test_servers_that_hang_keep_the_other_pool_of_their_service_waiting_shortly(
    bench: Bench,
) -> None:
    """Its new endpoint counts, and an opening group does not wait for all of 60 x 2 s."""
    for number in range(60):
        bench.source.put(pod_of(f"a-h{number}", "a", f"10.1.0.{number}"))
        bench.servers.hang.add(f"10.1.0.{number}:8000")
    bench.servers.say = {"10.0.0.2:8000": {"qwen"}}
    await bench.hold(1, Hold.OPENING)
    await asyncio.sleep(OPENING_SECONDS + LOOK_SECONDS)
    assert bench.synced()
    assert bench.picked("qwen") == "b"
    bench.source.put(pod_of("b-1", "b", "10.0.0.9"))
    bench.servers.say["10.0.0.9:8000"] = {"mistral"}
    await asyncio.sleep(2 * LOOK_SECONDS)
    assert bench.picked("mistral") == "b"


async def test_a_third_pool_is_unknown_until_it_was_asked(bench: Bench) -> None:
    """What it may serve is no fault of the client's until then."""
    bench.servers.say = {"10.0.0.1:8000": {"llama"}, "10.0.0.2:8000": {"qwen"}}
    await bench.hold(1, Hold.OWNER)
    await asyncio.sleep(2 * LOOK_SECONDS)
    bench.servers.gate.clear()
    bench.put("c", 3)
    await bench.hold(2, Hold.OWNER)
    await asyncio.sleep(3 * LOOK_SECONDS)
    assert bench.picked("mistral") == 503
    bench.servers.say["10.0.0.3:8000"] = {"mistral"}
    bench.servers.gate.set()
    await settle()
    assert bench.picked("mistral") == "c"


async def test_a_pools_names_are_bounded_however_many_servers_name_some(bench: Bench) -> None:
    """Each of five names 400 others; those that were known stay."""
    bench.servers.say = {"10.0.0.1:8000": {"llama"}, "10.0.0.2:8000": {"qwen"}}
    await bench.hold(1, Hold.OWNER)
    await asyncio.sleep(2 * LOOK_SECONDS)
    for number in range(5):
        bench.source.put(pod_of(f"a-h{number}", "a", f"10.1.0.{number}"))
        names = {f"m-{number}-{name}" for name in range(400)}
        bench.servers.say[f"10.1.0.{number}:8000"] = names
    await asyncio.sleep(2 * LOOK_SECONDS)
    group = bench.holdings.get(SHARED)
    assert group is not None
    learned = {state.pool.ref.name: state.models or frozenset() for state in group.picker.pools()}
    assert len(learned["a"]) == MAX_NAMES
    assert learned["b"] == frozenset({"qwen"})
    assert bench.picked("llama") == "a"
    for number in range(5):
        bench.source.remove(Kind.POD, "ns", f"a-h{number}")
    await asyncio.sleep(ASK_SECONDS)
    assert group.picker.pools()[0].models == frozenset({"llama"})
