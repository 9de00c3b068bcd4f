"""What the owner of a workload says of requests to one pool: how urgent, and which model instead.

The rules are those of the reference endpoint picker, with one difference: what it looks up by name
alone is looked up here within one pool, as one process serves many.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from fleet.model.identity import ObjectRef, PoolReference


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
    """

    targets: tuple[Target, ...]
    models: frozenset[str] = frozenset()


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


Fact = TypeVar("Fact", Objective, Rewrite)


class ChosenRule(NamedTuple):
    """A rule and the rewrite it stands in."""

    rewrite: Rewrite
    rule: Rule


def by_pool(facts: Iterable[Fact]) -> dict[PoolReference, tuple[Fact, ...]]:
    """Objectives or rewrites by their pool, so that a request looks at those of its own only."""
    found: dict[PoolReference, list[Fact]] = {}
    for fact in facts:
        found.setdefault(fact.pool, []).append(fact)
    return {pool: tuple(members) for pool, members in found.items()}


def priority_of(objectives: Iterable[Objective], pool: PoolReference, name: str) -> int:
    """The priority of a request to `pool` that names the objective `name`.

    0 if there is no such objective or it is of another pool: one of the same name, or of the other
    API group. A wrong name must not fail a request.
    """
    for objective in objectives:
        if objective.ref == ObjectRef(pool.namespace, name) and objective.pool == pool:
            return objective.priority
    return 0


def rule_of(rewrites: Iterable[Rewrite], pool: PoolReference, model: str) -> ChosenRule | None:
    """The one rule for requests to `pool` for `model`; None = nothing is rewritten.

    A rule that names the model wins over one for any model; then the rewrite that was created
    first, of those created at once the first by name; then the rule that stands first.

    Args:
        model: as the client asked for it; "" = it named none.
    """
    generic: ChosenRule | None = None
    of_pool = (each for each in rewrites if each.pool == pool)
    for rewrite in sorted(of_pool, key=lambda each: (each.created, each.ref)):
        for rule in rewrite.rules:
            if model in rule.models:
                return ChosenRule(rewrite, rule)
            if generic is None and not rule.models:
                generic = ChosenRule(rewrite, rule)
    return generic


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


def target_of(
    rewrites: Iterable[Rewrite], pool: PoolReference, model: str, chance: float
) -> str | None:
    """The model to ask for instead of `model`; None = nothing is rewritten.

    Args:
        chance: see `pick_target`.
    """
    chosen = rule_of(rewrites, pool, model)
    return None if chosen is None else pick_target(chosen.rule.targets, chance).model
