"""Pins from a pool's annotation to the groups of a placement, and what is said of bad ones."""

import asyncio
from dataclasses import replace

import pytest

from coordinator.claims import Claims
from coordinator.groups import PoolGroups
from coordinator.ownership import Claimed, Ownership, RefusalReason, decide
from coordinator.ownership.notices import notices
from fleet.model import Pool
from fleet.model.pins import PIN
from fleet.settings.model import OwnershipSettings
from tests.memory_source import MemorySource
from tests.ownership_facts import FLEET, OURS, THEIRS, Slices, group, pool

SETTINGS = OwnershipSettings(controller_name=OURS)


def pinned(text: str | None, name: str = "a", *, controller: str | None = None) -> Pool:
    plain = pool(name, controller=controller)
    if text is None:
        return plain
    return replace(plain, annotations={**plain.annotations, PIN: text})


async def turn() -> None:
    """Let the loop turn twice: the first list, then what was decided."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def groups_of(source: MemorySource) -> tuple[PoolGroups, Claims]:
    claims = Claims(source, Ownership(SETTINGS, FLEET), Slices())
    return PoolGroups(claims), claims


@pytest.mark.parametrize("text", ["", "region=eu", "zone=a b", "zone in ()", "zone=a,"])
def test_a_bad_pin_is_a_warning_and_the_pool_is_served(text: str) -> None:
    """An event of its own reason, which says what is wrong, and that the pin is ignored."""
    (decision,) = decide([pinned(text)], {}, {}, SETTINGS, FLEET).values()
    assert isinstance(decision, Claimed)
    assert [refusal.reason for refusal in decision.refusals] == [RefusalReason.PIN]
    told = notices(decision, FLEET)["InvalidPin"]
    assert told.type == "Warning"
    assert told.message.startswith(f"annotation {PIN}: ")
    assert told.message.endswith("the pin is ignored")


@pytest.mark.parametrize("other", [None, "zone=z2", "zone = z1"])
def test_pools_that_share_a_group_must_agree(other: str | None) -> None:
    """They have one owner. Each of them is told; equal pins are no problem."""
    decisions = decide([pinned("zone=z1"), pinned(other, "b")], {}, {}, SETTINGS, FLEET)
    for decision in decisions.values():
        assert [refusal.reason for refusal in decision.refusals] == [RefusalReason.PIN]
        assert "have one owner" in decision.refusals[0].message
    same = decide([pinned("zone=z1"), pinned("zone=z1", "b")], {}, {}, SETTINGS, FLEET)
    assert all(not decision.refusals for decision in same.values())


def test_pools_of_others_need_not_agree() -> None:
    """A pool of another controller that names the same Service pins nothing here."""
    foreign = pinned("zone=z2", "b", controller=THEIRS)
    ours, _ = decide([pinned("zone=z1"), foreign], {}, {}, SETTINGS, FLEET).values()
    assert ours.refusals == ()


async def test_pins_follow_the_annotation() -> None:
    """Set, changed, broken, removed; the same object while nothing about pins changes."""
    source = MemorySource(pinned("zone=z1"))
    groups, _ = groups_of(source)
    await turn()
    first = groups.pins()
    assert {key: pin.text for key, pin in first.items()} == {group(): "zone=z1"}
    source.put(replace(pinned("zone=z1"), labels={"edit": "1"}))
    await turn()
    assert groups.pins() is first
    source.put(pinned("node=n1"))
    await turn()
    assert groups.pins()[group()].text == "node=n1"
    source.put(pinned("region=eu"))
    await turn()
    assert groups.pins() == {}


async def test_when_one_pin_changes_its_neighbours_are_decided_anew() -> None:
    """The other pool of the group did not change, yet its warning comes and goes."""
    source = MemorySource(pinned("zone=z1"), pinned("zone=z1", "b"))
    groups, claims = groups_of(source)
    await turn()
    assert groups.pins()[group()].text == "zone=z1"
    source.put(pinned("zone=z2", "b"))
    await turn()
    assert groups.pins() == {}
    assert [r.reason for r in claims.decisions()[pool("a").ref].refusals] == [RefusalReason.PIN]
    source.remove(pinned("zone=z2", "b"))
    await turn()
    assert groups.pins()[group()].text == "zone=z1"
    assert claims.decisions()[pool("a").ref].refusals == ()


async def test_what_a_group_is_made_of_changes_with_its_pools() -> None:
    """So quarantine notices a repair: a label, a selector, a port; not an equal object."""
    source = MemorySource(pool())
    groups, _ = groups_of(source)
    await turn()
    before = groups.objects(group())
    source.put(pool())
    await turn()
    assert groups.objects(group()) == before
    source.put(replace(pool(), target_ports=(8001,)))
    await turn()
    assert groups.objects(group()) != before
