"""InferenceObjectives and InferenceModelRewrites to facts: pure.

They are the same in both API groups. One that cannot be understood whole is refused whole: half of
its rules would send requests where nobody meant them to go.
"""

from datetime import UTC, datetime

from fleet.model import Objective, ObjectRef, PoolReference, Rewrite, Rule, Target
from fleet.sources.contract import Kind, ObjectKey
from fleet.sources.fields import Field, is_dns_subdomain, shown, spec_of
from fleet.sources.identify import OLD_POOL_GROUP, POOL_GROUP, uid_of

MIN_PRIORITY, MAX_PRIORITY = -(2**31), 2**31 - 1
MIN_WEIGHT, MAX_WEIGHT = 1, 1_000_000


def parse_objective(key: ObjectKey, top: Field) -> Objective:
    """An InferenceObjective; without a priority it has 0."""
    spec = spec_of(top)
    priority = spec.get("priority")
    return Objective(
        ref=ObjectRef(*key),
        uid=uid_of(Kind.OBJECTIVE, key, top),
        pool=_pool(key.namespace, spec.get("poolRef")),
        priority=0 if priority.missing else priority.integer(MIN_PRIORITY, MAX_PRIORITY),
    )


def parse_rewrite(key: ObjectKey, top: Field) -> Rewrite:
    """An InferenceModelRewrite; without rules, as the API allows, it rewrites nothing.

    A rule in which no target, or not every target, has a weight is read as it is: what that means
    is said by `fleet.model.rewrites.pick_target`.
    """
    spec = spec_of(top)
    return Rewrite(
        ref=ObjectRef(*key),
        uid=uid_of(Kind.REWRITE, key, top),
        pool=_pool(key.namespace, spec.get("poolRef")),
        rules=tuple(_rule(rule) for rule in spec.get("rules").required("give a list").items()),
        created=_seconds(top.get("metadata").get("creationTimestamp")),
    )


def _pool(namespace: str, ref: Field) -> PoolReference:
    ref.required("give the `name` of an InferencePool of the same namespace")
    kind, name = ref.get("kind"), ref.get("name")
    if kind.text("InferencePool") != "InferencePool":
        raise kind.fault(f"{shown(kind.value)} cannot be referred to", "use InferencePool")
    if not is_dns_subdomain(name.text()):
        raise name.fault(
            f"{shown(name.value)} is no InferencePool's name",
            "use at most 253 of a-z, 0-9, '-' and '.'",
        )
    group = ref.get("group").choice((POOL_GROUP, OLD_POOL_GROUP), POOL_GROUP)
    return PoolReference(namespace, name.text(), group)


def _rule(rule: Field) -> Rule:
    targets = tuple(_target(target) for target in rule.get("targets").items())
    if not targets:
        raise rule.get("targets").fault("no target", "give items `- modelRewrite: <model>`")
    return Rule(targets, frozenset(_matched(match) for match in rule.get("matches").items()))


def _matched(match: Field) -> str:
    model = match.get("model").required("give the `value` to match, or leave `matches` out for any")
    model.get("type").choice(("Exact",), "Exact")
    return _model(model.get("value"))


def _target(target: Field) -> Target:
    weight = target.get("weight")
    return Target(
        _model(target.get("modelRewrite")),
        None if weight.missing else weight.integer(MIN_WEIGHT, MAX_WEIGHT),
    )


def _model(field: Field) -> str:
    if not field.text():
        raise field.fault("empty", "give the name of a model")
    return field.text()


def _seconds(created: Field) -> float:
    """RFC 3339 to seconds since 1970; 0 where it is missing, as in most files."""
    if created.missing:
        return 0.0
    try:
        moment = datetime.fromisoformat(created.text())
    except ValueError:
        raise created.fault(
            f"{shown(created.value)} is no time", "write it like 2026-01-31T12:00:00Z"
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
