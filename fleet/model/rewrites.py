"""What the owner of a workload says of requests to one pool: how urgent, and which model instead.

The rules are those of the reference endpoint picker, with one difference: what it looks up by name
alone is looked up here within one pool, as one process serves many.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fleet.model.identity import ObjectRef, PoolReference

MAX_NAMES = 4096
"""Models that the rewrites of one pool name: all are gone through whenever one of them changes, and
who may write one may write thousands."""


@dataclass(frozen=True, slots=True)
class Objective:
    """An InferenceObjective.

    Attributes:
        pool: the only one for whose requests it counts.
        priority: higher is served first; below 0 may be shed.
    """

    ref: ObjectRef
    uid: str
    pool: PoolReference
    priority: int = 0


class Target(NamedTuple):
    """A model to ask for instead, and its part of the requests among the rule's weights."""

    model: str
    weight: int | None = None


class Rule(NamedTuple):
    """One rule of a rewrite.

    Attributes:
        targets: at least one.
        models: that are rewritten, each by its exact name; empty = any, also none at all.
        rewrite: the name of the InferenceModelRewrite; "" in that object itself.
    """

    targets: tuple[Target, ...]
    models: frozenset[str] = frozenset()
    rewrite: str = ""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """An InferenceModelRewrite.

    Attributes:
        pool: the only one whose requests are rewritten.
        created: seconds since 1970; 0 where the object does not say.
    """

    ref: ObjectRef
    uid: str
    pool: PoolReference
    rules: tuple[Rule, ...]
    created: float = 0.0


@dataclass(frozen=True, slots=True)
class Intents:
    """What is said of requests to one pool, ready to be looked up with each of them.

    Attributes:
        priorities: of the pool's objectives, by name.
        exact: the rule for each model that one names.
        generic: the rule for all others; None = there is none.
        models: that somebody wrote down, as what is asked for or as a target.
        left_out: rewrites that do not count, or not whole, since the pool's name too many models.
    """

    priorities: Mapping[str, int] = field(default_factory=dict)
    exact: Mapping[str, Rule] = field(default_factory=dict)
    generic: Rule | None = None
    models: frozenset[str] = frozenset()
    left_out: int = 0

    def priority(self, objective: str) -> int:
        """The priority of a request that names this objective; 0 if the pool has none of that name:
        a wrong name must not fail a request."""
        return self.priorities.get(objective, 0)

    def rule(self, model: str) -> Rule | None:
        """What is said of this model ("" = none); None = nothing."""
        return self.exact.get(model, self.generic)

    def target(self, model: str, chance: Callable[[], float]) -> str | None:
        """The model to ask for instead of `model` ("" = the request names none); None = nothing is
        rewritten.

        Args:
            chance: see `pick_target`; only called for a rule that has a choice.
        """
        rule = self.rule(model)
        if rule is None:
            return None
        targets = rule.targets
        return targets[0].model if len(targets) == 1 else pick_target(targets, chance()).model


NO_INTENTS = Intents()


def intents_of(
    objectives: Iterable[Objective], rewrites: Iterable[Rewrite], pool: PoolReference
) -> Intents:
    """What of these is of `pool`: an objective or rewrite that names it, of its own API group.

    A rule that names a model wins over one for any model; then the rewrite that was created first,
    of those created at once the first by name; then the rule that stands first. So a pool whose
    rewrites name more than `MAX_NAMES` keeps the older ones.
    """
    priorities = {
        each.ref.name: each.priority
        for each in objectives
        if each.pool == pool and each.ref.namespace == pool.namespace
    }
    exact: dict[str, Rule] = {}
    generic: Rule | None = None
    of_pool = [each for each in rewrites if each.pool == pool]
    of_pool.sort(key=lambda each: (each.created, each.ref))
    left, left_out = MAX_NAMES, 0
    for index, rewrite in enumerate(of_pool):
        for each in rewrite.rules:
            left -= len(each.models) + len(each.targets)
            if left < 0:
                break
            rule = each._replace(rewrite=rewrite.ref.name)
            for model in rule.models:
                exact.setdefault(model, rule)
            if generic is None and not rule.models:
                generic = rule
        if left < 0:
            left_out = len(of_pool) - index
            break
    if not (priorities or exact or generic or left_out):
        return NO_INTENTS
    rules = (*exact.values(), *([] if generic is None else [generic]))
    targets = frozenset(target.model for rule in rules for target in rule.targets)
    return Intents(priorities, exact, generic, targets.union(exact), left_out)


def pick_target(targets: Sequence[Target], chance: float) -> Target:
    """One of a rule's targets, each by its part of all weights.

    With no weight above 0 all are equally likely; otherwise one without a weight is never chosen.

    Args:
        targets: at least one.
        chance: uniformly random, 0 <= chance < 1.
    """
    total = sum(target.weight or 0 for target in targets)
    if total == 0:
        return targets[int(chance * len(targets))]
    rest = int(chance * total)
    for target in targets:
        rest -= target.weight or 0
        if rest < 0:
            return target
    raise ValueError(f"chance must be at least 0 and below 1, not {chance}")
