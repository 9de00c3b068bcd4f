"""The prefix cache: what a pick pays for it, a million entries, and how much it finds."""

import gc
import multiprocessing
import random
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

from epp_worker.scheduling.configured import Schedulers
from epp_worker.scheduling.contract import Refusal
from epp_worker.scheduling.endpoint import EndpointState
from epp_worker.scheduling.prefix.budget import Budget
from epp_worker.scheduling.prefix.index import DEFAULT_CAPACITY, PrefixIndex
from epp_worker.scheduling.prefix.plugins import PrefixCacheScorer
from epp_worker.scheduling.prefix.producer import ApproxPrefixCache
from fleet.picking import decode
from fleet.picking.choice import DEFAULT_NAME, Configs
from fleet.picking.parameters import PrefixCacheScorerParameters, PrefixProducerParameters
from tests.bench.rows import Row
from tests.prefix_pools import context, endpoints, index_of, pool_of, request
from tests.prefix_trace import Ours, Policy, QueueOnly, Random, Rule, served

PICKS = 300
_ANYBODY = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins: [{type: random-picker}]
"""
PAGE = 4096


def _random_chain(rng: random.Random, blocks: int) -> list[int]:
    return [rng.getrandbits(64) for _ in range(blocks)]


def _fill(index: PrefixIndex, pods: Sequence[EndpointState], blocks: int, entries: int) -> float:
    """Prompts of so many blocks to endpoints in turn; the longest one of them, CPU seconds."""
    rng = random.Random(2)
    longest = 0.0
    for number in range(entries // blocks):
        chain = _random_chain(rng, blocks)
        began = time.process_time()
        index.add(pods[number % len(pods)], chain, DEFAULT_CAPACITY)
        longest = max(longest, time.process_time() - began)
    return longest


def _pick_us(pods: int, size: int, shared: float) -> float:
    """What a pick pays, in a full index: hash, look up, score, add, evict; CPU, best tenth."""
    pool = pool_of(pods)
    states = tuple(pool.endpoints())
    _fill(index_of(pool), states, max(8, size // 256), DEFAULT_CAPACITY * pods)
    producer = ApproxPrefixCache(PrefixProducerParameters(), context(pool.slot))
    knows = context(pool.slot, approx_prefix_cache_producer=producer)
    scorer = PrefixCacheScorer(PrefixCacheScorerParameters(), knows)
    rng = random.Random(1)
    common = rng.randbytes(int(size * shared))
    times = []
    for _ in range(PICKS):
        asked = request(common + rng.randbytes(size - len(common)))
        chosen = rng.choice(states)
        began = time.process_time()
        scorer.score(asked, states)
        producer.picked(asked, chosen)
        times.append(time.process_time() - began)
    return sorted(times)[PICKS // 10] * 1e6


def _default_us(pods: int, size: int, shared: float) -> float:
    """What the built-in configuration adds to a pick of anybody, in a full index; CPU."""
    anybody = Schedulers()
    anybody.configs = Configs({DEFAULT_NAME: decode(_ANYBODY, name=DEFAULT_NAME)})
    return _whole_us(pods, size, shared, Schedulers()) - _whole_us(pods, size, shared, anybody)


def _whole_us(pods: int, size: int, shared: float, schedulers: Schedulers) -> float:
    pool = pool_of(pods, schedulers=schedulers)
    states = tuple(pool.endpoints())
    _fill(index_of(pool), states, max(8, size // 256), DEFAULT_CAPACITY * pods)
    for state in states:
        state.scraped(waiting=1.0, running=1.0, kv=0.3, at=0.0, inflight=0)
    rng = random.Random(1)
    common = rng.randbytes(int(size * shared))
    times = []
    for _ in range(PICKS):
        asked = request(common + rng.randbytes(size - len(common)))
        began = time.process_time()
        picked = pool.pick(asked)
        times.append(time.process_time() - began)
        if not isinstance(picked, Refusal):
            picked.release()
    return sorted(times)[PICKS // 10] * 1e6


class _Filled(NamedTuple):
    megabytes: float
    longest_ms: float
    departure_ms: float
    collection_ms: float


def _rss() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def _collection() -> float:
    """CPU seconds of a full garbage collection, the best of three."""
    times = []
    for _ in range(3):
        began = time.process_time()
        gc.collect()
        times.append(time.process_time() - began)
    return min(times)


def _million(blocks: int) -> _Filled:
    """32 endpoints, filled and then turned over once; in a process of its own."""
    before = _rss()
    at_rest = _collection()
    index = PrefixIndex(Budget(1 << 33))
    pods = endpoints(32)
    index.listed(pods)
    longest = _fill(index, pods, blocks, 2_000_000)
    collection = _collection() - at_rest
    size = _rss() - before
    began = time.process_time()
    index.listed(pods[1:])
    departure = time.process_time() - began
    return _Filled(size / 1e6, longest * 1e3, departure * 1e3, collection * 1e3)


def _memory() -> Iterator[Row]:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        usual = process.submit(_million, 8).result()
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        short = process.submit(_million, 1).result()
    yield Row("prefix: 1,000,000 entries, prompts of 2 KiB", usual.megabytes, "MB", 200)
    yield Row("prefix: 1,000,000 entries, prompts of 256 B", short.megabytes, "MB")
    yield Row("prefix: longest pause, 2 KiB", usual.longest_ms, "ms", 10)
    yield Row("prefix: longest pause, 256 B", short.longest_ms, "ms", 10)
    yield Row("prefix: an endpoint departs", usual.departure_ms, "ms", 10)
    yield Row("prefix: garbage collection, the index's part", usual.collection_ms, "ms", 10)


def _found() -> Iterator[Row]:
    policies: dict[str, Policy] = {"random": Random(), "queue only": QueueOnly(), "rule": Rule()}
    rates = {name: served(policy, 6000).hit_rate * 100 for name, policy in policies.items()}
    for name, rate in rates.items():
        yield Row(f"prefix: hit rate, whole trace, {name}", rate, "%")
    same = served(Ours(told=False), 6000).hit_rate * 100
    yield Row("prefix: hit rate, ours, same capacity", same, "%", rates["rule"], at_least=True)
    ours = served(Ours(), 6000).hit_rate * 100
    yield Row("prefix: hit rate, ours, cache reported", ours, "%", rates["rule"], at_least=True)


def rows() -> Iterator[Row]:
    """All figures of this room."""
    for pods, size, target in ((32, 2048, 35.0), (100, 2048, 60.0), (32, 65_536, 200.0)):
        for shared in (0.0, 0.5, 0.95):
            name = f"prefix: {size // 1024} KiB, {pods} endpoints, {shared:.0%} seen"
            yield Row(name, _pick_us(pods, size, shared), "us", target)
    for pods, size, target in ((32, 2048, 35.0), (100, 2048, 60.0), (32, 65_536, 200.0)):
        name = f"prefix: default configuration adds, {size // 1024} KiB, {pods} endpoints"
        yield Row(name, _default_us(pods, size, 0.5), "us", target)
    yield from _memory()
    yield from _found()
