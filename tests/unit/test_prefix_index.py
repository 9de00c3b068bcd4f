"""The index: the same answers as the router's rule, with an LRU for each endpoint."""

import gc
import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from epp_worker.scheduling.endpoint import EndpointState
from epp_worker.scheduling.prefix import index as index_module
from epp_worker.scheduling.prefix.budget import BLOCK_BYTES, Budget
from epp_worker.scheduling.prefix.index import MAX_UNLISTED, PrefixIndex, identity
from epp_worker.scheduling.prefix.recency import Recency
from tests.prefix_pools import endpoint, endpoints
from tests.prefix_rule import RuleIndex

CAPACITY = 12


def path(*letters: int) -> list[int]:
    """Hashes of a prompt of such blocks: equal beginnings, equal hashes."""
    return [hash(("prompt", letters[: n + 1])) & 0xFFFF_FFFF_FFFF_FFFF for n in range(len(letters))]


def found(index: PrefixIndex, pods: list[EndpointState], chain: list[int]) -> dict[str, int]:
    """Blocks by pod, without zeros."""
    counts = index.counts(chain)
    if counts is None:
        return {}
    lanes = index.lanes(pods)
    return {
        p.endpoint.pod: counts[lane] for p, lane in zip(pods, lanes, strict=True) if counts[lane]
    }


def test_counts_up_to_the_first_block_that_nobody_has() -> None:
    """Pod 0 has three blocks of the prompt, pod 1 two, pod 2 none."""
    pods = endpoints(3)
    index = PrefixIndex(Budget())
    index.listed(pods)
    index.add(pods[0], path(1, 2, 3), 100)
    index.add(pods[1], path(1, 2, 9), 100)
    assert found(index, pods, path(1, 2, 3, 4)) == {"pod-0": 3, "pod-1": 2}
    assert found(index, pods, path(5)) == {}
    assert len(index) == 6


def test_the_least_recently_used_goes_first() -> None:
    """Capacity 4: the first blocks of the older prompt give way; what is used again stays."""
    (pod,) = pods = endpoints(1)
    index = PrefixIndex(Budget())
    index.listed(pods)
    index.add(pod, path(1, 2), 4)
    index.add(pod, path(3, 4), 4)
    index.add(pod, path(1, 2), 4)
    index.add(pod, path(5), 4)
    assert found(index, pods, path(3, 4)) == {}
    assert found(index, pods, path(1, 2)) == {"pod-0": 2}
    assert len(index) == 4


def test_a_server_counts_again_after_a_gap() -> None:
    """Pod 0 lost the beginning, pod 1 has it: the walk goes on and pod 0's rest counts."""
    pods = endpoints(2)
    index = PrefixIndex(Budget())
    index.listed(pods)
    index.add(pods[0], path(1, 2, 3), 3)
    index.add(pods[0], path(7), 3)
    assert found(index, pods, path(1, 2, 3)) == {}
    index.add(pods[1], path(1), 3)
    assert found(index, pods, path(1, 2, 3)) == {"pod-0": 2, "pod-1": 1}


steps = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "add", "leave", "come"]),
        st.integers(0, 3),
        st.lists(st.integers(0, 2), min_size=1, max_size=9),
    ),
    max_size=60,
)


@settings(max_examples=200, deadline=None)
@given(steps)
def test_answers_are_those_of_the_rule(script: list[tuple[str, int, list[int]]]) -> None:
    """Any requests and departures, at a capacity that is always full: equal counts after each step,
    equal contents at the end, equal order of use, and nothing else in memory."""
    pods = endpoints(4)
    index, rule, budget = _run(pods, script)
    for pod in pods:
        known = list(rule.recent.get(pod.endpoint.pod, ()))
        holding = index._of.get(pod)
        assert list(holding.recency.blocks() if holding else ()) == known
        assert holding is None or holding.recency.size == len(known)
    entries = {block for shard in index._shards for block in shard}
    assert entries == set(rule.servers)
    assert budget.used == sum(h.used() for h in index.holdings())


def _run(
    pods: list[EndpointState], script: list[tuple[str, int, list[int]]]
) -> tuple[PrefixIndex, RuleIndex, Budget]:
    budget, here = Budget(), list(pods)
    index, rule = PrefixIndex(budget), RuleIndex(CAPACITY)
    index.listed(here)
    for what, number, letters in script:
        pod, chain = pods[number], path(*letters)
        if what == "add":
            index.add(pod, chain, CAPACITY)
            if pod in here:
                rule.add(pod.endpoint.pod, chain)
        else:
            here = [each for each in here if each is not pod]
            if what == "come":
                here.append(pod)
            else:
                rule.remove(pod.endpoint.pod)
            index.listed(here)
        assert found(index, here, chain) == rule.match(chain)
    return index, rule, budget


paths = st.lists(
    st.tuples(st.integers(0, 1), st.lists(st.integers(0, 7), min_size=1, max_size=8)), max_size=40
)


@settings(max_examples=200, deadline=None)
@given(paths)
def test_hashes_that_collide_do_no_harm(script: list[tuple[int, list[int]]]) -> None:
    """xxhash is no secret: a client can make blocks whose hashes are equal although what is before
    them is not. Answers may be wrong then, but nothing fails, and nothing stays in memory."""
    pods = endpoints(2)
    budget = Budget()
    index = PrefixIndex(budget)
    index.listed(pods)
    for number, chain in script:
        index.add(pods[number], chain, 10)
        for holding in index.holdings():
            assert holding.recency.size == len(list(holding.recency.blocks())) <= 10
    index.listed([])
    assert sum(map(len, index._shards)) == 0
    assert budget.used == 0


def test_long_chains_that_collide_cost_no_time() -> None:
    """All blocks but the second are equal: found by halving. Block by block it took 0.9 s."""
    recency = Recency()
    blocks = list(range(1, 65_536))
    recency.touch(blocks)
    other = [blocks[0], 10**15, *blocks[2:]]
    begun = time.process_time()
    _, new = recency.touch(other)
    assert time.process_time() - begun < 0.3
    assert new[0] == 10**15
    assert len(new) == len(other) - 1


def test_departed_endpoints_are_forgotten_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even while their entries are still being taken out, which happens in small steps: they do not
    count, and they do not carry a walk on."""
    monkeypatch.setattr(index_module, "SWEPT_AT_ONCE", 2)
    monkeypatch.setattr(index_module, "SWEPT_PER_ADD", 2)
    pods = endpoints(2)
    index = PrefixIndex(Budget())
    index.listed(pods)
    index.add(pods[0], path(1, 2, 3, 4, 5, 6), 100)
    index.add(pods[1], path(1), 100)
    index.listed(pods[1:])
    assert found(index, pods[1:], path(1, 2, 3)) == {"pod-1": 1}
    assert len(index) == 1
    again = [pods[1], endpoint(0)]
    index.listed(again)
    assert found(index, again, path(1, 2, 3)) == {"pod-1": 1}
    for number in range(3):
        index.add(pods[1], path(9, number), 100)
    assert sum(map(len, index._shards)) == 1 + 4


def test_an_address_that_another_pod_gets_starts_empty() -> None:
    """Same address, same name, another uid; and another rank of the same pod."""
    index = PrefixIndex(Budget())
    old = endpoint(1, uid="old")
    index.listed([old])
    index.add(old, path(1, 2), 100)
    new, second = endpoint(1, uid="new"), endpoint(1, uid="new", rank=1)
    index.listed([new, second])
    assert found(index, [new, second], path(1, 2)) == {}
    index.add(new, path(1, 2), 100)
    assert found(index, [second, new], path(1, 2)) == {"pod-1": 2}


def test_late_news_of_departed_pods_is_passed_over() -> None:
    """500 roll-outs of ten pods of a StatefulSet: each time all names and addresses are the same,
    and late picks and late news arrive. Nothing is left of them.
    kubernetes-sigs/gateway-api-inference-extension#1289, llm-d/llm-d-router#1738."""
    index = PrefixIndex(Budget())
    before: list[EndpointState] = []
    for life in range(500):
        pods = [endpoint(number, uid=f"{number}-{life}") for number in range(10)]
        index.listed(pods)
        for late in before:
            index.add(late, path(life, 1), 100)
            assert index.find(identity(late.endpoint)) is None
        for pod in pods:
            index.add(pod, path(life), 100)
        before = pods
    assert len(index) == 10
    assert sum(map(len, index._shards)) == 1
    assert index._lanes <= 20
    assert len(index._budget._tenants) <= 40
    assert index._budget.used == sum(h.used() for h in index.holdings())


def test_endpoints_that_are_not_listed_are_bounded() -> None:
    """Others may tell of an endpoint before it is listed here, but not of any number."""
    index = PrefixIndex(Budget())
    told = [index.find(f"uid-{n}/0/10.0.0.1:8000") for n in range(MAX_UNLISTED + 5)]
    assert told.count(None) == 5
    index.listed([])
    assert list(index.holdings()) == []


def test_memory_is_bounded_whatever_comes() -> None:
    """200k-token prompts to a hundred pods, in small blocks: elsewhere an index of gigabytes.
    Here the worker's budget holds, and those that have most give most.
    kubernetes-sigs/gateway-api-inference-extension#2878, vllm-project/aibrix#892."""
    limit = 4000 * BLOCK_BYTES
    budget = Budget(limit)
    small, large = PrefixIndex(budget), PrefixIndex(budget)
    few, many = endpoints(1), endpoints(100)
    small.listed(few)
    large.listed(many)
    small.add(few[0], path(1, 2, 3), 31_250)
    rng = random.Random(1)
    for number in range(300):
        large.add(many[number % 100], [rng.getrandbits(64) for _ in range(250)], 31_250)
        assert budget.used <= limit + 251 * BLOCK_BYTES + 600
    assert len(small) == 3
    assert budget.used == sum(h.used() for i in (small, large) for h in i.holdings())


def test_an_index_that_is_gone_leaves_the_budget() -> None:
    """With its pool, its bytes no longer count and its parts are freed step by step."""
    budget = Budget()
    pods = endpoints(1)
    other = PrefixIndex(budget)
    other.listed(pods)
    index = PrefixIndex(budget)
    index.listed(pods)
    index.add(pods[0], path(*range(50)), 100)
    assert budget.used >= 50 * BLOCK_BYTES
    del index
    gc.collect()
    assert budget.used == 0
    assert budget._buried
    for number in range(60):
        other.add(pods[0], path(number), 100)
    assert not budget._buried
