"""The loop of list and watch, in virtual time."""

import asyncio
import itertools
import logging
from collections.abc import Callable, Sequence

import pytest

from fleet.errors import KubeForbidden, KubeThrottled
from fleet.kube.listwatch import SLICE, ListWatch
from fleet.kube.listwatch_cache import Delta, Key
from fleet.kube.listwatch_events import Collection
from fleet.kube.listwatch_pace import Pace
from tests.scripted_kube import (
    FOREVER,
    Asked,
    Highest,
    LoopClock,
    Script,
    ScriptedKube,
    event,
    obj,
    page,
)
from tests.watched_numbers import API, AWAY, GONE, number, watched

pytestmark = pytest.mark.looptime


async def test_it_lists_then_watches() -> None:
    """Pages with their tokens; then from the list's version, with bookmarks, for as long as the
    settings say, and our own deadline 10 s later."""
    lists = [page(obj("a"), token="more"), page(obj("b"), version=42)]
    async with watched(lists, selectors={"labelSelector": "x=y"}) as on:
        await asyncio.sleep(1)
        assert on.kube.asked == [
            Asked(0.0, "list", {"labelSelector": "x=y", "limit": "500"}),
            Asked(0.0, "list", {"labelSelector": "x=y", "limit": "500", "continue": "more"}),
            Asked(
                0.0,
                "watch",
                {
                    "labelSelector": "x=y",
                    "resourceVersion": "42",
                    "allowWatchBookmarks": "true",
                    "timeoutSeconds": "300",
                },
            ),
        ]
        assert on.kube.timeouts == [310.0]
        assert on.told == ["+a", "+b"]


async def test_synced_after_the_first_list_was_told() -> None:
    """And only once."""
    seen: list[int] = []
    told: list[str] = []
    async with watched(
        [AWAY, page(obj("a"))], [(AWAY,)], synced=lambda: seen.append(len(told))
    ) as on:
        assert not on.loop.synced
        told = on.told
        await asyncio.sleep(30)
        assert seen == [1]
        assert on.loop.synced


async def test_events_change_what_is_held() -> None:
    """In order; the version is that of the last one that has any."""
    script: Script = (
        event("ADDED", obj("b", 11)),
        event("MODIFIED", obj("a", 12, value=5)),
        event("DELETED", obj("b", 13)),
        event("BOOKMARK", {"metadata": {"resourceVersion": "20"}}),
        event("BOOKMARK", {}),
        1e9,
    )
    async with watched([page(obj("a"))], [script]) as on:
        await asyncio.sleep(1)
        assert on.told == ["+a", "+b", "~a", "-b"]
        condition = on.loop.condition()
        assert condition.version == "20"
        assert (condition.counters.events, condition.counters.bookmarks) == (3, 2)
        assert on.loop.version(Key("ns1", "a")) == "12"


async def test_a_watch_that_ended_in_good_order_is_resumed() -> None:
    """Every 300 s; nothing is listed for half an hour; then all is, while a watch is alive."""
    script: Script = (event("BOOKMARK", {"metadata": {"resourceVersion": "77"}}), 300.0)
    async with watched([page(obj("a"))], [script]) as on:
        await asyncio.sleep(1801)
        assert on.kube.times("list") == [0.0, 1800.0]
        assert on.kube.versions()[:3] == ["10", "77", "77"]
        assert on.loop.condition().counters.failures == 0


async def test_the_timer_of_full_lists_needs_no_word_from_the_watch() -> None:
    """opensandbox-group/OpenSandbox#1533: it has been silent all the time."""
    async with watched([page(obj("a"), obj("b")), page(obj("a"))]) as on:
        await asyncio.sleep(1801)
        assert on.kube.times("list") == [0.0, 1800.0]
        assert on.told == ["+a", "+b", "-b"]


async def test_the_second_full_list_is_no_failure_of_the_watch() -> None:
    """And the next one is due half an hour later."""
    async with watched([page()], pace=Pace(relist_seconds=100.0)) as on:
        await asyncio.sleep(350)
        assert on.kube.times("list") == [0.0, 100.0, 200.0, 300.0]
        assert on.loop.condition().counters.failures == 0


async def test_failing_lists_are_repeated_more_and_more_slowly() -> None:
    """0.2 s, doubled, up to 15 s; nothing is told and nothing removed."""
    async with watched([page(obj("a")), *[AWAY] * 9, page()], [(AWAY,), FOREVER]) as on:
        await asyncio.sleep(30)
        assert on.kube.times("list")[:7] == [0.0, 0.2, 0.6, 1.4, 3.0, 6.2, 12.6]
        assert on.told == ["+a"]
        condition = on.loop.condition()
        assert condition.failing == "no answer"
        assert condition.age_seconds == condition.list_age_seconds == pytest.approx(30.0)


async def test_a_watch_that_is_always_refused_is_no_spin() -> None:
    """kubernetes/kubernetes#133810: that lists succeed in between changes nothing."""
    async with watched([page(obj("a"))], [(GONE,)]) as on:
        await asyncio.sleep(100)
        assert on.kube.times("watch")[:6] == [0.0, 0.0, 0.4, 1.2, 2.8, 6.0]
        assert len(on.kube.asked) < 30


async def test_events_in_the_first_second_prove_nothing() -> None:
    """A server that sends one event and fails is waited for like any other."""
    async with watched([page()], [(event("ADDED", obj("a", 11)), AWAY)]) as on:
        await asyncio.sleep(100)
        assert len(on.kube.asked) < 30


async def test_a_watch_that_lived_begins_a_new_row_of_failures() -> None:
    """Whether it brought anything or not."""
    async with watched([page()], [*[(AWAY,)] * 5, (600.0, AWAY), FOREVER]) as on:
        await asyncio.sleep(1000)
        last, before = on.kube.times("watch")[-1], on.kube.times("watch")[-2]
        assert last - before == pytest.approx(600.2)


async def test_watches_that_end_at_once_are_resumed_slowly() -> None:
    """Without a list, since nothing was lost."""
    async with watched([page()], [()]) as on:
        await asyncio.sleep(100)
        assert on.kube.times("watch")[:5] == [0.0, 0.2, 0.6, 1.4, 3.0]
        assert on.kube.times("list") == [0.0]


async def test_retry_after_is_waited_for() -> None:
    """tomplus/kubernetes_asyncio#235: 8 s and up to a quarter more; the watch is resumed twice
    before all is listed again."""
    busy = KubeThrottled("busy", retry_after_seconds=8.0)
    async with watched([page()], [(busy,)] * 3 + [FOREVER]) as on:
        await asyncio.sleep(60)
        assert on.kube.times("watch") == [0.0, 10.0, 20.0, 30.0]
        assert on.kube.times("list") == [0.0, 30.0]


async def test_a_throttled_list_waits_too() -> None:
    """With nothing else to ask for."""
    busy = KubeThrottled("busy", retry_after_seconds=8.0)
    async with watched([busy, page()]) as on:
        await asyncio.sleep(60)
        assert on.kube.times("list") == [0.0, 10.0]


async def test_pages_get_smaller_while_lists_fail() -> None:
    """A page may be too long to answer in time, or too large to hold."""
    async with watched([*[AWAY] * 7, page(), page()], pace=Pace(relist_seconds=100.0)) as on:
        await asyncio.sleep(130)
        limits = [each.params["limit"] for each in on.kube.asked if each.what == "list"]
        assert limits == ["500", "250", "125", "62", "31", "15", "10", "10", "500"]


async def test_a_failure_of_our_own_is_counted_and_survived(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """keephq/keep#6552: whatever is raised inside, the loop begins anew, loudly."""
    async with watched(
        [page(obj("a")), RuntimeError("ours"), page(obj("b"))], [(AWAY,), FOREVER]
    ) as on:
        await asyncio.sleep(10)
        assert on.names == {"b"}
        assert on.loop.condition().counters.restarts == 1
    assert "list+watch broke; begun anew" in caplog.text


async def test_a_loop_that_died_is_started_again(caplog: pytest.LogCaptureFixture) -> None:
    """keephq/keep#6552: even its own waiting may fail."""

    class Broken(LoopClock):
        broken = 1

        async def sleep(self, seconds: float) -> None:
            if self.broken:
                self.broken -= 1
                raise RuntimeError("no time")
            await super().sleep(seconds)

    async with watched([AWAY, page(obj("a"))], clock=Broken()) as on:
        await asyncio.sleep(10)
        assert on.names == {"a"}
        assert on.loop.condition().counters.restarts == 1
    assert "list+watch died; started again" in caplog.text


async def test_a_lasting_failure_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """kserve/kserve#5750: a missing permission as an error, with the words of whoever refused;
    another failure at once."""
    denied = KubeForbidden("list pods: RBAC lacks it", status=403)
    known = {"resources": [{"name": "things"}]}
    async with watched([*[denied] * 20, *[AWAY] * 20], discovered=known):
        await asyncio.sleep(200)
        logged = [each for each in caplog.records if each.message == "list+watch fails"]
        assert [each.__dict__["error"] for each in logged[:3]] == [str(denied)] * 3
        assert {each.levelno for each in logged[:3]} == {logging.ERROR}
        await asyncio.sleep(300)
    logged = [each for each in caplog.records if each.message == "list+watch fails"]
    errors = [each for each in logged if each.levelno == logging.ERROR]
    warnings = [each for each in logged if each.levelno == logging.WARNING]
    assert len(errors) in (4, 5)
    assert len(warnings) in (3, 4, 5)


async def test_ages() -> None:
    """Of the copy: since anything good; of the list: since a complete one."""
    script: Script = (100.0, event("BOOKMARK", {"metadata": {"resourceVersion": "11"}}), 1e9)
    async with watched([page()], [script]) as on:
        await asyncio.sleep(130)
        condition = on.loop.condition()
        assert condition.age_seconds == pytest.approx(30.0)
        assert condition.list_age_seconds == pytest.approx(130.0)


async def test_a_large_list_is_taken_in_slices() -> None:
    """BerriAI/litellm#31497: 5,000 pods hold up the event loop for no longer than one slice."""
    turns: list[int] = []
    batches: list[int] = []

    async def others(loop: Callable[[], int]) -> None:
        while True:
            turns.append(loop())
            await asyncio.sleep(0)

    kube = ScriptedKube([page(*[obj(f"p{n}") for n in range(5000)]), page()])
    loop = ListWatch(
        kube,
        Collection(API, "things"),
        keep=number,
        told=lambda deltas: batches.append(len(deltas)),
        pace=Pace(relist_seconds=100.0),
        clock=LoopClock(),
        rng=Highest(),
    )
    busy = asyncio.create_task(others(lambda: len(loop.values)))
    loop.start()
    while len(loop.values) < 5000:
        await asyncio.sleep(0)
    steps = [after - before for before, after in itertools.pairwise(turns)]
    assert max(batches) == max(steps) == SLICE
    busy.cancel()
    await asyncio.sleep(101)
    assert len(loop.values) == 0
    assert max(batches) == SLICE
    await loop.close()


async def test_a_burst_of_events_lets_others_run() -> None:
    """What is buffered comes without a turn of the loop."""
    script = [event("ADDED", obj(f"p{n}", n + 11)) for n in range(1000)]
    async with watched([page()], [(*script, 1e9)]) as on:
        seen: set[int] = set()
        while len(on.told) < 1000:
            seen.add(len(on.told))
            await asyncio.sleep(0)
        assert len(seen) >= 1000 // SLICE


async def test_after_stop_nothing_is_told() -> None:
    """Although the list may be in the middle of its slices."""
    async with watched([page(*[obj(f"p{n}") for n in range(1000)])]) as on:
        while not on.told:
            await asyncio.sleep(0)
        count = len(on.told)
        on.loop.stop()
        await asyncio.sleep(1)
        assert len(on.told) == count < 1000
        await on.loop.close()
        await on.loop.close()


async def test_a_listener_may_stop_it() -> None:
    """In the middle of what is buffered already: the very next event is not told any more."""
    script = [event("ADDED", obj(f"p{n}", n + 11)) for n in range(10)]
    told: list[int] = []

    def tell(deltas: Sequence[Delta[int]]) -> None:
        told.append(len(deltas))
        loop.stop()

    loop = ListWatch(
        ScriptedKube([page()], [(*script, 1e9)]),
        Collection(API, "things"),
        keep=number,
        told=tell,
        pace=Pace(),
        clock=LoopClock(),
        rng=Highest(),
    )
    loop.start()
    await asyncio.sleep(1)
    assert told == [1]
    await loop.close()


async def test_a_malformed_object_in_a_list_stops_no_other() -> None:
    """agentgateway/agentgateway#1719: neither one without a name nor one that is no object, and
    nothing is taken to be gone while such are in the list."""
    broken = [{"metadata": {"namespace": "ns1"}}, ["x"], {"metadata": None}]
    lists = [page(obj("a"), obj("b")), page(obj("b"), obj("c"), *broken)]  # type: ignore[arg-type]
    async with watched(lists, [(AWAY,), FOREVER]) as on:
        await asyncio.sleep(1)
        assert on.names == {"a", "b", "c"}
        assert on.loop.condition().skipped == 1
