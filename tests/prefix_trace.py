"""A day's work for eight model servers, in virtual time: how much of the prompts they had cached.

The requests are those of a real service (tests/data/traces). A server computes one prompt after the
other, only what its cache has not, then answers at the side; its cache is an LRU of the trace's own
blocks. What is compared is who is picked: all policies see the same queues and caches, with the
weights of the llm-d router's default (queue 2, cache in use 2, prefix 3).
"""

import gzip
import heapq
import json
import random
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Protocol

from epp_worker.scheduling.pool import PoolState
from epp_worker.scheduling.prefix.plugins import PrefixCacheScorer
from epp_worker.scheduling.prefix.producer import ApproxPrefixCache
from fleet.picking.parameters import PrefixCacheScorerParameters, PrefixProducerParameters
from tests.prefix_pools import context, pool_of, request
from tests.prefix_rule import RuleIndex, text_hashes

TRACE = Path(__file__).parent / "data" / "traces" / "mooncake_conversation.jsonl.gz"
SERVERS = 8
BLOCK_TOKENS = 512
CACHE_BLOCKS = 31_250 * 16 // BLOCK_TOKENS
"""500,000 tokens: an 8B model on an 80 GB GPU."""
PROMPT_TOKENS_PER_SECOND = 15_928.0
SECONDS_PER_ANSWER_TOKEN = 0.02
SCRAPE_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Asked:
    """A request of the trace."""

    at: float
    tokens: int
    answer: int
    blocks: tuple[int, ...]

    def prompt(self) -> bytes:
        """A text in which equal blocks are equal."""
        return b"".join(map(_block, self.blocks))[: self.tokens * 4]


@lru_cache(maxsize=4096)
def _block(number: int) -> bytes:
    return number.to_bytes(8, "little") * (BLOCK_TOKENS // 2)


def trace(count: int) -> Iterator[Asked]:
    """The first requests of the trace."""
    with gzip.open(TRACE, "rt") as lines:
        for line in islice(lines, count):
            row = json.loads(line)
            blocks = tuple(row["hash_ids"])
            yield Asked(row["timestamp"] / 1000, row["input_length"], row["output_length"], blocks)


@dataclass(slots=True)
class Server:
    """A model server."""

    cache: OrderedDict[int, None] = field(default_factory=OrderedDict)
    free: float = 0.0
    begins: list[float] = field(default_factory=list)
    holds: list[tuple[float, int]] = field(default_factory=list)
    held: int = 0
    hit: int = 0

    def take(self, asked: Asked) -> None:
        """Compute a prompt as soon as those before it are done."""
        known = 0
        for block in asked.blocks:
            if block not in self.cache:
                break
            known += 1
        cached = min(known * BLOCK_TOKENS, asked.tokens)
        self.hit += cached
        for block in asked.blocks:
            self.cache[block] = None
            self.cache.move_to_end(block)
        while len(self.cache) > CACHE_BLOCKS:
            self.cache.popitem(last=False)
        begin = max(asked.at, self.free)
        self.free = begin + (asked.tokens - cached) / PROMPT_TOKENS_PER_SECOND
        heapq.heappush(self.begins, begin)
        heapq.heappush(
            self.holds,
            (self.free + asked.answer * SECONDS_PER_ANSWER_TOKEN, asked.tokens + asked.answer),
        )
        self.held += asked.tokens + asked.answer

    def look(self, now: float) -> tuple[float, float]:
        """Requests that wait, and the part of the cache that is in use."""
        while self.begins and self.begins[0] <= now:
            heapq.heappop(self.begins)
        while self.holds and self.holds[0][0] <= now:
            self.held -= heapq.heappop(self.holds)[1]
        return len(self.begins), min(1.0, self.held / (CACHE_BLOCKS * BLOCK_TOKENS))


class Policy(Protocol):
    """Rates servers."""

    def rate(self, asked: Asked, load: Sequence[float]) -> Sequence[float]:
        """A value for each server, given what their load makes of them."""
        ...

    def picked(self, asked: Asked, server: int) -> None:
        """It goes there."""
        ...


class Random:
    """Any server."""

    def rate(self, asked: Asked, load: Sequence[float]) -> Sequence[float]:
        return [0.0] * len(load)

    def picked(self, asked: Asked, server: int) -> None:
        pass


class QueueOnly(Random):
    """The least loaded server."""

    def rate(self, asked: Asked, load: Sequence[float]) -> Sequence[float]:
        return load


class Rule:
    """The router's rule, written down independently of ours.

    Args:
        capacity: it takes an engine's 16-token blocks for its own of 64 tokens.
    """

    def __init__(self, capacity: int = 31_250) -> None:
        self._index = RuleIndex(capacity)
        self._hashes: list[int] = []

    def rate(self, asked: Asked, load: Sequence[float]) -> Sequence[float]:
        self._hashes = text_hashes(asked.prompt(), "m", 64, 131_072 // 64)
        found = self._index.match(self._hashes)
        total = len(self._hashes)
        return [value + 3 * found.get(str(n), 0) / total for n, value in enumerate(load)]

    def picked(self, asked: Asked, server: int) -> None:
        self._index.add(str(server), self._hashes)


class Ours:
    """prefix-cache-scorer on approx-prefix-cache-producer.

    Attributes:
        pool: as the worker that picks sees it.
    """

    def __init__(self, *, told: bool = True) -> None:
        """
        Args:
            told: the servers report the size of their cache.
        """
        self._told = told
        self.move_to(pool_of(SERVERS))

    def move_to(self, pool: PoolState) -> None:
        """From now on that worker picks."""
        self.pool = pool
        self._pods = tuple(pool.endpoints())
        for pod in self._pods if self._told else ():
            pod.block_size, pod.blocks = 16, 31_250
        producer = ApproxPrefixCache(PrefixProducerParameters(), context(pool.slot))
        knows = context(pool.slot, approx_prefix_cache_producer=producer)
        self._scorer = PrefixCacheScorer(PrefixCacheScorerParameters(), knows)
        self._producer = producer
        self._request = request()

    def rate(self, asked: Asked, load: Sequence[float]) -> Sequence[float]:
        self._request = request(asked.prompt())
        scores = self._scorer.score(self._request, self._pods) or [0.0] * SERVERS
        return [value + 3 * score for value, score in zip(load, scores, strict=True)]

    def picked(self, asked: Asked, server: int) -> None:
        self._producer.picked(self._request, self._pods[server])


class Service:
    """The servers, and one policy that picks among them.

    Args:
        seed: of what breaks ties.
    """

    def __init__(self, policy: Policy, seed: int = 7) -> None:
        self.policy = policy
        self.servers = [Server() for _ in range(SERVERS)]
        self._rng = random.Random(seed)
        self._seen: list[tuple[float, float]] = []
        self._seen_at = float("-inf")
        self._since = [0] * SERVERS
        self.tokens = 0

    def serve(self, asked: Asked) -> None:
        """One request, at its time."""
        if asked.at - self._seen_at >= SCRAPE_SECONDS:
            self._seen = [server.look(asked.at) for server in self.servers]
            self._seen_at = asked.at
            self._since = [0] * SERVERS
        rates = self.policy.rate(asked, self._load())
        best = max(rates)
        chosen = self._rng.choice([n for n, rate in enumerate(rates) if rate >= best - 1e-12])
        self._since[chosen] += 1
        self.servers[chosen].take(asked)
        self.policy.picked(asked, chosen)
        self.tokens += asked.tokens

    def _load(self) -> list[float]:
        queues = [seen[0] + since for seen, since in zip(self._seen, self._since, strict=True)]
        spread = max(queues) - min(queues)
        waits = [(max(queues) - queue) / spread if spread else 1.0 for queue in queues]
        return [
            2 * wait + 2 * (1 - used) for wait, (_, used) in zip(waits, self._seen, strict=True)
        ]

    @property
    def hit_rate(self) -> float:
        """The part of all prompt tokens that a server had cached when it took them."""
        return sum(server.hit for server in self.servers) / self.tokens


def served(policy: Policy, requests: int, seed: int = 7) -> Service:
    """The service after the first requests of the trace."""
    service = Service(policy, seed)
    for asked in trace(requests):
        service.serve(asked)
    return service
