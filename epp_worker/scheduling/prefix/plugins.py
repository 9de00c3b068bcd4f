"""prefix-cache-scorer and prefix-cache-affinity-filter, as in the llm-d router."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from epp_worker.scheduling.contract import PickRequest
from epp_worker.scheduling.plugin import (
    NO_VOTE,
    AddingScorer,
    Candidates,
    PluginContext,
    PluginType,
)
from epp_worker.scheduling.prefix.producer import PRODUCER, ApproxPrefixCache, producer
from fleet.picking.parameters import (
    PrefixAffinityFilterParameters,
    PrefixCacheScorerParameters,
    PrefixProducerParameters,
)

if TYPE_CHECKING:
    from epp_worker.scheduling.endpoint import EndpointState

_PREDICTOR = "latencyPredictor"
_THROUGHPUT = "prefillThroughput"


class _Asking:
    """Asks a producer; one of its own is told of picks by it."""

    def __init__(self, name: str, context: PluginContext) -> None:
        self._producer, self._own = producer(name, context)

    def picked(self, request: PickRequest, chosen: "EndpointState") -> None:
        """See `PickObserver.picked`."""
        if self._own:
            self._producer.picked(request, chosen)

    def prefilled(self, request: PickRequest, chosen: "EndpointState") -> None:
        """See `PrefillObserver.prefilled`."""
        if self._own:
            self._producer.prefilled(request, chosen)


class PrefixCacheScorer(_Asking, AddingScorer):
    """The part of the prompt that an endpoint has; by weight also how long that part is.

    Attributes:
        allowed_seconds: a call may take so long and still count. The first one that asks reads the
            body, and the longest prompts are those whose prefixes are worth most.
    """

    allowed_seconds = 0.1

    def __init__(self, parameters: PrefixCacheScorerParameters, context: PluginContext) -> None:
        super().__init__(parameters.prefix_match_info_producer_name, context)
        self._weight = parameters.match_length_weight
        self._scale = parameters.match_length_scale_tokens
        if self._weight > 0 and not self._scale:
            raise ValueError("matchLengthScaleTokens must be more than 0 with a matchLengthWeight")

    def score(self, request: PickRequest, candidates: Candidates) -> Sequence[float]:
        """See `Scorer.score`: w * min(1, tokens/scale)^2 + (1-w) * blocks/total."""
        if not self._weight:
            return self._producer.shares(request, candidates)
        match = self._producer.match(request, candidates)
        if not match.found:
            return NO_VOTE
        share = (1.0 - self._weight) / match.total
        length = match.block_tokens / self._scale
        return [
            self._weight * min(1.0, blocks * length) ** 2 + blocks * share
            for blocks in match.blocks
        ]

    def add(
        self, request: PickRequest, candidates: Candidates, weight: float, totals: list[float]
    ) -> list[float] | None:
        """See `AddingScorer.add`."""
        if not self._weight:
            return self._producer.add_shares(request, candidates, weight, totals)
        scores = self.score(request, candidates)
        if scores is NO_VOTE:
            return None
        return [total + weight * score for total, score in zip(totals, scores, strict=True)]


class PrefixCacheAffinityFilter(_Asking):
    """Keeps endpoints that have most of the prompt, unless all of them are too busy.

    Attributes:
        counts_tokens: it asks for the tokens in flight at endpoints.
    """

    def __init__(self, parameters: PrefixAffinityFilterParameters, context: PluginContext) -> None:
        super().__init__(parameters.prefix_match_info_producer_name, context)
        if parameters.ttft_source == _PREDICTOR:
            raise ValueError(f"ttftSource: {_PREDICTOR} is not offered here; use {_THROUGHPUT}")
        if parameters.ttft_source not in ("", _THROUGHPUT):
            raise ValueError(f"ttftSource must be {_THROUGHPUT}, is {parameters.ttft_source!r}")
        if parameters.max_ttft_penalty_ms and not parameters.peak_prefill_throughput:
            raise ValueError("peakPrefillThroughput must be more than 0 with a maxTTFTPenaltyMs")
        self._parameters = parameters
        self._random = context.random
        self.counts_tokens = parameters.max_ttft_penalty_ms > 0

    def filter(self, request: PickRequest, candidates: Candidates) -> Candidates:
        """See `Filter.filter`."""
        wanted = self._parameters
        if len(candidates) <= 1 or wanted.affinity_threshold <= 0:
            return candidates
        if wanted.exploration_probability and self._random() < wanted.exploration_probability:
            return candidates
        match = self._producer.match(request, candidates)
        if not match.found:
            return candidates
        sticky: list[EndpointState] = []
        others: list[EndpointState] = []
        for endpoint, blocks in zip(candidates, match.blocks, strict=True):
            kept = blocks / match.total >= wanted.affinity_threshold
            (sticky if kept else others).append(endpoint)
        if not sticky or not others:
            return candidates
        most = wanted.max_ttft_penalty_ms
        return candidates if most and self._penalty(sticky, others) > most else sticky

    def _penalty(self, sticky: Candidates, others: Candidates) -> float:
        """Milliseconds until the first token that sticking costs, by prompt tokens in flight."""
        more = min(c.tokens for c in sticky) - min(c.tokens for c in others)
        return more / self._parameters.peak_prefill_throughput * 1000.0


PREFIX_PLUGINS = (
    PluginType(PRODUCER, PrefixProducerParameters, ApproxPrefixCache),
    PluginType("prefix-cache-scorer", PrefixCacheScorerParameters, PrefixCacheScorer),
    PluginType(
        "prefix-cache-affinity-filter", PrefixAffinityFilterParameters, PrefixCacheAffinityFilter
    ),
)
"""The plugin types of this room."""
