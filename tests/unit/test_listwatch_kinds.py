"""Kinds that are missing, come, go, and are believed to be gone only after a while."""

import asyncio

import pytest

from fleet.kube.contract import Raw
from tests.scripted_kube import obj, page
from tests.watched_numbers import API, AWAY, NOT_FOUND, watched

pytestmark = pytest.mark.looptime


async def test_a_missing_kind_is_empty_and_looked_for() -> None:
    """kubernetes-sigs/gateway-api-inference-extension#1737: it is no failure; discovery is asked
    after 1 s, doubled, up to 30 s."""
    async with watched([NOT_FOUND, page(obj("a"))], discovered=NOT_FOUND) as on:
        await asyncio.sleep(0.5)
        condition = on.loop.condition()
        assert (condition.synced, condition.missing, condition.failing) == (True, True, None)
        await asyncio.sleep(95)
        assert on.kube.times(API) == [0.0, 1.0, 3.0, 7.0, 15.0, 31.0, 61.0, 91.0]
        assert on.kube.times("list") == [0.0]
        assert on.loop.condition().age_seconds == pytest.approx(4.5)
        on.kube.discovered = {"resources": [{"name": "things"}]}
        await asyncio.sleep(30)
        assert on.told == ["+a"]
        assert not on.loop.condition().missing
        assert on.kube.times("watch") == [121.0]


async def test_a_kind_that_came_and_went_is_looked_for_quickly_again() -> None:
    """Each time from 1 s on."""
    lists: list[bytes | Exception] = [NOT_FOUND, page(), NOT_FOUND]
    async with watched(lists, [(10.0, AWAY)], discovered=NOT_FOUND) as on:
        await asyncio.sleep(65)
        on.kube.discovered = {"resources": [{"name": "things"}]}
        await asyncio.sleep(30)
        on.kube.discovered = NOT_FOUND
        await asyncio.sleep(12)
        looks = [each for each in on.kube.times(API) if each > 95]
        assert looks[1] - looks[0] == pytest.approx(1.0)


async def test_while_a_kind_is_missing_nothing_else_is_believed() -> None:
    """A server that does not answer is a failure, though there was no such kind."""
    async with watched([NOT_FOUND, page(obj("a"))], discovered=NOT_FOUND) as on:
        await asyncio.sleep(0.5)
        on.kube.discovered = AWAY
        await asyncio.sleep(10)
        assert on.loop.condition().failing == "no answer"
        assert on.loop.condition().age_seconds > 9
        on.kube.discovered = {"resources": [{"name": "things"}]}
        await asyncio.sleep(10)
        assert on.told == ["+a"]


async def test_a_kind_that_vanished_is_looked_for_three_times_before_its_objects_go() -> None:
    """An API server that starts answers 404 for CRDs for a moment; deleting a CRD deletes its
    objects one by one, so usually none are left."""
    async with watched([page(obj("a")), NOT_FOUND], [(AWAY,)], discovered=NOT_FOUND) as on:
        await asyncio.sleep(2)
        assert on.names == {"a"}
        assert on.loop.condition().failing == "no such kind"
        await asyncio.sleep(2)
        assert on.told == ["+a", "-a"]
        assert on.loop.condition().missing


@pytest.mark.parametrize("discovered", [{"resources": [{"name": "things"}]}, AWAY])
async def test_a_kind_that_discovery_does_not_deny_is_there(discovered: Raw | Exception) -> None:
    """404 from the list alone proves nothing."""
    async with watched([page(obj("a")), NOT_FOUND], [(AWAY,)], discovered=discovered) as on:
        await asyncio.sleep(300)
        assert on.names == {"a"}
        assert on.loop.condition().failing is not None
        assert not on.loop.condition().missing
