"""What a list+watch holds."""

from typing import Any

import pytest

from fleet.errors import ManifestError
from fleet.kube.contract import Raw
from fleet.kube.listwatch_cache import Cache, Delta, Key, key_of, version_of
from tests.scripted_kube import obj

A, B = Key("ns1", "a"), Key("ns1", "b")


def keep(raw: Raw) -> int:
    """The number of an object; 0 is refused, and there is none of 13."""
    value: int = raw["value"]
    if value == 0:
        raise ManifestError(f"{raw['metadata']['name']}: value: 0; give another")
    if value == 13:
        raise RuntimeError("unlucky")
    return value


@pytest.fixture
def cache() -> Cache[int]:
    return Cache(keep)


def test_objects_come_change_and_go(cache: Cache[int]) -> None:
    """Each with what was before and what is now."""
    assert cache.take(obj("a", value=1)) == Delta(A, None, 1)
    assert cache.take(obj("a", value=2)) == Delta(A, 1, 2)
    assert cache.values == {A: 2}
    assert cache.drop(A) == Delta(A, 2, None)
    assert cache.values == {}


def test_no_change_is_told_where_nothing_changed(cache: Cache[int]) -> None:
    """A new version of the same value; a deletion of what is not there."""
    cache.take(obj("a", 1, value=1))
    assert cache.take(obj("a", 2, value=1)) is None
    assert cache.version(A) == "2"
    assert cache.drop(B) is None


def test_a_refused_object_keeps_its_last_good_value(cache: Cache[int]) -> None:
    """Until it is repaired; its version goes on."""
    cache.take(obj("a", 1, value=1))
    assert cache.take(obj("a", 2, value=0)) is None
    assert (cache.values, cache.faults) == ({A: 1}, {A: "a: value: 0; give another"})
    assert cache.version(A) == "2"
    assert cache.take(obj("a", 3, value=4)) == Delta(A, 1, 4)
    assert cache.faults == {}


def test_a_refused_object_can_go(cache: Cache[int]) -> None:
    """With its fault, whether it was ever good or not."""
    cache.take(obj("a", value=1))
    cache.take(obj("a", value=0))
    cache.take(obj("b", value=0))
    assert cache.drop(A) == Delta(A, 1, None)
    assert cache.drop(B) is None
    assert (cache.values, cache.faults) == ({}, {})


def test_an_object_that_we_fail_to_understand(
    cache: Cache[int], caplog: pytest.LogCaptureFixture
) -> None:
    """agentgateway/agentgateway#1719: one such object stops none of the others; the log has why."""
    cache.take(obj("a", value=13))
    assert cache.take(obj("b", value=1)) == Delta(B, None, 1)
    assert cache.faults == {A: "ns1/a: RuntimeError; see the log"}
    assert "object not understood" in caplog.text


def test_a_complete_list_shows_what_is_gone(cache: Cache[int]) -> None:
    """Also objects that were never good."""
    for name, value in (("a", 1), ("b", 0), ("c", 3)):
        cache.take(obj(name, value=value))
    cache.begin_list()
    assert cache.absent({Key("ns1", "c")}) == [A, B]


def test_a_list_with_a_nameless_object_removes_nothing(cache: Cache[int]) -> None:
    """It may be any of those that seem to be gone."""
    cache.take(obj("a", value=1))
    cache.begin_list()
    assert cache.take({"metadata": {}, "value": 1}) is None
    assert cache.absent(set()) == []
    assert len(cache.faults) == 1
    cache.begin_list()
    assert cache.absent(set()) == [A]
    assert cache.faults == {}


@pytest.mark.parametrize(
    ("raw", "key"),
    [
        ({"metadata": {"name": "a", "namespace": "ns1"}}, A),
        ({"metadata": {"name": "a"}}, Key("", "a")),
        ({"metadata": {"name": "a", "namespace": None}}, Key("", "a")),
        ({"metadata": {"name": ""}}, None),
        ({"metadata": {"name": 5}}, None),
        ({"metadata": {"name": "a", "namespace": 5}}, None),
        ({"metadata": "x"}, None),
        ({}, None),
    ],
)
def test_keys(raw: dict[str, Any], key: Key | None) -> None:
    """Namespace and name, or nothing."""
    assert key_of(raw) == key


def test_versions() -> None:
    """Opaque text; anything else is none."""
    assert version_of(obj("a", 5)) == "5"
    assert version_of({"metadata": {"resourceVersion": 5}}) == ""
    assert version_of({}) == ""
