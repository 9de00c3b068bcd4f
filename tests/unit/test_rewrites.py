"""Which priority and which model a request gets by the objectives and rewrites of its pool."""

import pytest

from fleet.model import Objective, ObjectRef, Pool, PoolRef, PoolReference, Rewrite, Rule, Target
from fleet.model.rewrites import MAX_NAMES, NO_INTENTS, intents_of, pick_target

GROUP = "inference.networking.k8s.io"
OLD_GROUP = "inference.networking.x-k8s.io"
POOL = PoolReference("ns1", "a", GROUP)


def objective(name: str, priority: int, pool: PoolReference = POOL) -> Objective:
    return Objective(ObjectRef(pool.namespace, name), "u", pool, priority)


def rewrite(name: str, *rules: Rule, created: float = 0.0, pool: PoolReference = POOL) -> Rewrite:
    return Rewrite(ObjectRef(pool.namespace, name), "u", pool, rules, created)


def exact(target: str, *models: str) -> Rule:
    return Rule((Target(target),), frozenset(models))


def generic(target: str) -> Rule:
    return Rule((Target(target),))


@pytest.mark.parametrize(
    ("api_version", "group"),
    [
        ("inference.networking.k8s.io/v1", GROUP),
        ("inference.networking.x-k8s.io/v1alpha2", OLD_GROUP),
    ],
)
def test_a_pool_is_referred_to_by_its_own_group(api_version: str, group: str) -> None:
    """Name and group must both agree."""
    pool = Pool(PoolRef("ns1", "a"), "u", {}, (8000,), None, api_version=api_version)
    assert pool.reference == PoolReference("ns1", "a", group)


@pytest.mark.parametrize(
    ("pool", "name", "priority"),
    [
        (POOL, "urgent", 7),
        (POOL, "batch", -3),
        (POOL, "unknown", 0),
        (POOL, "", 0),
        (POOL, "of-b", 0),
        (POOL._replace(name="b"), "of-b", 5),
        (POOL._replace(namespace="ns2"), "urgent", 2),
        (POOL._replace(namespace="ns3"), "urgent", 0),
        (POOL._replace(group=OLD_GROUP), "urgent", 0),
    ],
)
def test_the_priority_is_that_of_the_pools_own_objective(
    pool: PoolReference, name: str, priority: int
) -> None:
    """Of another pool, namespace or group it counts for nothing, and nothing is 0."""
    known = [
        objective("urgent", 2, POOL._replace(namespace="ns2")),
        objective("urgent", 7),
        objective("batch", -3),
        objective("of-b", 5, POOL._replace(name="b")),
    ]
    assert intents_of(known, [], pool).priority(name) == priority


@pytest.mark.parametrize(
    ("rewrites", "model", "target"),
    [
        pytest.param([], "m", None, id="nothing"),
        pytest.param([rewrite("r")], "m", None, id="no rule"),
        pytest.param([rewrite("r", exact("x", "m"))], "m", "x", id="exact"),
        pytest.param([rewrite("r", exact("x", "m"))], "M", None, id="another case"),
        pytest.param([rewrite("r", exact("x", "m"))], "m-1", None, id="a longer name"),
        pytest.param([rewrite("r", exact("x", "k", "m"))], "m", "x", id="one of several"),
        pytest.param([rewrite("r", generic("x"))], "m", "x", id="generic"),
        pytest.param([rewrite("r", generic("x"))], "", "x", id="generic without a model"),
        pytest.param([rewrite("r", exact("x", "m"))], "", None, id="exact without a model"),
        pytest.param(
            [rewrite("r", generic("x"), exact("y", "m"))], "m", "y", id="exact beats generic"
        ),
        pytest.param(
            [rewrite("a", generic("x"), created=1), rewrite("b", exact("y", "m"), created=2)],
            "m",
            "y",
            id="exact beats an older generic",
        ),
        pytest.param(
            [rewrite("a", exact("x", "m"), created=2), rewrite("b", exact("y", "m"), created=1)],
            "m",
            "y",
            id="oldest exact",
        ),
        pytest.param(
            [rewrite("a", generic("x"), created=2), rewrite("b", generic("y"), created=1)],
            "m",
            "y",
            id="oldest generic",
        ),
        pytest.param(
            [rewrite("b", generic("x"), created=1), rewrite("a", generic("y"), created=1)],
            "m",
            "y",
            id="of one age the first by name",
        ),
        pytest.param(
            [rewrite("r", exact("x", "m"), exact("y", "m"))], "m", "x", id="first rule of one"
        ),
        pytest.param(
            [rewrite("r", generic("x"), generic("y"))], "m", "x", id="first generic rule of one"
        ),
        pytest.param(
            [rewrite("r", generic("x"), pool=POOL._replace(name="b"))], "m", None, id="other pool"
        ),
        pytest.param(
            [rewrite("r", generic("x"), pool=POOL._replace(namespace="ns2"))],
            "m",
            None,
            id="other namespace",
        ),
        pytest.param(
            [rewrite("r", generic("x"), pool=POOL._replace(group=OLD_GROUP))],
            "m",
            None,
            id="other group",
        ),
    ],
)
def test_one_rule_decides(rewrites: list[Rewrite], model: str, target: str | None) -> None:
    """Exact before generic, older before younger; the order in which they are known is none."""
    for known in (rewrites, rewrites[::-1]):
        assert intents_of([], known, POOL).target(model, lambda: 0.5) == target


def test_a_choice_is_made_by_chance_and_only_then() -> None:
    """A rule of one target needs none."""
    rule = Rule((Target("x", 1), Target("y", 3)), frozenset({"m"}))
    intents = intents_of([], [rewrite("r", rule, exact("z", "k"))], POOL)
    assert intents.target("m", lambda: 0.1) == "x"
    assert intents.target("m", lambda: 0.3) == "y"

    def never() -> float:
        raise AssertionError("no choice to make")

    assert intents.target("k", never) == "z"


@pytest.mark.parametrize(
    ("weights", "chances"),
    [
        # weights of the targets 0, 1, ... -> chance: the target that is chosen
        ((None,), {0.0: 0, 0.999: 0}),
        ((5,), {0.0: 0, 0.999: 0}),
        ((90, 10), {0.0: 0, 0.899: 0, 0.901: 1, 0.999: 1}),
        ((1, 1, 2), {0.24: 0, 0.26: 1, 0.49: 1, 0.51: 2, 0.99: 2}),
        ((1_000_000, 1), {0.0: 0, 0.999998: 0, 0.9999995: 1}),
        ((None, None), {0.0: 0, 0.49: 0, 0.5: 1, 0.99: 1}),
        ((0, 0, 0), {0.33: 0, 0.34: 1, 0.67: 2}),
        ((None, 0), {0.49: 0, 0.5: 1}),
        ((None, 3, None), {0.0: 1, 0.5: 1, 0.999: 1}),
        ((None, 1, 3), {0.0: 1, 0.24: 1, 0.26: 2}),
        ((1, 0, 1), {0.49: 0, 0.5: 2}),
    ],
)
def test_targets_are_chosen_by_weight(
    weights: tuple[int | None, ...], chances: dict[float, int]
) -> None:
    """All without a weight, or all 0: evenly. Some with one: those without are never chosen."""
    targets = [Target(str(index), weight) for index, weight in enumerate(weights)]
    assert {chance: int(pick_target(targets, chance).model) for chance in chances} == chances


@pytest.mark.parametrize("count", [1, 2, 3, 7, 1_000_003])
def test_the_greatest_chance_is_still_inside(count: int) -> None:
    """No rounding leads past the last target."""
    greatest = 1.0 - 2.0**-53
    assert pick_target([Target("a", count), Target("b", 1)], greatest) == Target("b", 1)
    few = [Target(str(index)) for index in range(min(count, 7))]
    assert pick_target(few, greatest) == few[-1]


@pytest.mark.parametrize("chance", [1.0, 1.5])
def test_no_chance_is_1(chance: float) -> None:
    """It would lead past the last target."""
    with pytest.raises(ValueError, match=f"below 1, not {chance}"):
        pick_target([Target("a"), Target("b", 1)], chance)


def test_nothing_said_is_shared() -> None:
    """Most pools have neither: they cost nothing."""
    other = objective("x", 1, POOL._replace(group=OLD_GROUP))
    assert intents_of([other], [rewrite("r")], POOL) is NO_INTENTS


def test_rewrites_that_name_too_many_models() -> None:
    """The older ones count, whole rules of them, and it is known that others do not: whoever writes
    thousands pays alone."""
    each = MAX_NAMES // 64
    many = [
        rewrite(f"r{n:03}", exact("t", *(f"m{n}-{k}" for k in range(each - 1))), created=float(n))
        for n in range(66)
    ]
    intents = intents_of([], [*many[::-1], rewrite("late", generic("x"), created=99.0)], POOL)
    assert intents.target("m63-0", lambda: 0.5) == "t"
    assert intents.target("m64-0", lambda: 0.5) is None
    assert intents.generic is None
    assert (len(intents.exact), intents.left_out) == (64 * (each - 1), 3)
    assert intents_of([], many[:64], POOL).left_out == 0


def test_one_rule_of_too_many_targets() -> None:
    """It does not count, and what stood before it does."""
    large = Rule(tuple(Target(f"t{n}") for n in range(MAX_NAMES + 1)))
    intents = intents_of([], [rewrite("r", exact("x", "m"), large)], POOL)
    assert intents.target("m", lambda: 0.5) == "x"
    assert (intents.generic, intents.left_out) == (None, 1)
    only = intents_of([], [rewrite("r", large)], POOL)
    assert (only.generic, only.left_out) == (None, 1)
