"""Pickers: who of those rated gets the request, and who would be next.

With `maxNumOfEndpoints` above 1 the gateway is given a list of fallbacks.
"""

from collections.abc import Callable, Sequence
from typing import Final

from epp_worker.scheduling.endpoint import EndpointState
from epp_worker.scheduling.plugin import Candidates, PluginContext, PluginType
from fleet.picking.parameters import PickerParameters

TIE: Final = 1e-9
"""Scores closer than this are equal; arithmetic noise must not make one pod the favourite."""


class _Picker:
    def __init__(self, parameters: PickerParameters, context: PluginContext) -> None:
        self._most = max(1, parameters.max_num_of_endpoints)
        self._random: Callable[[], float] = context.random


class MaxScorePicker(_Picker):
    """The best; of equals who has the fewest requests in flight, and then any."""

    def order(self, candidates: Candidates, scores: Sequence[float]) -> Candidates:
        """See `EndpointPicker.order`."""
        if self._most == 1:
            return (self._best(candidates, scores),)
        ranked = sorted(
            range(len(candidates)),
            key=lambda i: (-round(scores[i] / TIE), candidates[i].inflight, self._random()),
        )
        return [candidates[i] for i in ranked[: self._most]]

    def _best(self, candidates: Candidates, scores: Sequence[float]) -> EndpointState:
        values = list(scores)
        top = values[0]
        for value in values:
            if value > top:
                top = value
        limit = top - TIE
        equals = [candidates[i] for i, value in enumerate(values) if value >= limit]
        if len(equals) > 1:
            fewest = min(c.inflight for c in equals)
            equals = [c for c in equals if c.inflight == fewest]
        if len(equals) == 1:
            return equals[0]
        return equals[int(self._random() * len(equals))]


class RandomPicker(_Picker):
    """Any, whatever the scores."""

    def order(self, candidates: Candidates, scores: Sequence[float]) -> Candidates:
        """See `EndpointPicker.order`."""
        del scores
        if self._most == 1:
            return (candidates[int(self._random() * len(candidates))],)
        return sorted(candidates, key=lambda _: self._random())[: self._most]


class WeightedRandomPicker(RandomPicker):
    """Any, the likelier the better rated: by U^(1/score), those at 0 last."""

    def order(self, candidates: Candidates, scores: Sequence[float]) -> Candidates:
        """See `EndpointPicker.order`."""
        if max(scores) <= 0:
            return super().order(candidates, scores)
        keys = [
            (self._random() or 1e-10) ** (1.0 / score) if score > 0 else 0.0 for score in scores
        ]
        ranked = sorted(range(len(candidates)), key=lambda i: -keys[i])
        return [candidates[i] for i in ranked[: self._most]]


TYPES = (
    PluginType("max-score-picker", PickerParameters, MaxScorePicker),
    PluginType("random-picker", PickerParameters, RandomPicker),
    PluginType("weighted-random-picker", PickerParameters, WeightedRandomPicker),
)
