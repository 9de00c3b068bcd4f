"""How long each step of a group's way to another worker takes, read off published maps. Pure.

`open`: a planned move from its begin until the gainer owns the group. `acknowledge`: a first
placement or a fail-over until the new owner reports that it serves. `drain`: from then on until the
former owner is done with it. What another leader began is not measured.
"""

from collections.abc import Iterable
from enum import StrEnum

from fleet.metrics import Histogram
from fleet.metrics.histogram import LONG_SECONDS
from fleet.model import GroupKey, Phase, Placement, ShardMap


class Step(StrEnum):
    """See the module."""

    OPEN = "open"
    ACKNOWLEDGE = "acknowledge"
    DRAIN = "drain"


class HandoverSteps:
    """The steps of one term's groups."""

    def __init__(self) -> None:
        self.seconds = {step: Histogram(LONG_SECONDS) for step in Step}
        self._begun: dict[tuple[GroupKey, Step, str], float] = {}

    def follow(
        self, before: ShardMap | None, after: ShardMap, looked: Iterable[GroupKey], now: float
    ) -> None:
        """`after` was published at monotonic `now`, after `before`; all that differs in it is
        among the groups `looked`."""
        known = {} if before is None else before.placements
        for group in looked:
            old, new = known.get(group), after.placements.get(group)
            if new is not None and new is not old:
                self._changed(old, new, now)
        self._forget(after)

    def _changed(self, old: Placement | None, new: Placement, now: float) -> None:
        were, are = _steps(old), _steps(new)
        for step, worker in were - are:
            began = self._begun.pop((new.group, step, worker), None)
            if began is not None and _done(step, worker, new):
                self.seconds[step].observe(max(0.0, now - began))
        for step, worker in are - were:
            self._begun[new.group, step, worker] = now

    def _forget(self, shard_map: ShardMap) -> None:
        gone = [key for key in self._begun if key[0] not in shard_map.placements]
        for key in gone:
            del self._begun[key]

    def rest(self) -> None:
        """The term is over."""
        self._begun.clear()


def _steps(placement: Placement | None) -> set[tuple[Step, str]]:
    """The steps under way, each with the worker that takes it."""
    if placement is None:
        return set()
    found = {(Step.DRAIN, worker) for worker in placement.draining}
    if placement.moving_to is not None:
        found.add((Step.OPEN, placement.moving_to))
    if placement.phase is Phase.OPENING:
        found.update((Step.ACKNOWLEDGE, worker) for worker in placement.owners)
    return found


def _done(step: Step, worker: str, after: Placement) -> bool:
    """Whether the step came to its end, rather than being given up."""
    if step is Step.DRAIN:
        return worker not in after.owners and worker != after.moving_to
    return worker in after.owners
