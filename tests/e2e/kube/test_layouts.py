"""Both layouts of Services through real Envoy: each pool is picked for by its own picker."""

import asyncio

import pytest

from fleet.local.model_server import SERVED_BY
from fleet.model import PoolRef
from tests.slice_estate import SliceEstate
from tests.slice_gateway import WAYS

pytestmark = [pytest.mark.asyncio(loop_scope="package"), pytest.mark.timeout(180)]

EACH = 4
"""Requests of a kind to a pool."""


async def _ask(estate: SliceEstate, way: str, ref: PoolRef, *, body: bool) -> tuple[int, str]:
    """Status, and who served it."""
    url, model = f"{estate.gateway.urls[way]}/{ref}/v1", estate.pools[ref].model
    if body:
        asked = {"model": model, "prompt": "hello", "max_tokens": 1}
        request = estate.http.post(f"{url}/completions", json=asked)
    else:
        request = estate.http.get(f"{url}/models")
    async with request as answer:
        await answer.read()
        return answer.status, answer.headers.get(SERVED_BY, "")


async def _served_by_their_own(estate: SliceEstate) -> int:
    """Ask for every pool by every way, with a body and without; the number of requests."""
    asked = [
        (way, ref, body)
        for way in WAYS
        for ref in estate.pools
        for body in (True, False)
        for _ in range(EACH)
    ]
    answers = await asyncio.gather(*(_ask(estate, way, ref, body=body) for way, ref, body in asked))
    wrong = [
        (*question, *answer)
        for question, answer in zip(asked, answers, strict=True)
        if answer[0] != 200 or not answer[1].startswith(f"{question[1]}-")
    ]
    assert not wrong, f"{len(wrong)} of {len(asked)}: {wrong[:5]}"
    return len(asked)


async def test_each_pool_is_picked_for_by_its_own_service_or_port(estate: SliceEstate) -> None:
    """A Service for each pool, and one Service with a port for each: who is asked for is told by
    Service and port alone, also for a GET without a body. No slice has more than one port."""
    assert {pool.service for pool in estate.pools.values()} > {"shared-epp"}
    assert await _served_by_their_own(estate) == 2 * len(estate.pools) * 2 * EACH
    assert estate.gateway.follower.most_ports == 1


async def test_each_pool_is_picked_for_by_its_own_heir(estate: SliceEstate) -> None:
    """kill -9 of the worker that owns pools of both layouts: all of them are served again by the
    workers that are left, each from its own endpoints, also where connections stick to a Service's
    address. The worker's pod stays, as after a crash of its container.
    """
    name = max(estate.fleet.workers, key=lambda name: len(_owned(estate, name)))
    lost = _owned(estate, name)
    estate.fleet.workers[name].kill()
    await estate.until_owned_by(set(estate.fleet.workers) - {name}, f"{name} is replaced")
    await estate.gateway.until_routed()
    assert await _served_by_their_own(estate) == 2 * len(estate.pools) * 2 * EACH
    assert lost and not _owned(estate, name)
    await estate.fleet.forget_worker(name)
    await estate.fleet.join_worker()


def _owned(estate: SliceEstate, worker: str) -> set[PoolRef]:
    return {ref for ref in estate.pools if estate.owner(ref) == worker}
