"""A route group picks from the pool that a request is for, or says why it cannot."""

import random
from collections.abc import Sequence

import pytest

from epp_worker.scheduling.contract import PickRequest, Refusal
from epp_worker.scheduling.group import GroupPicker
from epp_worker.scheduling.pool import PoolState
from fleet.model.identity import PoolRef
from fleet.model.pools import Endpoint, Pool


def pools(*models: str | None) -> list[PoolState]:
    """One pool per text of models, each with one endpoint."""
    out = []
    for number, names in enumerate(models):
        annotations = {} if names is None else {"epp-fleet.dev/models": names}
        pool = Pool(
            PoolRef("ns", f"pool-{number}"), "uid", {"a": "b"}, (8000,), None,
            annotations=annotations,
        )  # fmt: skip
        state = PoolState(pool, now=lambda: 0.0, rng=random.Random(1))
        state.set_endpoints([Endpoint("pod", "uid", f"10.0.{number}.1:8000", 0)])
        out.append(state)
    return out


def picked(group: GroupPicker, model: str | None) -> str | int:
    """Name of the pool, or status of the refusal."""
    answer = group.pick(PickRequest(model, None, lambda _: None))
    return answer.status if isinstance(answer, Refusal) else answer.pool.name


@pytest.mark.parametrize("model", [None, "anything"])
def test_one_pool(model: str | None) -> None:
    """With one pool the model does not matter."""
    group = GroupPicker(pools("a"))
    assert not group.needs_model
    assert picked(group, model) == "pool-0"


@pytest.mark.parametrize(
    ("model", "expected"),
    [("a", "pool-0"), ("b", "pool-1"), ("c", "pool-1"), ("both", 400), ("x", 400), ("", 400),
     (None, 400), ("A", 400), (" b", 400)],
)  # fmt: skip
def test_several_pools(model: str | None, expected: str | int) -> None:
    """By annotation, exactly; unknown, ambiguous or absent models are refused with 400."""
    group = GroupPicker(pools("a,both,,", " b , c ,both", None))
    assert group.needs_model
    assert picked(group, model) == expected


def test_refusals_say_why() -> None:
    """Each refusal has a text of its own and quotes nothing."""
    group = GroupPicker(pools("a,both", "both"))
    texts: Sequence[str] = [
        answer.message
        for model in ("both", "CANARY", None)
        if isinstance(answer := group.pick(PickRequest(model, None, lambda _: None)), Refusal)
    ]
    assert len(set(texts)) == 3
    assert "CANARY" not in "".join(texts)


def test_pools_change() -> None:
    """The group follows its pools."""
    first, second = pools("a", "b")
    group = GroupPicker([first, second])
    group.set_pools([second])
    assert not group.needs_model
    assert picked(group, "a") == "pool-1"
    group.set_pools([])
    assert picked(group, "a") == 503
    assert group.pools() == ()
