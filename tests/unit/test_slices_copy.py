"""The local copy of our slices: writes, watch and lists in any order, and never back."""

from dataclasses import replace

from coordinator.routes.slice_copy import SliceCopy
from coordinator.routes.slice_format import IPV4, Slice, slice_name
from fleet.kube.listwatch_cache import Delta, Key
from fleet.model import EpochVersion, GroupKey

A = GroupKey("ns1", "a", 9002)
NAME = slice_name(A, IPV4, "f")
KEY = Key("ns1", NAME)


def a_slice(version: int, *, uid: str = "u1", address: str = "192.0.2.1:1") -> Slice:
    epoch = EpochVersion(1, version)
    return Slice(A, NAME, uid, str(version), epoch, IPV4, (address,), "p", True)


def versions(copy: SliceCopy) -> list[str]:
    return [each.resource_version for each in copy.of(A)]


def test_the_watch_tells() -> None:
    """It came, it changed, it went."""
    copy = SliceCopy()
    first, second = a_slice(9), a_slice(10, address="192.0.2.2:1")
    copy.told([Delta(KEY, None, first)])
    copy.told([Delta(KEY, first, second)])
    found = copy.route(A)
    assert found is not None
    assert found[0].addresses == ("192.0.2.2:1",)
    copy.told([Delta(KEY, second, None)])
    assert copy.route(A) is None


def test_an_own_write_counts_before_the_watch_tells() -> None:
    """And what the watch tells late changes nothing: 9 is older than 10, as numbers."""
    copy = SliceCopy()
    copy.seen(KEY, a_slice(10), 1.0)
    copy.told([Delta(KEY, None, a_slice(9))])
    assert versions(copy) == ["10"]
    copy.told([Delta(KEY, a_slice(9), a_slice(11))])
    assert versions(copy) == ["11"]


def test_an_own_deletion_is_final_for_the_object() -> None:
    """Late events of it are passed over; another object of the name is not."""
    copy = SliceCopy()
    copy.seen(KEY, a_slice(10), 1.0)
    copy.seen(KEY, None, 2.0)
    copy.told([Delta(KEY, None, a_slice(11))])
    assert versions(copy) == []
    copy.told([Delta(KEY, a_slice(11), a_slice(13, uid="u2"))])
    assert versions(copy) == ["13"]


def test_a_late_deletion_does_not_hit_the_next_object() -> None:
    """The old one's end is told after we created the new one."""
    copy = SliceCopy()
    copy.seen(KEY, a_slice(12, uid="u2"), 1.0)
    copy.told([Delta(KEY, a_slice(10), None)])
    assert versions(copy) == ["12"]


def test_a_slice_that_no_list_names_is_forgotten() -> None:
    """Created by us and deleted by somebody while the watch was broken."""
    copy = SliceCopy()
    copy.seen(KEY, a_slice(10), 5.0)
    copy.listed(lambda key: False, 4.0)
    assert versions(copy) == ["10"]
    copy.listed(lambda key: False, 6.0)
    assert versions(copy) == []


def test_a_slice_that_the_list_names_stays() -> None:
    """Or that the watch told of meanwhile."""
    copy = SliceCopy()
    copy.seen(KEY, a_slice(10), 5.0)
    copy.listed(lambda key: True, 6.0)
    copy.seen(KEY, a_slice(11), 7.0)
    copy.told([Delta(KEY, None, a_slice(11))])
    copy.listed(lambda key: False, 8.0)
    assert versions(copy) == ["11"]


def test_groups_that_say_nothing_are_left_out() -> None:
    """A slice that is not to be trusted, or two that differ in the port's name."""
    copy = SliceCopy()
    copy.told([Delta(KEY, None, replace(a_slice(1), sound=False))])
    assert copy.route(A) is None
    six = replace(a_slice(3), name="six", port_name="q", uid="u6")
    copy.told([Delta(KEY, None, a_slice(2)), Delta(Key("ns1", "six"), None, six)])
    assert copy.route(A) is None


def test_what_changed_is_told_once() -> None:
    """By group, whoever changed it."""
    copy = SliceCopy()
    copy.told([Delta(KEY, None, a_slice(2))])
    assert (copy.take_changed(), copy.take_changed()) == ({A}, set())
    copy.told([Delta(KEY, None, a_slice(1))])
    assert copy.take_changed() == set()
    copy.seen(KEY, None, 1.0)
    assert copy.take_changed() == {A}
    assert list(copy.groups()) == []
