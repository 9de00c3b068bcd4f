"""Objectives and rewrites reach the pools they speak of, and leave them."""

import asyncio
from dataclasses import replace

import pytest

from epp_worker.intents import FIRST_LISTS_SECONDS, IntentIndex
from fleet.model import Objective, ObjectRef, Pool, PoolRef, PoolReference, Rewrite, Rule, Target
from fleet.model.rewrites import MAX_NAMES, NO_INTENTS
from tests.memory_source import MemorySource

GROUP = "inference.networking.k8s.io"
A, B = PoolReference("ns1", "a", GROUP), PoolReference("ns1", "b", GROUP)


def pool(reference: PoolReference) -> Pool:
    return Pool(PoolRef(reference.namespace, reference.name), "u", {}, (8000,), None)


def objective(priority: int, of: PoolReference = A) -> Objective:
    return Objective(ObjectRef("ns1", "urgent"), "u", of, priority)


def rewrite(target: str, of: PoolReference = A) -> Rewrite:
    return Rewrite(ObjectRef("ns1", "r"), "u", of, (Rule((Target(target),)),))


async def test_they_come_change_move_and_go() -> None:
    """Each change tells of the pools that it concerns, and of no other."""
    source, told = MemorySource(objective(3)), list[PoolReference]()
    index = IntentIndex(source, told.append)
    await index.start()
    assert told == [A]
    assert index.of(pool(A)).priority("urgent") == 3
    assert index.of(pool(B)) is NO_INTENTS
    source.put(replace(objective(3), priority=-1), rewrite("x"))
    assert index.of(pool(A)).priority("urgent") == -1
    assert index.of(pool(A)).target("m", lambda: 0.0) == "x"
    told.clear()
    source.put(objective(5, B))
    assert set(told) == {A, B}
    assert index.of(pool(A)).priority("urgent") == 0
    assert index.of(pool(B)).priority("urgent") == 5
    source.remove(rewrite("x"), objective(5, B))
    assert index.of(pool(A)) is index.of(pool(B)) is NO_INTENTS
    index.close()


async def test_a_pool_of_the_older_group_is_another_one() -> None:
    """They name pools by group too."""
    index = IntentIndex(MemorySource(objective(3)), lambda _: None)
    await index.start()
    old = replace(pool(A), api_version="inference.networking.x-k8s.io/v1alpha2")
    assert index.of(old) is NO_INTENTS
    index.close()


@pytest.mark.looptime
async def test_a_worker_does_not_wait_for_ever() -> None:
    """No list, as without the permission: pools are served all the same."""
    index = IntentIndex(MemorySource(listed=False), lambda _: None)
    loop = asyncio.get_running_loop()
    began = loop.time()
    await index.start()
    assert loop.time() - began == pytest.approx(FIRST_LISTS_SECONDS, abs=0.1)
    index.close()


async def test_rewrites_that_are_left_out_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """And again when it has been good in between."""
    large = Rule(tuple(Target(f"t{n}") for n in range(MAX_NAMES + 1)))
    source = MemorySource(replace(rewrite("x"), rules=(large,)))
    index = IntentIndex(source, lambda _: None)
    await index.start()
    for created in (1.0, 2.0):
        assert index.of(pool(A)).left_out == 1
        source.put(replace(rewrite("x"), rules=(large,), created=created))
    assert caplog.text.count("rewrites left out") == 1
    source.put(rewrite("x"))
    assert index.of(pool(A)).left_out == 0
    source.put(replace(rewrite("x"), rules=(large,)))
    assert index.of(pool(A)).left_out == 1
    assert caplog.text.count("rewrites left out") == 2
    index.close()
