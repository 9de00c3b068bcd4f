"""What went wrong elsewhere with prefix-aware picks, replayed on the built-in configuration."""

import random
from collections import Counter
from dataclasses import replace

import pytest

from epp_worker.scheduling.configured import Schedulers
from epp_worker.scheduling.contract import Refusal
from epp_worker.scheduling.pool import PoolState
from epp_worker.scheduling.prefix.slot import PrefixSlot
from fleet.picking import decode
from fleet.picking.choice import Configs
from tests.prefix_pools import endpoint, index_of, pool_of, request

PODS = 8


def pick(pool: PoolState, prompt: bytes) -> str:
    """The pod of a request that stays open."""
    picked = pool.pick(request(prompt))
    assert not isinstance(picked, Refusal)
    return picked.address


@pytest.mark.parametrize("shared", [0.0, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("frozen", [False, True])
def test_a_burst_with_one_prefix_does_not_herd(shared: float, *, frozen: bool) -> None:
    """200 requests at once that share a beginning, all pods equal and their metrics frozen: the pod
    that got the first one has the prefix, and yet is not buried. llm-d/llm-d-router#2515."""
    pool = pool_of(PODS)
    for state in pool.endpoints() if frozen else ():
        state.scraped(waiting=0.0, running=0.0, kv=0.1, at=0.0, inflight=0)
    rng = random.Random(3)
    head = rng.randbytes(int(4096 * shared))
    places = Counter(pick(pool, head + rng.randbytes(4096 - len(head))) for _ in range(200))
    assert len(places) == PODS
    assert max(places.values()) <= 1.5 * 200 / PODS


def test_a_restarted_pod_is_not_taken_for_warm() -> None:
    """A StatefulSet's pod comes back with its name and address: its cache is cold, and the prompts
    that it had go to whoever has them now. kubernetes-sigs/gateway-api-inference-extension#1289."""
    pool = pool_of(2)
    prompt = b"long prompt " * 400
    first = pool.pick(request(prompt))
    assert not isinstance(first, Refusal)
    first.release()
    (warm,) = (s for s in pool.endpoints() if s.address == first.address)
    (cold,) = (s for s in pool.endpoints() if s.address != first.address)
    number = int(warm.endpoint.pod.removeprefix("pod-"))
    pool.set_endpoints([endpoint(number, uid="reborn").endpoint, cold.endpoint])
    assert len(index_of(pool)) == 0
    (reborn,) = (s for s in pool.endpoints() if s is not cold)
    slot = pool.slot("prefix")
    assert isinstance(slot, PrefixSlot)
    assert slot.unnamed is not None
    assert list(slot.unnamed.match(request(prompt), (reborn, cold)).blocks) == [0, 0]


def test_tiny_blocks_and_huge_prompts_stay_small() -> None:
    """Block size 1 and prompts of 200,000 tokens on 100 pods: 3,125 blocks of 64 tokens, of which
    2,048 count, and 31,250 a pod. kubernetes-sigs/gateway-api-inference-extension#2878,
    vllm-project/aibrix#892."""
    pool = pool_of(100)
    rng = random.Random(1)
    for _ in range(20):
        pick(pool, rng.randbytes(800_000))
    assert len(index_of(pool)) == 20 * 2048
    assert max(each.recency.size for each in index_of(pool).holdings()) <= 31_250


def test_who_prefills_has_the_prompt_too() -> None:
    """Prefill and decode apart: both endpoints have the prompt's blocks afterwards, so that the
    next request of the conversation finds either."""
    config = decode(
        """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {type: approx-prefix-cache-producer}
- {type: prefix-cache-scorer}
- {type: prefill-filter}
- {type: decode-filter}
- {type: always-disagg-pd-decider}
- type: disagg-profile-handler
  parameters: {deciders: {prefill: always-disagg-pd-decider}}
schedulingProfiles:
- name: prefill
  plugins: [{pluginRef: prefill-filter}, {pluginRef: prefix-cache-scorer}]
- name: decode
  plugins: [{pluginRef: decode-filter}, {pluginRef: prefix-cache-scorer}]
""",
        name="apart",
    )
    schedulers = Schedulers()
    schedulers.configs = Configs({"default": config})
    pool = pool_of(4, schedulers=schedulers)
    roles = ("prefill", "prefill", "decode", "decode")
    pool.set_endpoints(
        [
            replace(endpoint(number).endpoint, labels={"llm-d.ai/role": role})
            for number, role in enumerate(roles)
        ]
    )
    pick(pool, b"x" * 2048)
    sizes = [each.recency.size for each in index_of(pool).holdings()]
    assert sorted(sizes[:2]) == sorted(sizes[2:]) == [0, 8]
