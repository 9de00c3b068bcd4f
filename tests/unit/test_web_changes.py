"""What has changed between two maps, as the page is told."""

from dataclasses import replace

from coordinator.web import changes as module
from coordinator.web.changes import map_changes, pressing, workers_change
from coordinator.web.documents import worker_document
from fleet.model import EpochVersion, MemberState, Phase, Placement, PoolId, PoolRef, ShardMap
from tests.web_scene import LEADER, member, placed

RED, BLUE = PoolRef("acme", "red"), PoolRef("acme", "blue")


def map_of(version: int, *placements: Placement) -> ShardMap:
    found = {each.group: each for each in placements}
    return ShardMap("default", EpochVersion(3, version), 1_700_000_000.0, LEADER, found)


def test_only_what_changed_is_told() -> None:
    """From which version to which; an equal placement, though another object, is no news."""
    red, blue = placed(RED, "worker-0", since=1.0), placed(BLUE, "worker-1", since=1.0)
    moved = replace(red, phase=Phase.MOVING, moving_to="worker-1")
    found = map_changes(map_of(4, red, blue), map_of(6, moved, replace(blue)), LEADER)
    assert found is not None
    assert (found.from_epoch, found.from_version) == (3, 4)
    assert (found.epoch, found.version) == (3, 6)
    assert (found.published_at, found.gone) == ("2023-11-14T22:13:20.000Z", [])
    assert found.leader is not None
    assert found.leader.id == "coordinator-0"
    (row,) = found.changed
    assert (row.name, row.phase, row.moving_to) == ("red", "moving", "worker-1")


def test_what_is_gone() -> None:
    """A whole group, and one pool of a group that stays."""
    red, blue = placed(RED, "worker-0"), placed(BLUE, "worker-1")
    both = replace(blue, pools=(*blue.pools, PoolId(PoolRef("acme", "green"), "u")))
    found = map_changes(map_of(4, red, both), map_of(5, blue), LEADER)
    assert found is not None
    assert [(gone.name, gone.group) for gone in found.gone] == [
        ("green", "acme/blue-epp:9002"),
        ("red", "acme/red-epp:9002"),
    ]
    assert [row.name for row in found.changed] == ["blue"]


def test_too_much_is_read_as_a_whole() -> None:
    """More pools than one event may hold."""
    many = [placed(PoolRef("a", f"p{n}"), "worker-0") for n in range(module.MAX_CHANGED + 1)]
    assert map_changes(map_of(1), map_of(2, *many), LEADER) is None
    assert map_changes(map_of(1, *many), map_of(2), LEADER) is None
    assert map_changes(map_of(1), map_of(2, *many[:-1]), LEADER) is not None


def test_workers_that_changed() -> None:
    """By id: new, other, gone; nothing if all are as they were."""
    zero, one = worker_document(member(0)), worker_document(member(1))
    assert workers_change({"0": zero}, {"0": zero}) is None
    found = workers_change({"0": zero, "1": one}, {"0": zero, "2": one})
    assert found is not None
    assert (found.whole, found.workers, found.gone) == (False, [one], ["1"])


def test_what_presses() -> None:
    """Another state does; figures that change all the time do not."""
    calm = worker_document(member(0))
    busy = replace(member(0), standby=0)
    load = replace(busy.member.load, streams_per_second=99.0)
    busier = worker_document(replace(busy, member=replace(busy.member, load=load)))
    assert busier != calm
    assert not pressing({"0": calm}, {"0": busier})
    assert pressing({"0": calm}, {"0": worker_document(member(0, state=MemberState.DRAINING))})
    assert pressing({"0": calm}, {})
