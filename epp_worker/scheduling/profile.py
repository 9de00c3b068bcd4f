"""Runs one profile: filters narrow, scorers rate, the picker orders.

A plugin that raises loses its vote: a filter lets everybody pass, a scorer adds nothing, and for a
picker the best rated is taken. So does a scorer that is slow, by several of its last calls: one
slow call alone may be somebody else's who had the processor meanwhile. A filter or picker that is
slow has its say all the same: what it decides may be about what can work at all.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from epp_worker.scheduling.contract import PickRequest
from epp_worker.scheduling.endpoint import EndpointState
from epp_worker.scheduling.faults import SLOW_SECONDS, PluginFaults
from epp_worker.scheduling.plugin import (
    NO_VOTE,
    AddingScorer,
    Candidates,
    EndpointPicker,
    Filter,
    Scorer,
)
from fleet.model.identity import PoolRef

P = TypeVar("P", covariant=True)

_Add: TypeAlias = Callable[[PickRequest, Candidates, float, list[float]], list[float] | None]

SLOW_CALLS: Final = 3
OF_LAST_CALLS: Final = 8
"""A plugin is slow when so many of its last calls took too long. Whoever is always slow is so from
the third call on; a processor that is taken away for milliseconds now and then meets one plugin
three times in eight calls about never."""


class Named(NamedTuple, Generic[P]):
    """A plugin instance and how it is called.

    Attributes:
        weight: of a scorer.
        whole: its scores are sums of several scorers already, weighted and clamped. It is the
            fleet's own arithmetic: when that takes long, somebody else has the processor.
    """

    name: str
    type: str
    plugin: P
    weight: float = 1.0
    whole: bool = False


class Watch:
    """Counts the faults of plugins that are called together, in one profile say.

    Attributes:
        now: monotonic seconds.
        calls: how often they were called; counted by the caller.
    """

    __slots__ = ("_faults", "_pool", "_slow", "calls", "now")

    def __init__(self, pool: PoolRef, faults: PluginFaults, now: Callable[[], float]) -> None:
        self._pool = pool
        self._faults = faults
        self._slow: dict[str, deque[int]] = {}
        self.now = now
        self.calls = 0

    def raised(self, plugin: Named[object], error: Exception) -> None:
        """See `PluginFaults.raised`."""
        self._faults.raised(self._pool, plugin.name, plugin.type, error)

    def too_slow(self, plugin: Named[object], began: float) -> bool:
        """Whether a call that began then took too long, as others of the last calls did; counts it
        if so."""
        took = self.now() - began
        if took <= SLOW_SECONDS or took <= getattr(plugin.plugin, "allowed_seconds", 0.0):
            return False
        slow = self._slow.setdefault(plugin.name, deque(maxlen=SLOW_CALLS))
        slow.append(self.calls)
        if len(slow) < SLOW_CALLS or self.calls - slow[0] >= OF_LAST_CALLS:
            return False
        self._faults.slow(self._pool, plugin.name, plugin.type, took)
        return True


class RunnableProfile:
    """See `epp_worker.scheduling.plugin.Profile`."""

    def __init__(
        self,
        name: str,
        filters: Sequence[Named[Filter]],
        scorers: Sequence[Named[Scorer]],
        picker: Named[EndpointPicker],
        watch: Watch,
    ) -> None:
        self.name = name
        self._filters = tuple(filters)
        self._scorers = tuple(
            (each, each.plugin.add if isinstance(each.plugin, AddingScorer) else None)
            for each in scorers
        )
        self._picker = picker
        self._watch = watch

    def run(self, request: PickRequest, candidates: Candidates) -> Candidates:
        """See `Profile.run`."""
        self._watch.calls += 1
        for each in self._filters:
            candidates = self._narrowed(each, request, candidates)
            if not candidates:
                return ()
        if not candidates:
            return ()
        return self._ordered(candidates, self.rate(request, candidates))

    def rate(self, request: PickRequest, candidates: Candidates) -> list[float]:
        """The weighted sums of all scorers."""
        totals: list[float] | None = None
        for each, add in self._scorers:
            totals = self._added(each, add, request, candidates, totals)
        return [0.0] * len(candidates) if totals is None else totals

    def _narrowed(
        self, each: Named[Filter], request: PickRequest, candidates: Candidates
    ) -> Candidates:
        began = self._watch.now()
        try:
            kept = each.plugin.filter(request, candidates)
            len(kept)
        except Exception as error:  # noqa: BLE001 - a plugin's fault is no request's
            self._watch.raised(each, error)
            return candidates
        self._watch.too_slow(each, began)
        return kept

    def _added(
        self,
        each: Named[Scorer],
        add: _Add | None,
        request: PickRequest,
        candidates: Candidates,
        totals: list[float] | None,
    ) -> list[float] | None:
        """The totals with one more scorer's part; the same ones if it has no vote."""
        began = self._watch.now()
        try:
            if add is not None and totals is not None:
                added = add(request, candidates, each.weight, totals)
                if added is None:
                    return totals
            else:
                scores = each.plugin.score(request, candidates)
                if scores is NO_VOTE:
                    return totals
                if len(scores) != len(candidates):
                    raise ValueError(f"{len(scores)} scores for {len(candidates)} endpoints")
                added = _sums(scores, each.weight, each.whole, totals)
        except Exception as error:  # noqa: BLE001 - a plugin's fault is no request's
            self._watch.raised(each, error)
            return totals
        if not each.whole and self._watch.too_slow(each, began):
            return totals
        return added

    def _ordered(self, candidates: Candidates, scores: list[float]) -> Candidates:
        began = self._watch.now()
        try:
            chosen = self._picker.plugin.order(candidates, scores)
            if not chosen:
                raise ValueError("the picker chose nobody")
            for each in chosen:
                if not isinstance(each, EndpointState):
                    raise TypeError("the picker chose what is no endpoint")
        except Exception as error:  # noqa: BLE001 - a plugin's fault is no request's
            self._watch.raised(self._picker, error)
            return (candidates[scores.index(max(scores))],)
        self._watch.too_slow(self._picker, began)
        return chosen


def _sums(
    scores: Sequence[float], weight: float, whole: bool, totals: list[float] | None
) -> list[float]:
    """One scorer's part, clamped and weighted unless it is `whole`, added to the totals."""
    if whole:
        part = list(scores)
        return part if totals is None else list(map(float.__add__, totals, part))
    if totals is None:
        return [
            weight * value if 0.0 <= value <= 1.0 else weight * clamped(value) for value in scores
        ]
    return [
        total + (weight * value if 0.0 <= value <= 1.0 else weight * clamped(value))
        for total, value in zip(totals, scores, strict=True)
    ]


def clamped(value: float) -> float:
    """Into 0..1; what is no number is 0."""
    return 1.0 if value > 1.0 else 0.0
