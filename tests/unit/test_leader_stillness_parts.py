"""A plan of only those groups that are not where they shall be is the plan of all of them."""

from random import Random

import pytest

from coordinator.leader.stillness import Stillness
from coordinator.planning import Next, Situation, TargetOf, plan
from fleet.model import GroupKey
from tests.placed_fleet import PlacedFleet


class Compared:
    """A fleet whose every plan is made both ways.

    Attributes:
        looked: groups that each plan looked at, where not at all.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fleet = PlacedFleet(30)
        self.stillness = Stillness()
        self.looked: list[int] = []
        monkeypatch.setattr("tests.placed_fleet.plan", self._both)
        monkeypatch.setattr("coordinator.leader.stillness.plan", self._noted)

    def _noted(self, at: Situation, of: TargetOf, among: tuple[GroupKey, ...] | None) -> Next:
        if among is not None:
            self.looked.append(len(among))
        return plan(at, of, among)

    def _both(self, at: Situation, of: TargetOf) -> Next:
        whole, found = plan(at, of), self.stillness.next(at, self.fleet.targets)
        assert found.shard_map == whole.shard_map
        assert (found.changes, found.pending) == (whole.changes, whole.pending)
        assert found.backlog == whole.backlog
        return found


def _happens(fleet: PlacedFleet, rng: Random, number: int) -> None:
    living = sorted(fleet.members)
    some = rng.choice(living)
    match rng.randrange(9):
        case 0:
            fleet.add(f"w{number}")
        case 1 if len(living) > 2:
            fleet.die(some)
        case 2:
            fleet.draining ^= {some}
        case 3:
            fleet.down ^= {some}
        case 4:
            fleet.down.clear()
            fleet.acknowledge()
        case 5:
            fleet.loads = {group: rng.random() * 50.0 for group in fleet.groups}
        case 6:
            gone = rng.choice(list(fleet.groups))
            fleet.groups = {key: pools for key, pools in fleet.groups.items() if key != gone}
        case _:
            pass


@pytest.mark.parametrize("seed", range(6))
def test_both_ways_decide_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through joins, deaths, drains, silence, acknowledgements, loads and groups that go."""
    compared, rng = Compared(monkeypatch), Random(seed)
    for name in ("a", "b", "c"):
        compared.fleet.add(name)
    for number in range(80):
        compared.fleet.look(rng.choice([0.25, 6.0, 40.0]))
        _happens(compared.fleet, rng, number)


def test_while_groups_move_only_these_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker's drain concerns its own groups, each acknowledgement fewer of them."""
    compared = Compared(monkeypatch)
    fleet = compared.fleet
    for name in ("a", "b", "c", "d", "e"):
        fleet.add(name)
    fleet.settle()
    fleet.look(0.25)
    mine = fleet.owned()["a"]
    fleet.draining.add("a")
    fleet.look(0.25)
    compared.looked.clear()
    fleet.look(0.25)
    assert compared.looked
    assert max(compared.looked) < len(fleet.groups)
    assert min(compared.looked) >= mine > 0
