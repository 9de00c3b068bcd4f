"""Objectives and rewrites: what is accepted, what is refused, and in which words."""

from typing import Any

import pytest

from fleet.errors import ManifestError
from fleet.model import Objective, ObjectRef, PoolReference, Rewrite, Rule, Target
from fleet.sources.contract import Kind, Object, ObjectKey
from fleet.sources.identify import Identity, derived_uid, identify
from fleet.sources.parse import parse
from tests import manifest_texts as texts

GROUP = "inference.networking.k8s.io"
OLD_GROUP = "inference.networking.x-k8s.io"
POOL = PoolReference("ns1", "pool-a", GROUP)


def read(raw: dict[str, Any]) -> Object:
    identity = identify(raw)
    assert identity is not None
    return parse(identity, raw)  # type: ignore[arg-type]


def read_rewrite(raw: dict[str, Any]) -> Rewrite:
    found = read(raw)
    assert isinstance(found, Rewrite)
    return found


@pytest.mark.parametrize("api", [texts.LLM_D, texts.X_K8S])
@pytest.mark.parametrize(
    ("spec", "priority"),
    [
        ({"priority": 4}, 4),
        ({"priority": None}, 0),
        ({"priority": -1}, -1),
        ({"priority": 2147483647}, 2147483647),
        ({"priority": -2147483648}, -2147483648),
    ],
)
def test_an_objective_is_read_whole(api: str, spec: dict[str, Any], priority: int) -> None:
    """The same from both groups; without a priority it is 0; any int32 will do."""
    assert read(texts.objective(api=api, **spec)) == Objective(
        ObjectRef("ns1", "urgent"),
        derived_uid("InferenceObjective", "ns1", "urgent"),
        POOL,
        priority,
    )


@pytest.mark.parametrize("api", [texts.LLM_D, texts.X_K8S])
def test_a_rewrite_is_read_whole(api: str) -> None:
    """Matches, targets with and without weights, and when it was created."""
    raw = texts.rewrite(
        api=api,
        poolRef={"group": OLD_GROUP, "kind": "InferencePool", "name": "old.pool"},
        rules=[
            {
                "matches": [
                    {"model": {"type": "Exact", "value": "chat"}},
                    {"model": {"value": "org/Chat 2"}},
                ],
                "targets": [
                    {"modelRewrite": "chat-v1", "weight": 1000000},
                    {"modelRewrite": "chat-v2", "weight": 1},
                    {"modelRewrite": "chat-v3"},
                ],
            },
            {"targets": [{"modelRewrite": "any"}]},
        ],
    )
    raw["metadata"] |= {"uid": "u-1", "creationTimestamp": "2026-01-31T12:00:00Z"}
    assert read(raw) == Rewrite(
        ref=ObjectRef("ns1", "canary"),
        uid="u-1",
        pool=PoolReference("ns1", "old.pool", OLD_GROUP),
        rules=(
            Rule(
                (Target("chat-v1", 1000000), Target("chat-v2", 1), Target("chat-v3")),
                frozenset({"chat", "org/Chat 2"}),
            ),
            Rule((Target("any"),)),
        ),
        created=1769860800.0,
    )


@pytest.mark.parametrize("matches", [None, []])
def test_a_rule_without_matches_is_for_any_model(matches: object) -> None:
    """Left out or empty, as the API has it."""
    rule = {"matches": matches, "targets": [{"modelRewrite": "x"}]}
    assert read_rewrite(texts.rewrite(rules=[rule])).rules == (Rule((Target("x"),)),)


def test_a_rewrite_may_have_no_rules() -> None:
    """An API server accepts it: it rewrites nothing."""
    assert read_rewrite(texts.rewrite(rules=[])).rules == ()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (None, 0.0),
        ("1970-01-01T00:00:01Z", 1.0),
        ("1970-01-01T01:00:01+01:00", 1.0),
        ("1970-01-01T00:00:01.5Z", 1.5),
        ("1970-01-01T00:00:01", 1.0),
    ],
)
def test_the_time_of_creation(text: str | None, seconds: float) -> None:
    """In seconds; a file mostly has none, and then all are of one age."""
    raw = texts.rewrite()
    raw["metadata"]["creationTimestamp"] = text
    assert read_rewrite(raw).created == seconds


def test_llm_d_outranks_the_older_group() -> None:
    """Both name one object; the rank says which wins."""
    key = ObjectKey("ns1", "x")
    for kind, make in ((Kind.OBJECTIVE, texts.objective), (Kind.REWRITE, texts.rewrite)):
        assert identify(make("x")) == Identity(kind, key, 0)
        assert identify(make("x", api=texts.X_K8S)) == Identity(kind, key, 1)


POOL_FAULTS: list[tuple[dict[str, Any], str]] = [
    (
        {"poolRef": None},
        "spec.poolRef: missing; give the `name` of an InferencePool of the same namespace",
    ),
    ({"poolRef": {}}, "spec.poolRef.name: missing; it is required"),
    ({"poolRef": "a"}, "spec.poolRef: 'a' is no mapping; give `key: value` lines"),
    (
        {"poolRef": {"name": ""}},
        "spec.poolRef.name: '' is no InferencePool's name; "
        "use at most 253 of a-z, 0-9, '-' and '.'",
    ),
    (
        {"poolRef": {"name": "a", "kind": "Service"}},
        "spec.poolRef.kind: 'Service' cannot be referred to; use InferencePool",
    ),
    (
        {"poolRef": {"name": "a", "group": ""}},
        f"spec.poolRef.group: '' is unknown; use {GROUP} or {OLD_GROUP}",
    ),
]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        *POOL_FAULTS,
        (
            {"priority": 2147483648},
            "spec.priority: 2147483648 is out of range; give one from -2147483648 to 2147483647",
        ),
        (
            {"priority": -2147483649},
            "spec.priority: -2147483649 is out of range; give one from -2147483648 to 2147483647",
        ),
        (
            {"priority": "1"},
            "spec.priority: '1' is no whole number; "
            "give one from -2147483648 to 2147483647, without quotes",
        ),
        (
            {"priority": 1.0},
            "spec.priority: 1.0 is no whole number; "
            "give one from -2147483648 to 2147483647, without quotes",
        ),
        (
            {"priority": True},
            "spec.priority: True is no whole number; "
            "give one from -2147483648 to 2147483647, without quotes",
        ),
    ],
)
def test_each_defect_of_an_objective_has_its_own_message(
    spec: dict[str, Any], message: str
) -> None:
    """Object, field path, fault and remedy."""
    with pytest.raises(ManifestError) as caught:
        read(texts.objective(**spec))
    assert str(caught.value) == f"InferenceObjective ns1/urgent: {message}"


def rules(**rule: Any) -> dict[str, Any]:
    """A spec whose second rule is what a test cares about."""
    good = {"targets": [{"modelRewrite": "x"}]}
    return {"rules": [good, {**good, **rule}]}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        *POOL_FAULTS,
        ({"rules": None}, "spec.rules: missing; give a list"),
        ({"rules": {}}, "spec.rules: a mapping is no list; give `- ` items"),
        (
            rules(targets=[]),
            "spec.rules[1].targets: no target; give items `- modelRewrite: <model>`",
        ),
        (
            rules(targets=None),
            "spec.rules[1].targets: no target; give items `- modelRewrite: <model>`",
        ),
        (
            rules(targets=[{"weight": 1}]),
            "spec.rules[1].targets[0].modelRewrite: missing; it is required",
        ),
        (
            rules(targets=[{"modelRewrite": ""}]),
            "spec.rules[1].targets[0].modelRewrite: empty; give the name of a model",
        ),
        (
            rules(targets=[{"modelRewrite": "x", "weight": 1}, {"modelRewrite": "y", "weight": 0}]),
            "spec.rules[1].targets[1].weight: 0 is out of range; give one from 1 to 1000000",
        ),
        (
            rules(targets=[{"modelRewrite": "x", "weight": 1000001}]),
            "spec.rules[1].targets[0].weight: 1000001 is out of range; give one from 1 to 1000000",
        ),
        (
            rules(targets=[{"modelRewrite": "x", "weight": 0.5}]),
            "spec.rules[1].targets[0].weight: 0.5 is no whole number; "
            "give one from 1 to 1000000, without quotes",
        ),
        (
            rules(matches=[{"model": {"type": "Prefix", "value": "chat"}}]),
            "spec.rules[1].matches[0].model.type: 'Prefix' is unknown; use Exact",
        ),
        (
            rules(matches=[{}]),
            "spec.rules[1].matches[0].model: missing; "
            "give the `value` to match, or leave `matches` out for any",
        ),
        (
            rules(matches=[{"model": {}}]),
            "spec.rules[1].matches[0].model.value: missing; it is required",
        ),
        (
            rules(matches=[{"model": {"value": ""}}]),
            "spec.rules[1].matches[0].model.value: empty; give the name of a model",
        ),
    ],
)
def test_each_defect_of_a_rewrite_has_its_own_message(spec: dict[str, Any], message: str) -> None:
    """Object, field path, fault and remedy; one bad rule refuses the whole."""
    with pytest.raises(ManifestError) as caught:
        read(texts.rewrite(**spec))
    assert str(caught.value) == f"InferenceModelRewrite ns1/canary: {message}"


@pytest.mark.parametrize("created", ["yesterday", "", "2026-13-01T00:00:00Z"])
def test_a_time_that_is_none(created: str) -> None:
    """The order of rewrites rests on it."""
    raw = texts.rewrite()
    raw["metadata"]["creationTimestamp"] = created
    with pytest.raises(
        ManifestError, match=r"creationTimestamp: '.*' is no time; write it like 2026-01-31T12:00"
    ):
        read(raw)


@pytest.mark.parametrize("raw", [texts.objective(), texts.rewrite()])
def test_without_a_spec(raw: dict[str, Any]) -> None:
    """A partial object is refused by name."""
    with pytest.raises(ManifestError, match=r"^Inference\w+ ns1/\w+: spec: missing; it is requ"):
        read({**raw, "spec": None})
