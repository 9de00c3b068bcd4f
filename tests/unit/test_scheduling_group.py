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
    """By annotation, exactly; unknown, ambiguous or absent models are refused with 400. An empty
    list is a list."""
    group = GroupPicker(pools("a,both,,", " b , c ,both", ""))
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


def learned(*models: str | None) -> list[PoolState]:
    """Pools without annotations whose servers say that they serve these."""
    found = pools(*(None for _ in models))
    for state, names in zip(found, models, strict=True):
        state.models = None if names is None else frozenset(names.split(","))
    return found


def test_what_servers_say_counts_where_nothing_is_listed() -> None:
    group = GroupPicker(learned("a,lora-1", "b"))
    assert [picked(group, model) for model in ("a", "lora-1", "b", "c")] == [
        "pool-0", "pool-0", "pool-1", 400,
    ]  # fmt: skip
    group = GroupPicker(learned("a,both", "both"))
    assert (picked(group, "a"), picked(group, "both")) == ("pool-0", 400)


def test_a_listed_model_is_nobody_elses() -> None:
    """A server that claims another pool's model takes nothing from it."""
    claims = learned("theirs,mine")[0]
    listed = pools("mine", "theirs")[1]
    group = GroupPicker([claims, listed])
    assert (picked(group, "theirs"), picked(group, "mine")) == ("pool-1", "pool-0")


def test_what_is_not_known_yet_is_no_fault_of_the_request() -> None:
    """503, since it is different in a moment; models that are known are served meanwhile."""
    group = GroupPicker(learned("a", None))
    assert (picked(group, "a"), picked(group, "b"), picked(group, None)) == ("pool-0", 503, 400)


def test_a_second_pool_does_not_interrupt_the_first() -> None:
    """It keeps what nobody else is known to serve, until all is known."""
    first, second = learned(None, None)
    group = GroupPicker([first])
    group.set_pools([first, second])
    assert [picked(group, model) for model in ("a", "b", None)] == ["pool-0"] * 3
    second.models = frozenset({"b"})
    group.set_pools([first, second])
    assert [picked(group, model) for model in ("a", "b", None)] == ["pool-0", "pool-1", "pool-0"]
    first.models = frozenset({"a"})
    group.set_pools([first, second])
    assert [picked(group, model) for model in ("a", "b", "c", None)] == [
        "pool-0", "pool-1", 400, 400,
    ]  # fmt: skip


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
