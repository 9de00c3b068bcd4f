"""Scorers by load: formulas of the llm-d router over `epp_worker.scheduling.load`."""

from collections.abc import Sequence

from epp_worker.scheduling.contract import PickRequest
from epp_worker.scheduling.load import (
    cache_use,
    prompt_tokens,
    queues,
    relative,
    running,
)
from epp_worker.scheduling.plugin import Candidates, PluginContext, PluginType
from fleet.picking.parameters import (
    ActiveRequestParameters,
    LoadAwareParameters,
    Parameters,
    TokenLoadParameters,
)

_THRESHOLD = LoadAwareParameters().threshold
_TOKENS = TokenLoadParameters().queue_threshold_tokens


class QueueScorer:
    """(max - q) / (max - min) over the candidates; 1 when all are equal."""

    def __init__(self, _parameters: Parameters, context: PluginContext) -> None:
        self._oldest = context.oldest

    def score(self, request: PickRequest, candidates: Candidates) -> Sequence[float]:
        """See `Scorer.score`."""
        del request
        return relative(queues(candidates, self._oldest()))


class KvCacheScorer:
    """1 - KV cache in use."""

    def __init__(self, _parameters: Parameters, context: PluginContext) -> None:
        self._oldest = context.oldest

    def score(self, request: PickRequest, candidates: Candidates) -> Sequence[float]:
        """See `Scorer.score`."""
        del request
        return [1.0 - use for use in cache_use(candidates, self._oldest())]


class RunningScorer:
    """As the queue, of requests being computed."""

    def __init__(self, _parameters: Parameters, context: PluginContext) -> None:
        self._oldest = context.oldest

    def score(self, request: PickRequest, candidates: Candidates) -> Sequence[float]:
        """See `Scorer.score`."""
        del request
        return relative(running(candidates, self._oldest()))


class LoadAwareScorer:
    """0.5 * (1 - min(q, T) / T): an empty queue is 0.5."""

    def __init__(self, parameters: LoadAwareParameters, context: PluginContext) -> None:
        self._most = float(parameters.threshold if parameters.threshold > 0 else _THRESHOLD)
        self._oldest = context.oldest

    def score(self, request: PickRequest, candidates: Candidates) -> Sequence[float]:
        """See `Scorer.score`."""
        del request
        most = self._most
        return [0.5 * (1.0 - min(q, most) / most) for q in queues(candidates, self._oldest())]


class TokenLoadScorer:
    """1 - min(t, T) / T over prompt tokens in flight, those of this request besides.

    Attributes:
        counts_tokens: the pool is to count tokens in flight.
    """

    counts_tokens = True

    def __init__(self, parameters: TokenLoadParameters, _context: PluginContext) -> None:
        given = parameters.queue_threshold_tokens
        self._most = float(given if given > 0 else _TOKENS)

    def score(self, request: PickRequest, candidates: Candidates) -> Sequence[float]:
        """See `Scorer.score`."""
        most, own = self._most, prompt_tokens(request)
        return [1.0 - min(c.tokens + own, most) / most for c in candidates]


class ActiveRequestScorer:
    """1 up to the idle threshold; above it (max - n) / max, at most `maxBusyScore`."""

    def __init__(self, parameters: ActiveRequestParameters, _context: PluginContext) -> None:
        self._idle = max(0, parameters.idle_threshold)
        busy = parameters.max_busy_score
        self._busy = busy if busy is not None and 0.0 <= busy <= 1.0 else 1.0

    @property
    def is_plain(self) -> bool:
        """Whether it is (max - n) / max and nothing else."""
        return not self._idle and self._busy == 1.0

    def score(self, request: PickRequest, candidates: Candidates) -> Sequence[float]:
        """See `Scorer.score`."""
        del request
        most = max(c.inflight for c in candidates)
        if most <= self._idle:
            return [1.0] * len(candidates)
        share = self._busy / most
        idle = self._idle
        return [1.0 if c.inflight <= idle else (most - c.inflight) * share for c in candidates]


TYPES = (
    PluginType("queue-scorer", Parameters, QueueScorer),
    PluginType("kv-cache-utilization-scorer", Parameters, KvCacheScorer),
    PluginType("running-requests-size-scorer", Parameters, RunningScorer),
    PluginType("load-aware-scorer", LoadAwareParameters, LoadAwareScorer),
    PluginType("token-load-scorer", TokenLoadParameters, TokenLoadScorer),
    PluginType("active-request-scorer", ActiveRequestParameters, ActiveRequestScorer),
)
