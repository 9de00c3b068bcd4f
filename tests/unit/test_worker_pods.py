"""The pod index finds the same endpoints as asking every pool about every pod."""

from hypothesis import given
from hypothesis import strategies as st

from epp_worker.pods import PodIndex
from fleet.model import Pod, Pool, PoolRef, endpoints_of


def pod(name: str, labels: dict[str, str], *, ready: bool = True) -> Pod:
    return Pod("ns", name, f"uid-{name}", labels, "10.0.0.1", ready)


def pool(name: str, selector: dict[str, str]) -> Pool:
    return Pool(PoolRef("ns", name), "1", selector, (8000,), None)


LABELS = st.dictionaries(st.sampled_from("abc"), st.sampled_from("xy"), max_size=3)


@given(
    selectors=st.lists(LABELS, max_size=4),
    changes=st.lists(st.tuples(st.sampled_from("pqrs"), st.none() | LABELS), max_size=12),
)
def test_index_agrees_with_the_plain_rule(
    selectors: list[dict[str, str]], changes: list[tuple[str, dict[str, str] | None]]
) -> None:
    """Whatever comes, changes or goes; and a change touches every pool whose endpoints it moves."""
    index = PodIndex()
    pools = [pool(str(number), selector) for number, selector in enumerate(selectors)]
    for one in pools:
        index.put_pool(one)
    pods: dict[str, Pod] = {}
    for name, labels in changes:
        before = {one.ref: endpoints_of(one, pods.values()) for one in pools}
        old = pods.pop(name, None)
        new = None if labels is None else pod(name, labels)
        if new is not None:
            pods[name] = new
        touched = index.change(old, new)
        for one in pools:
            expected = endpoints_of(one, pods.values())
            assert index.endpoints(one) == expected
            assert expected == before[one.ref] or one.ref in touched


def test_a_dropped_pool_is_touched_no_more() -> None:
    """It is followed no longer."""
    index = PodIndex()
    index.put_pool(pool("p", {"a": "x"}))
    index.drop_pool(PoolRef("ns", "p"))
    assert index.change(None, pod("q", {"a": "x"})) == set()


def test_an_empty_selector_selects_nothing() -> None:
    """Not everything: a pool must say what it wants."""
    index = PodIndex()
    index.change(None, pod("q", {"a": "x"}))
    assert index.endpoints(pool("p", {})) == ()
