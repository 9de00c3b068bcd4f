"""Which watches of pods there should be."""

import pytest

from fleet.sources.kubernetes_scopes import Scopes, names_of, pod_scopes

NOBODY: frozenset[str] = frozenset()


def names(count: int) -> frozenset[str]:
    return frozenset(f"ns{number}" for number in range(count))


def test_one_watch_a_namespace_up_to_forty() -> None:
    """Above, one for the whole cluster."""
    assert pod_scopes(names(40), NOBODY, whole_now=False) == Scopes(names(40), whole=False)
    assert pod_scopes(names(41), NOBODY, whole_now=False).whole
    assert pod_scopes((), NOBODY, whole_now=False) == Scopes(NOBODY, whole=False)


def test_the_cluster_is_watched_until_there_are_few() -> None:
    """So that one namespace more or less does not list the cluster again and again."""
    assert pod_scopes(names(21), NOBODY, whole_now=True).whole
    assert not pod_scopes(names(20), NOBODY, whole_now=True).whole


def test_all_namespaces_are_the_cluster() -> None:
    """However few others are named."""
    assert pod_scopes([None, "a"], NOBODY, whole_now=False) == Scopes(frozenset({"a"}), whole=True)


def test_only_allowed_namespaces_are_watched() -> None:
    """One by one however many there are, since the cluster may not be."""
    allowed = names(60)
    assert pod_scopes(["ns1", "other"], allowed, whole_now=False) == Scopes(
        frozenset({"ns1"}), whole=False
    )
    assert pod_scopes([None], allowed, whole_now=False) == Scopes(allowed, whole=False)
    assert pod_scopes(names(50), allowed, whole_now=False) == Scopes(names(50), whole=False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", set()), (" ", set()), ("a", {"a"}), (" a, b ,,c,a ", {"a", "b", "c"})],
)
def test_the_setting(text: str, expected: set[str]) -> None:
    """Comma-separated, spaces and empty parts ignored."""
    assert names_of(text) == expected
