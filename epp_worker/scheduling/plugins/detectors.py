"""How full a pool is, and, as filters, who of it has room; formulas of the llm-d router."""

from epp_worker.scheduling.contract import PickRequest
from epp_worker.scheduling.endpoint import EndpointState
from epp_worker.scheduling.plugin import Candidates, PluginContext, PluginType
from fleet.picking.parameters import (
    ConcurrencyDetectorParameters,
    UtilizationDetectorParameters,
    seconds,
)


class UtilizationDetector:
    """The mean of max(queue / threshold, kv / threshold); who is not known counts as full.

    Metrics are stale after the threshold, but never while the scraper keeps its own pace: a pool
    that is scraped every second must not look full in between.
    """

    def __init__(self, parameters: UtilizationDetectorParameters, context: PluginContext) -> None:
        self._context = context
        self._queue = float(parameters.queue_depth_threshold)
        self._kv = parameters.kv_cache_util_threshold
        self._stale = seconds(parameters.metrics_staleness_threshold)
        self._limit = 1.0 + parameters.headroom

    def _oldest(self) -> float:
        return min(self._context.now() - self._stale, self._context.oldest())

    def saturation(self, candidates: Candidates) -> float:
        """See `Detector.saturation`."""
        if not candidates:
            return 1.0
        oldest = self._oldest()
        return sum(self._fullness(c, oldest) for c in candidates) / len(candidates)

    def _fullness(self, state: EndpointState, oldest: float) -> float:
        if state.metrics_at < oldest:
            return 1.0
        return max((state.waiting or 0.0) / self._queue, (state.kv or 0.0) / self._kv)

    def filter(self, request: PickRequest, candidates: Candidates) -> Candidates:
        """See `Filter.filter`: all if none has room."""
        del request
        oldest = self._oldest()
        kept = [
            c
            for c in candidates
            if c.metrics_at >= oldest and self._fullness(c, oldest) < self._limit
        ]
        return kept or candidates


class ConcurrencyDetector:
    """Requests or tokens in flight over what may be.

    Attributes:
        counts_tokens: the pool is to count tokens in flight.
    """

    def __init__(self, parameters: ConcurrencyDetectorParameters, _context: PluginContext) -> None:
        self._requests = parameters.max_concurrency
        self._tokens = parameters.max_token_concurrency
        self._mode = parameters.concurrency_mode
        self._limit = 1.0 + parameters.headroom
        self.counts_tokens = self._mode != "requests"

    def saturation(self, candidates: Candidates) -> float:
        """See `Detector.saturation`."""
        if not candidates:
            return 1.0
        return sum(self._fullness(c) for c in candidates) / len(candidates)

    def _fullness(self, state: EndpointState) -> float:
        requests, tokens = state.inflight / self._requests, state.tokens / self._tokens
        if self._mode == "hybrid":
            return max(requests, tokens)
        return tokens if self._mode == "tokens" else requests

    def filter(self, request: PickRequest, candidates: Candidates) -> Candidates:
        """See `Filter.filter`."""
        del request
        return [c for c in candidates if self._fullness(c) < self._limit]


TYPES = (
    PluginType("utilization-detector", UtilizationDetectorParameters, UtilizationDetector),
    PluginType("concurrency-detector", ConcurrencyDetectorParameters, ConcurrencyDetector),
)
