"""A plan is made again whenever anything that it follows from has changed, and only then."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from coordinator.leader.stillness import Stillness
from coordinator.planning import Backlog, Held, Next, Peer, Pending, Situation, TargetOf, Told, plan
from fleet.model import DeadMember, EpochVersion, GroupKey, Hold
from tests.placed_fleet import LEADER, PlacedFleet

VERSION = EpochVersion(1, 9)
Change = Callable[[Situation], Situation]


class Resting:
    """Twelve groups with three workers, and nothing to do."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fleet = PlacedFleet(12)
        for name in ("a", "b", "c"):
            self.fleet.add(name)
        self.fleet.settle()
        self.plans = 0
        self.stillness = Stillness()

        def counted(at: Situation, target_of: TargetOf, among: Sequence[GroupKey] | None) -> Next:
            self.plans += 1
            return plan(at, target_of, among)

        monkeypatch.setattr("coordinator.leader.stillness.plan", counted)
        assert self.look(self.situation()).shard_map is None
        assert self.plans == 1

    def situation(self) -> Situation:
        peers = {
            name: Peer(name, member.incarnation, member.addresses.ext_proc, True)
            for name, member in self.fleet.members.items()
        }
        return Situation(
            fleet="f",
            leader=LEADER,
            previous=self.fleet.map,
            version=VERSION,
            groups=self.fleet.groups,
            peers=peers,
            dead=(),
            told=self.fleet._told,
            pending={},
            now=self.fleet.now,
            wall=self.fleet.now,
            move_deadline_seconds=30.0,
        )

    def look(self, at: Situation) -> Next:
        return self.stillness.next(at, self.fleet.targets)


@pytest.fixture
def resting(monkeypatch: pytest.MonkeyPatch) -> Resting:
    return Resting(monkeypatch)


def test_at_rest_nothing_is_planned_however_long_it_lasts(resting: Resting) -> None:
    """Time passes, versions are counted on, reports say the same."""
    for seconds in range(1, 100):
        at = resting.situation()
        told = {name: replace(said) for name, said in at.told.items()}
        later = replace(at, now=at.now + seconds, wall=at.wall + seconds, told=told)
        assert resting.look(later) == Next(None, (), {})
    assert resting.plans == 1


def _told(at: Situation) -> Situation:
    said = at.told["a"]
    held = {group: Held(Hold.STANDBY, False, False) for group in said.holds}
    return replace(at, told={**at.told, "a": Told(said.version, held)})


CHANGES: dict[str, Change] = {
    "another map": lambda at: replace(at, previous=replace(at.previous)),  # type: ignore[type-var]
    "other groups": lambda at: replace(at, groups=dict(at.groups)),
    "a worker less": lambda at: replace(
        at, peers={name: peer for name, peer in at.peers.items() if name != "c"}
    ),
    "a worker drains": lambda at: replace(
        at, peers={**at.peers, "c": replace(at.peers["c"], accepts=False)}
    ),
    "a report": _told,
    "another epoch": lambda at: replace(at, version=EpochVersion(2, 1)),
    "a death": lambda at: replace(at, dead=(DeadMember("x", "1", "refused", at.now),)),
    "something pending": lambda at: replace(
        at, pending={next(iter(at.groups)): Pending(at.now, at.wall, VERSION)}
    ),
    "something queued": lambda at: replace(
        at, backlog=Backlog({next(iter(at.groups)): at.now}, {})
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_whatever_changes_is_planned_for(resting: Resting, name: str) -> None:
    """Each fact of a situation but time, one at a time."""
    resting.look(CHANGES[name](resting.situation()))
    assert resting.plans == 2


def test_a_report_that_is_replaced_in_place_is_noticed(resting: Resting) -> None:
    """The reports are one mapping that goes on changing."""
    said = resting.fleet._told["a"]
    resting.fleet._told["a"] = Told(EpochVersion(1, 100), said.holds)
    resting.look(resting.situation())
    assert resting.plans == 2


def test_another_placement_is_planned_for(resting: Resting) -> None:
    """Whatever it wants: a drain's targets, loads that were looked at again."""
    resting.fleet.draining.add("a")
    before = resting.fleet.targets.placements
    resting.fleet.look()
    assert resting.fleet.targets.placements > before
    resting.look(replace(resting.situation(), previous=resting.fleet.map))
    assert resting.plans == 2


def test_a_map_that_changed_is_followed_by_another_plan(resting: Resting) -> None:
    """A plan that changed something may have more to do at the next look."""
    resting.fleet.add("d")
    changed = resting.look(resting.situation())
    assert changed.shard_map is not None
    again = resting.look(resting.situation())
    assert again.shard_map is not None
    assert resting.plans == 3
