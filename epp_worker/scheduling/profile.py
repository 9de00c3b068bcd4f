"""Runs one profile: filters narrow, scorers rate, the picker orders.

A plugin that raises loses its vote: a filter lets everybody pass, a scorer adds nothing, and for a
picker the best rated is taken. So does a scorer that is slow. A filter or picker that is slow has
its say all the same: what it decides may be about what can work at all.
"""

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from epp_worker.scheduling.contract import PickRequest
from epp_worker.scheduling.endpoint import EndpointState
from epp_worker.scheduling.faults import SLOW_SECONDS, PluginFaults
from epp_worker.scheduling.plugin import NO_VOTE, Candidates, EndpointPicker, Filter, Scorer
from fleet.model.identity import PoolRef

P = TypeVar("P", covariant=True)


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
    """Counts the faults of one pool's plugins."""

    __slots__ = ("_faults", "_pool", "now")

    def __init__(self, pool: PoolRef, faults: PluginFaults, now: Callable[[], float]) -> None:
        self._pool = pool
        self._faults = faults
        self.now = now

    def raised(self, plugin: Named[object], error: Exception) -> None:
        """See `PluginFaults.raised`."""
        self._faults.raised(self._pool, plugin.name, plugin.type, error)

    def too_slow(self, plugin: Named[object], began: float) -> bool:
        """Whether a call that began then took too long; counts it if so."""
        took = self.now() - began
        if took <= SLOW_SECONDS or took <= getattr(plugin.plugin, "allowed_seconds", 0.0):
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
        self._scorers = tuple(scorers)
        self._picker = picker
        self._watch = watch

    def run(self, request: PickRequest, candidates: Candidates) -> Candidates:
        """See `Profile.run`."""
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
        for each in self._scorers:
            part = self._rated(each, request, candidates)
            if part is not None:
                totals = part if totals is None else list(map(float.__add__, totals, part))
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

    def _rated(
        self, each: Named[Scorer], request: PickRequest, candidates: Candidates
    ) -> list[float] | None:
        began = self._watch.now()
        try:
            scores = each.plugin.score(request, candidates)
            if scores is NO_VOTE:
                return None
            if len(scores) != len(candidates):
                raise ValueError(f"{len(scores)} scores for {len(candidates)} endpoints")
            if each.whole:
                part = list(scores)
            else:
                weight = each.weight
                part = [
                    weight * value if 0.0 <= value <= 1.0 else weight * clamped(value)
                    for value in scores
                ]
        except Exception as error:  # noqa: BLE001 - a plugin's fault is no request's
            self._watch.raised(each, error)
            return None
        if each.whole:
            return part
        return None if self._watch.too_slow(each, began) else part

    def _ordered(self, candidates: Candidates, scores: list[float]) -> Candidates:
        began = self._watch.now()
        try:
            chosen = self._picker.plugin.order(candidates, scores)
            if not all(isinstance(each, EndpointState) for each in chosen) or not chosen:
                raise ValueError("the picker chose nobody, or no endpoint")
        except Exception as error:  # noqa: BLE001 - a plugin's fault is no request's
            self._watch.raised(self._picker, error)
            return (candidates[scores.index(max(scores))],)
        self._watch.too_slow(self._picker, began)
        return chosen


def clamped(value: float) -> float:
    """Into 0..1; what is no number is 0."""
    return 1.0 if value > 1.0 else 0.0
