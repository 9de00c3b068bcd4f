"""The producer, the scorer and the filter: values worked out by hand."""

from collections.abc import Sequence
from itertools import count
from typing import Any

import pytest

from epp_worker.scheduling.faults import PluginFaults
from epp_worker.scheduling.plugin import (
    NO_VOTE,
    Candidates,
    Filter,
    PickObserver,
    PluginContext,
    Scorer,
)
from epp_worker.scheduling.prefix.plugins import (
    PREFIX_PLUGINS,
    PrefixCacheAffinityFilter,
    PrefixCacheScorer,
)
from epp_worker.scheduling.prefix.producer import ApproxPrefixCache
from epp_worker.scheduling.prefix.slot import PrefixSlot
from epp_worker.scheduling.profile import Named, RunnableProfile, Watch
from fleet.model import PoolRef
from fleet.picking.parameters import (
    PrefixAffinityFilterParameters,
    PrefixCacheScorerParameters,
    PrefixProducerParameters,
)
from tests.prefix_pools import context, index_of, pool_of, request

BLOCK = 256
"""Bytes of 64 tokens."""


def text(*letters: str) -> bytes:
    """A prompt of blocks that are one letter each."""
    return b"".join(letter.encode() * BLOCK for letter in letters)


class Cache:
    """A producer over three endpoints."""

    def __init__(self, **parameters: Any) -> None:
        self.pool = pool_of(3)
        self.pods = list(self.pool.endpoints())
        self.index = index_of(self.pool)
        settings = PrefixProducerParameters(**parameters)
        self.producer = ApproxPrefixCache(settings, context(self.pool.slot))

    def blocks(self, *letters: str, **said: Any) -> tuple[list[int], int]:
        """Blocks that each endpoint has, and those of the prompt."""
        match = self.producer.match(request(text(*letters), **said), self.pods)
        return list(match.blocks), match.total

    def pick(self, number: int, *letters: str, **said: Any) -> None:
        """Such a request goes to an endpoint."""
        self.producer.picked(request(text(*letters), **said), self.pods[number])

    def context(self) -> PluginContext:
        """Of a plugin that finds the producer."""
        return context(self.pool.slot, approx_prefix_cache_producer=self.producer)

    def scorer(self, **parameters: Any) -> PrefixCacheScorer:
        return PrefixCacheScorer(PrefixCacheScorerParameters(**parameters), self.context())

    def filter(self, **parameters: Any) -> PrefixCacheAffinityFilter:
        settings = PrefixAffinityFilterParameters(**parameters)
        return PrefixCacheAffinityFilter(settings, self.context())


def test_the_very_next_request_sees_a_pick() -> None:
    """What is picked is known within the pick: here nobody waits for a background update."""
    cache = Cache()
    assert cache.blocks(*"abc") == ([0, 0, 0], 3)
    cache.pick(1, *"abc")
    assert cache.blocks(*"abd") == ([0, 2, 0], 3)


def test_models_and_salts_share_nothing() -> None:
    """The same text for another model or with another salt is another prompt."""
    cache = Cache()
    cache.pick(0, *"ab")
    ask = request(text(*"ab"), model="other")
    assert list(cache.producer.match(ask, cache.pods).blocks) == [0, 0, 0]
    assert cache.blocks(*"ab", cache_salt="s") == ([0, 0, 0], 2)
    assert cache.blocks(*"ab") == ([2, 0, 0], 2)


def test_token_ids_count_instead_of_the_text() -> None:
    """70 tokens of a client that tokenizes: two blocks, the last one of six tokens."""
    cache = Cache()
    tokens = list(range(70))
    cache.producer.picked(request(b"", token_ids=tokens), cache.pods[2])
    found = cache.producer.match(request(b"other text", token_ids=tokens), cache.pods)
    assert (list(found.blocks), found.total) == ([0, 0, 2], 2)


@pytest.mark.parametrize(
    ("parameters", "engine", "blocks"),
    [
        # 1,024 bytes = 256 tokens.
        ({}, None, 4),  # 16 tokens are raised to 64
        ({"block_size_tokens": 1}, None, 4),
        ({}, 16, 4),  # the engine's own blocks, too
        ({}, 128, 2),
        ({"auto_tune": False}, 128, 4),
        ({"auto_tune": False, "block_size_tokens": 128}, None, 2),
        ({"auto_tune": False, "block_size": 128}, None, 2),  # the older name
        ({"auto_tune": False, "block_size": 128, "block_size_tokens": 256}, None, 1),
        ({"max_prefix_tokens_to_match": 130}, None, 2),  # 130 // 64
        ({"max_prefix_tokens_to_match": 130, "max_prefix_blocks_to_match": 1}, None, 2),
        ({"max_prefix_tokens_to_match": 0, "max_prefix_blocks_to_match": 3}, None, 3),
        ({"max_prefix_tokens_to_match": 0, "max_prefix_blocks_to_match": 0}, None, 4),
        ({"max_prefix_tokens_to_match": 63}, None, 0),  # less than a block: nothing is matched
    ],
)
def test_blocks_and_caps(parameters: dict[str, Any], engine: int | None, blocks: int) -> None:
    """Block size and caps by the router's parameters; kubernetes-sigs/gateway-api-inference-
    extension#2878 and llm-d/llm-d-router#1158 are why a block is never smaller than 64 tokens."""
    cache = Cache(**parameters)
    cache.pods[0].block_size = engine
    assert cache.blocks(*"abcd") == ([0, 0, 0], blocks)


@pytest.mark.parametrize(
    ("parameters", "size", "number", "capacity"),
    [
        ({}, None, None, 31_250),
        ({"lru_capacity_per_server": 7}, None, None, 7),
        ({"lru_capacity_per_server": 0}, None, None, 31_250),
        ({}, 16, 20_000, 5_000),  # 20,000 x 16 tokens = 5,000 x 64
        ({}, None, 20_000, 5_000),
        ({}, 128, 20_000, 20_000),
        ({"auto_tune": False}, 16, 20_000, 31_250),
        ({}, 16, 10**9, 250_000),  # bounded, whatever is reported
    ],
)
def test_capacity(
    parameters: dict[str, Any], size: int | None, number: int | None, capacity: int
) -> None:
    """An endpoint's capacity is what it reports, in blocks of the index; fixed when first used."""
    cache = Cache(**parameters)
    pod = cache.pods[0]
    pod.block_size, pod.blocks = size, number
    cache.pick(0, "a")
    pod.blocks = 1
    cache.pick(0, "b")
    (holding,) = (each for each in cache.index.holdings() if each.recency.size)
    assert (holding.capacity, holding.recency.size) == (capacity, 2)


def test_a_producer_without_blocks_is_refused() -> None:
    """autoTune off and no block size: there is nothing to go by."""
    with pytest.raises(ValueError, match="blockSizeTokens must be more than 0"):
        Cache(auto_tune=False, block_size_tokens=0)


@pytest.mark.parametrize(
    ("parameters", "scores"),
    [
        ({}, [0.5, 0.25, 0.0]),
        # Lengths: 2 blocks = 128 tokens, 1 = 64; of 256: (1/2)^2 = 1/4 and (1/4)^2 = 1/16.
        ({"match_length_weight": 1.0, "match_length_scale_tokens": 256}, [0.25, 0.0625, 0.0]),
        ({"match_length_weight": 0.5, "match_length_scale_tokens": 256}, [0.375, 0.15625, 0.0]),
        # Longer than the scale counts as the scale.
        ({"match_length_weight": 0.5, "match_length_scale_tokens": 64}, [0.75, 0.625, 0.0]),
    ],
)
def test_scores(parameters: dict[str, Any], scores: list[float]) -> None:
    """Of four blocks pod 0 has two, pod 1 one, pod 2 none."""
    cache = Cache()
    cache.pick(0, *"ab")
    cache.pick(1, *"a")
    scorer = cache.scorer(**parameters)
    assert list(scorer.score(request(text(*"abcd")), cache.pods)) == pytest.approx(scores)
    assert scorer.score(request(b""), cache.pods) is NO_VOTE
    assert scorer.score(request(text("z")), cache.pods) is NO_VOTE


def test_a_scorer_alone_has_a_producer_of_its_own() -> None:
    """The router's default configuration names none."""
    pool = pool_of(2)
    pods = tuple(pool.endpoints())
    scorer = PrefixCacheScorer(PrefixCacheScorerParameters(), context(pool.slot))
    first = request(text(*"ab"))
    assert scorer.score(first, pods) is NO_VOTE
    scorer.picked(first, pods[1])
    assert list(scorer.score(request(text(*"ab")), pods)) == [0.0, 1.0]


def test_plugins_without_a_named_producer_share_one() -> None:
    """Each tells it of the pick, and it is heard once; a second endpoint of the same request (who
    prefills) is another pick."""
    pool = pool_of(2)
    pods = tuple(pool.endpoints())
    knows = context(pool.slot)
    scorer = PrefixCacheScorer(PrefixCacheScorerParameters(), knows)
    narrowing = PrefixCacheAffinityFilter(PrefixAffinityFilterParameters(), knows)
    ask = request(text(*"ab"))
    for each in (scorer, narrowing):
        each.picked(ask, pods[0])
    slot = pool.slot("prefix")
    assert isinstance(slot, PrefixSlot)
    assert slot.unnamed is not None
    assert sum(slot.unnamed.figures.ratio.counts) == 1
    scorer.prefilled(ask, pods[1])
    assert sum(slot.unnamed.figures.ratio.counts) == 1
    assert [each.recency.size for each in slot.index.holdings()] == [2, 2]


def test_a_scorer_of_a_named_producer_leaves_the_telling_to_it() -> None:
    """Or each pick would be told twice."""
    cache = Cache()
    cache.scorer().picked(request(text("a")), cache.pods[0])
    assert len(cache.index) == 0
    with pytest.raises(ValueError, match="elsewhere is no approx-prefix-cache-producer"):
        cache.scorer(prefix_match_info_producer_name="elsewhere")


def test_a_weight_needs_a_scale() -> None:
    """As the router refuses it."""
    with pytest.raises(ValueError, match="matchLengthScaleTokens"):
        Cache().scorer(match_length_weight=0.5, match_length_scale_tokens=0)


def names(cache: Cache, kept: Any) -> list[int]:
    return [cache.pods.index(endpoint) for endpoint in kept]


@pytest.mark.parametrize(
    ("parameters", "tokens", "kept"),
    [
        # Pod 0 has 4 of 5 blocks, pod 1 has 3.
        ({}, [0, 0, 0], [0]),
        ({"affinity_threshold": 0.81}, [0, 0, 0], [0, 1, 2]),
        ({"affinity_threshold": 0.6}, [0, 0, 0], [0, 1]),
        ({"affinity_threshold": 0.0}, [0, 0, 0], [0, 1, 2]),
        # 286,704 tokens at 15,928/s are 18 s: not more than the penalty allowed.
        ({}, [286_704, 0, 0], [0]),
        ({}, [286_705, 0, 0], [0, 1, 2]),
        ({}, [286_705, 1, 1], [0]),
        # The best of each side counts.
        ({"affinity_threshold": 0.6}, [286_705, 5, 0], [0, 1]),
        ({"max_ttft_penalty_ms": 0}, [10**9, 0, 0], [0]),
        ({"max_ttft_penalty_ms": 100, "peak_prefill_throughput": 1000}, [101, 0, 0], [0, 1, 2]),
    ],
)
def test_filter(parameters: dict[str, Any], tokens: list[int], kept: list[int]) -> None:
    """Who has at least the threshold's part stays, unless waiting there costs too much."""
    cache = Cache()
    cache.pick(0, *"abcd")
    cache.pick(1, *"abc")
    for pod, number in zip(cache.pods, tokens, strict=True):
        pod.tokens = number
    chosen = cache.filter(**parameters).filter(request(text(*"abcde")), cache.pods)
    assert names(cache, chosen) == kept


def test_the_filter_explores_as_often_as_it_is_told() -> None:
    """One request in four sees all endpoints."""
    cache = Cache()
    cache.pick(0, *"a")
    narrowing = cache.filter(exploration_probability=0.25)
    seen = [len(narrowing.filter(request(text("a")), cache.pods)) for _ in range(1000)]
    assert 200 <= seen.count(3) <= 300
    assert seen.count(1) == 1000 - seen.count(3)


def test_the_filter_keeps_all_when_nobody_has_the_prompt() -> None:
    """And a single candidate in any case."""
    cache = Cache()
    assert cache.filter().filter(request(text("a")), cache.pods) is cache.pods
    assert cache.filter().filter(request(text("a")), cache.pods[:1]) == cache.pods[:1]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"ttft_source": "latencyPredictor"}, "is not offered here"),
        ({"ttft_source": "stars"}, "ttftSource must be"),
        ({"peak_prefill_throughput": 0.0}, "peakPrefillThroughput"),
    ],
)
def test_filter_values_that_cannot_work(parameters: dict[str, Any], message: str) -> None:
    """Refused when it is made, as the router does."""
    with pytest.raises(ValueError, match=message):
        Cache().filter(**parameters)


def test_figures() -> None:
    """Of two blocks the chosen endpoint had none, then both: ratios 0 and 1, 0 and 512 bytes."""
    cache = Cache()
    cache.pick(0, *"ab")
    cache.pick(0, *"ab")
    figures = cache.producer.figures
    assert (figures.ratio.counts[0], figures.ratio.counts[10], figures.ratio.total) == (1, 1, 1.0)
    assert figures.length.total == 512
    cache.producer.picked(request(b""), cache.pods[0])
    assert sum(figures.ratio.counts) == 2


def test_what_kinds_the_types_are() -> None:
    """Each type is what the configuration may use it as."""
    knows = context(pool_of(1).slot)
    made = {each.type: each.make(each.parameters(), knows) for each in PREFIX_PLUGINS}
    assert isinstance(made["prefix-cache-scorer"], Scorer)
    assert isinstance(made["prefix-cache-affinity-filter"], Filter)
    assert isinstance(made["approx-prefix-cache-producer"], PickObserver)


class NoPicker:
    """Picks nobody."""

    def order(self, candidates: Candidates, scores: Sequence[float]) -> Candidates:
        return ()


def test_long_prompts_keep_their_vote() -> None:
    """Calls that take longer than plugins may, because they are the first to read long bodies,
    still count, however many: what they found is paid for."""
    clock = count(0.0, 0.02)
    watch = Watch(PoolRef("ns", "pool"), PluginFaults(), lambda: next(clock))
    cache = Cache()
    cache.pick(1, *"ab")
    named: Named[Scorer] = Named("prefix", "prefix-cache-scorer", cache.scorer(), 3.0)
    profile = RunnableProfile("default", (), (named,), Named("none", "none", NoPicker()), watch)
    for _ in range(5):
        assert profile.rate(request(text(*"ab")), cache.pods) == [0.0, 3.0, 0.0]


@pytest.mark.parametrize(
    ("parameters", "scores"),
    [
        ({}, [0.5, 0.25, 0.0]),
        ({"match_length_weight": 0.5, "match_length_scale_tokens": 256}, [0.375, 0.15625, 0.0]),
    ],
)
def test_what_it_adds_to_other_scores_is_its_weighted_score(
    parameters: dict[str, Any], scores: list[float]
) -> None:
    """Three times each score, on top of 1, 2 and 3; nothing where nobody has a part."""
    cache = Cache()
    cache.pick(0, *"ab")
    cache.pick(1, "a")
    scorer = cache.scorer(**parameters)
    asked, before = request(text(*"abcd")), [1.0, 2.0, 3.0]
    added = scorer.add(asked, cache.pods, 3.0, before)
    assert added == [1.0 + 3.0 * scores[0], 2.0 + 3.0 * scores[1], 3.0]
    assert before == [1.0, 2.0, 3.0]
    assert scorer.add(request(text(*"xyz")), cache.pods, 3.0, before) is None
