"""Scorers by what an endpoint has or is meant for; formulas of the llm-d router."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from epp_worker.scheduling.contract import PickRequest
from epp_worker.scheduling.endpoint import EndpointState
from epp_worker.scheduling.load import prompt_tokens
from epp_worker.scheduling.plugin import Candidates, PluginContext, PluginType
from epp_worker.scheduling.prefix.producer import producer
from epp_worker.scheduling.state_slots import LORA, SeenTable
from fleet.picking.parameters import ContextLengthParameters, NoHitLruParameters, Parameters

REMEMBERED_SECONDS = 300.0
"""An adapter that ran somewhere is taken to be loaded there for so long, though idle since: model
servers list only those that are in use (vllm#45325)."""

_ACTIVE, _REMEMBERED, _ROOM, _WAITING, _FULL = 1.0, 0.9, 0.8, 0.6, 0.0
_NEUTRAL = 0.5
_OUT_OF_RANGE = 0.3


class LoraScorer:
    """Adapter active 1.0; it ran here lately 0.9; room for another 0.8; it waits 0.6; else 0."""

    def __init__(self, _parameters: Parameters, context: PluginContext) -> None:
        self._context = context

    def score(self, request: PickRequest, candidates: Candidates) -> Sequence[float]:
        """See `Scorer.score`."""
        adapter = request.target_model or request.model or ""
        table = self._context.slot(LORA)
        seen = table.at(adapter) if isinstance(table, SeenTable) else {}
        scores = []
        for c in candidates:
            if adapter in c.lora_running:
                if isinstance(table, SeenTable) and seen.get(c.address, 2.0) > 1.0:
                    table.note(adapter, c.address)
                scores.append(_ACTIVE)
            elif seen.get(c.address, REMEMBERED_SECONDS) < REMEMBERED_SECONDS:
                scores.append(_REMEMBERED)
            elif len(c.lora_running) + len(c.lora_waiting) < (c.lora_max or 0):
                scores.append(_ROOM)
            else:
                scores.append(_WAITING if adapter in c.lora_waiting else _FULL)
        return scores


class ContextLength:
    """Endpoints by the range of prompt lengths that a pod's label says they are for."""

    def __init__(self, parameters: ContextLengthParameters, _context: PluginContext) -> None:
        self._label = parameters.label
        self._filters = parameters.enable_filtering

    def filter(self, request: PickRequest, candidates: Candidates) -> Candidates:
        """See `Filter.filter`: a pod without the label takes any length."""
        if not self._filters:
            return candidates
        length = prompt_tokens(request)
        kept = []
        for c in candidates:
            text = c.endpoint.labels.get(self._label)
            span = None if text is None else _range(text)
            if text is None or (span is not None and span[0] <= length <= span[1]):
                kept.append(c)
        return kept

    def score(self, request: PickRequest, candidates: Candidates) -> Sequence[float]:
        """See `Scorer.score`."""
        length = prompt_tokens(request)
        scores = []
        for c in candidates:
            text = c.endpoint.labels.get(self._label)
            span = None if text is None else _range(text)
            if text is None:
                scores.append(_NEUTRAL)
            else:
                scores.append(0.0 if span is None else _fit(length, *span))
        return scores


def _range(text: str) -> tuple[int, int] | None:
    low, dash, high = text.partition("-")
    try:
        span = (int(low), int(high))
    except ValueError:
        return None
    return span if dash and 0 <= span[0] <= span[1] else None


def _fit(length: int, low: int, high: int) -> float:
    """Above 0.3 within the range, the more the narrower it is and the more room it leaves."""
    if low <= length <= high:
        width = high - low
        if not width:
            return 1.0
        raw = 0.7 / (1.0 + width / 10_000) + 0.3 * (high - length) / width
        return _OUT_OF_RANGE + raw * (1.0 - _OUT_OF_RANGE)
    distance = length - high if length > high else low - length
    return _OUT_OF_RANGE / (1.0 + distance / 1000)


class NoHitLru:
    """Spreads requests whose prompt nobody knows: who got one longest ago comes first."""

    def __init__(self, parameters: NoHitLruParameters, context: PluginContext) -> None:
        name = parameters.prefix_match_info_producer_name
        self._producer, self._own = producer(name, context)
        self._size = (
            parameters.lru_size if parameters.lru_size > 0 else NoHitLruParameters().lru_size
        )
        self._used: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._cold: PickRequest | None = None

    def score(self, request: PickRequest, candidates: Candidates) -> Sequence[float]:
        """See `Scorer.score`: 0.5 for all if anybody has a part of the prompt."""
        if any(self._producer.match(request, candidates).blocks):
            self._cold = None
            return [_NEUTRAL] * len(candidates)
        self._cold = request
        if len(candidates) == 1:
            return [1.0]
        return self._by_age(candidates)

    def _by_age(self, candidates: Candidates) -> list[float]:
        """Those never used first, in their order; then by age."""
        ages = {key: age for age, key in enumerate(self._used)}
        last = len(candidates) - 1
        never = sum(1 for c in candidates if _key(c) not in ages)
        scores, fresh = [], 0
        for c in candidates:
            age = ages.get(_key(c))
            rank = fresh if age is None else never + age
            fresh += age is None
            scores.append(max(0.0, 1.0 - rank / last))
        return scores

    def picked(self, request: PickRequest, chosen: EndpointState) -> None:
        """See `PickObserver.picked`."""
        self._use(request, chosen)
        if self._own:
            self._producer.picked(request, chosen)

    def prefilled(self, request: PickRequest, chosen: EndpointState) -> None:
        """See `PrefillObserver.prefilled`: who computes the prompt is used as well."""
        self._use(request, chosen)
        if self._own:
            self._producer.prefilled(request, chosen)

    def _use(self, request: PickRequest, chosen: EndpointState) -> None:
        if self._cold is request:
            self._used[_key(chosen)] = None
            self._used.move_to_end(_key(chosen))
            if len(self._used) > self._size:
                self._used.popitem(last=False)


def _key(state: Any) -> tuple[str, str]:
    return state.endpoint.pod_uid, state.address


TYPES = (
    PluginType("lora-affinity-scorer", Parameters, LoraScorer),
    PluginType("context-length-aware", ContextLengthParameters, ContextLength),
    PluginType("no-hit-lru-scorer", NoHitLruParameters, NoHitLru),
)
