"""What is sent for a route, given what stands there."""

from dataclasses import replace

import pytest

from coordinator.routes.contract import Route
from coordinator.routes.slice_format import IPV4, IPV6, Slice, decode, encode, slice_name
from coordinator.routes.slice_plan import Steps, removing, said, writing
from fleet.model import EpochVersion, GroupKey

A = GroupKey("ns1", "a", 9002)
V4, V6 = slice_name(A, IPV4, "f"), slice_name(A, IPV6, "f")


def route(*addresses: str, epoch: int = 2, version: int = 5) -> Route:
    return Route(A, addresses, EpochVersion(epoch, version))


def standing(*addresses: str, epoch: int = 2, version: int = 5, family: str = IPV4) -> Slice:
    raw = encode(
        route(*addresses, epoch=epoch, version=version), addresses, family, port_name="p", fleet="f"
    )
    raw["metadata"] |= {"uid": "u", "resourceVersion": "7"}
    found = decode(raw, "f")
    assert found is not None
    return found


def planned(wanted: Route, *there: Slice) -> Steps:
    return writing(wanted, there, port_name="p", fleet="f")


def acts(steps: Steps) -> list[tuple[str, str, int]]:
    """Each step as (act, name, number of endpoints)."""
    return [
        (
            "delete" if step.body is None else "replace" if step.standing else "create",
            step.name,
            0 if step.body is None else len(step.body["endpoints"]),
        )
        for step in steps.steps
    ]


def test_nothing_stands_there() -> None:
    """One slice is created; also for a route without addresses."""
    assert acts(planned(route("192.0.2.1:1"))) == [("create", V4, 1)]
    assert acts(planned(route("[2001:db8::1]:1"))) == [("create", V6, 1)]
    assert acts(planned(route())) == [("create", V4, 0)]


def test_all_is_right() -> None:
    """A new version alone rewrites nothing, nor does another order."""
    there = standing("192.0.2.1:1", "192.0.2.2:1")
    assert planned(route("192.0.2.2:1", "192.0.2.1:1", version=9), there) == Steps((), stamp=True)


def test_only_the_epoch_differs() -> None:
    """It is written, as a mere stamp."""
    steps = planned(route("192.0.2.1:1", epoch=3), standing("192.0.2.1:1"))
    assert acts(steps) == [("replace", V4, 1)]
    assert steps.stamp


@pytest.mark.parametrize(
    "there",
    [
        standing("192.0.2.9:1"),
        standing(),
        replace(standing("192.0.2.1:1"), sound=False),
        replace(standing("192.0.2.1:1"), port_name="other"),
        replace(standing("192.0.2.1:1"), version=None, sound=False),
    ],
)
def test_addresses_or_form_differ(there: Slice) -> None:
    """It is written, and that is no stamp."""
    steps = planned(route("192.0.2.1:1", version=6), there)
    assert acts(steps) == [("replace", V4, 1)]
    assert not steps.stamp


@pytest.mark.parametrize(("epoch", "version"), [(3, 1), (2, 6)])
def test_something_higher_stands_there(epoch: int, version: int) -> None:
    """On any of the group's slices: nothing is done."""
    higher = standing("192.0.2.9:1", epoch=epoch, version=version)
    assert planned(route("192.0.2.1:1"), higher).refused
    six = standing("[2001:db8::9]:1", epoch=epoch, version=version, family=IPV6)
    assert planned(route("192.0.2.1:1"), standing("192.0.2.1:1"), six).refused


def test_an_owner_of_the_other_family_comes_before_the_old_one_goes() -> None:
    """Addresses first; the slice that has none any more is deleted."""
    steps = planned(route("[2001:db8::1]:1", version=6), standing("192.0.2.1:1"))
    assert acts(steps) == [("create", V6, 1), ("delete", V4, 0)]


def test_no_owner_keeps_the_slice_that_there_is() -> None:
    """Emptied, whatever its family."""
    there = standing("[2001:db8::1]:1", family=IPV6)
    assert acts(planned(route(version=6), there)) == [("replace", V6, 0)]


def test_a_copy_under_another_name_is_deleted() -> None:
    """It would lead traffic wherever its maker liked."""
    copied = replace(standing("192.0.2.9:1"), name="a-copy", sound=False)
    steps = planned(route("192.0.2.1:1"), standing("192.0.2.1:1"), copied)
    assert acts(steps) == [("delete", "a-copy", 0)]


def test_a_slice_of_the_wrong_family_makes_way_first() -> None:
    """Its name is taken and its family cannot be changed."""
    wrong = replace(standing("192.0.2.1:1"), family=IPV6, sound=False)
    steps = planned(route("192.0.2.1:1"), wrong)
    assert acts(steps) == [("delete", V4, 0), ("create", V4, 1)]


def test_removal_is_fenced_by_the_epoch() -> None:
    """The same epoch may remove, whatever the version; a higher one stays."""
    both = (standing("192.0.2.1:1"), standing("[2001:db8::1]:1", family=IPV6))
    assert acts(removing(both, 2)) == [("delete", V4, 0), ("delete", V6, 0)]
    assert removing(both, 1).refused
    assert removing((), 1) == Steps(())


def test_what_slices_say() -> None:
    """The addresses of all, and the highest version; nothing if one cannot be trusted."""
    four, six = standing("192.0.2.1:1", version=3), standing("[2001:db8::1]:1", family=IPV6)
    assert said([four, six]) == route("192.0.2.1:1", "[2001:db8::1]:1")
    assert said([]) is None
    assert said([four, replace(six, sound=False)]) is None
