"""Which deaths put a group into quarantine, which do not, and what quarantine is."""

import pytest

from coordinator.leader.targets import Targets
from coordinator.planning.quarantine import REST_SECONDS
from fleet.model import GroupKey, Phase, Reason, Signal
from fleet.settings.model import PlacementSettings
from tests.placed_fleet import PlacedFleet, groups_of

BAD = GroupKey("ns", "s-bad", 9002)
SETTINGS = PlacementSettings(balance_share=1.0, balance_seconds=0.0)


def a_fleet(
    groups: int = 60, workers: int = 10, *, nodes: int = 0, settings: PlacementSettings = SETTINGS
) -> PlacedFleet:
    """Long settled: nothing has arrived anywhere for a minute."""
    fleet = PlacedFleet(groups, settings=settings)
    for number in range(workers):
        fleet.add(f"w{number}", node=f"n{number % nodes}" if nodes else "")
    fleet.settle()
    fleet.look(60.0)
    fleet.settle()
    return fleet


def create(fleet: PlacedFleet) -> None:
    """Somebody creates the pool that kills workers."""
    fleet.groups = {**fleet.groups, BAD: groups_of(1)[GroupKey("ns", "s0", 9002)]}
    fleet.settle()


def owner(fleet: PlacedFleet, group: GroupKey = BAD) -> str:
    return fleet.at(group).owners[0]


def kill_owner(fleet: PlacedFleet, *, after: float = 1.0, signal: Signal = Signal.REFUSED) -> str:
    """Whoever owns the bad group dies some time after it was given it."""
    fleet.look(after)
    victim = owner(fleet)
    fleet.die(victim, signal=signal)
    fleet.settle()
    return victim


def quarantined(fleet: PlacedFleet) -> set[GroupKey]:
    return {group for group in fleet.groups if fleet.at(group).phase is Phase.QUARANTINED}


# -- true cases ---------------------------------------------------------------------------------


def test_a_new_pool_that_kills_two_workers_is_quarantined() -> None:
    """The second death is enough: of what both were given, it alone is common. It gets no
    stand-by, and a worker that inherits nothing else."""
    fleet = a_fleet()
    create(fleet)
    kill_owner(fleet)
    assert quarantined(fleet) == set()
    before = fleet.owned()
    kill_owner(fleet)
    assert quarantined(fleet) == {BAD}
    placement = fleet.at(BAD)
    assert placement.standby is None
    assert placement.reason is Reason.OWNER_DEAD
    assert fleet.owned()[placement.owners[0]] == before[placement.owners[0]] + 1


def test_a_pool_that_begins_to_kill_after_hours_is_found_at_the_third_death() -> None:
    """At the first death nothing was new, at the second all that moved with it is suspect; at the
    third only what went the same way twice."""
    fleet = a_fleet(groups=120, workers=10)
    create(fleet)
    fleet.look(3600.0)
    fleet.settle()
    deaths = 0
    while BAD not in quarantined(fleet):
        kill_owner(fleet)
        deaths += 1
        assert deaths <= 4
    assert deaths >= 3
    assert len(quarantined(fleet)) <= 3


def test_the_gainer_of_a_move_that_dies_while_it_opens_the_group_counts() -> None:
    """A drain moves the group; whoever opens it dies before it owns it, twice."""
    fleet = a_fleet(groups=30, workers=6)
    create(fleet)
    fleet.look(60.0)
    first = owner(fleet)
    fleet.draining.add(first)
    fleet.look()
    for _ in range(2):
        gainer = fleet.at(BAD).moving_to
        assert gainer is not None
        fleet.die(gainer)
        fleet.look()
        fleet.look()
    assert BAD in quarantined(fleet) or fleet.at(BAD).phase is Phase.MOVING
    fleet.settle()
    assert BAD in quarantined(fleet)


def test_in_quarantine_it_stays_and_its_worker_is_given_nothing_new() -> None:
    """Neither orphans nor newcomers' leavings nor loads: others have room."""
    fleet = a_fleet()
    create(fleet)
    kill_owner(fleet)
    kill_owner(fleet)
    home = owner(fleet)
    held = {group for group, name in fleet.owners().items() if name == home}
    fleet.loads = {BAD: 500.0}
    fleet.die(next(name for name in fleet.members if name != home))
    fleet.look(20.0)
    fleet.settle()
    fleet.add("w99")
    fleet.settle()
    fleet.groups = {**fleet.groups, **groups_of(80)}
    fleet.look(20.0)
    fleet.settle()
    assert owner(fleet) == home
    assert {group for group, name in fleet.owners().items() if name == home} <= held
    assert fleet.at(BAD).phase is Phase.QUARANTINED


def test_it_follows_a_drain_of_its_worker() -> None:
    """Quarantine does not keep a worker from going: a planned move, then quarantine there."""
    fleet = a_fleet()
    create(fleet)
    kill_owner(fleet)
    kill_owner(fleet)
    home = owner(fleet)
    fleet.draining.add(home)
    fleet.look(30.0)
    fleet.settle()
    assert owner(fleet) != home
    assert fleet.at(BAD).phase is Phase.QUARANTINED


def test_a_third_death_makes_it_rest_so_that_the_others_live() -> None:
    """Nobody is given it for 30 s, then one worker is."""
    fleet = a_fleet()
    create(fleet)
    kill_owner(fleet)
    kill_owner(fleet)
    kill_owner(fleet)
    assert fleet.at(BAD).phase is Phase.QUARANTINED
    assert fleet.at(BAD).owners == ()
    fleet.look(REST_SECONDS - 2.0)
    assert fleet.at(BAD).owners == ()
    fleet.look(2.0)
    fleet.settle()
    assert fleet.at(BAD).phase is Phase.QUARANTINED
    assert len(fleet.at(BAD).owners) == 1
    assert len(fleet.members) == 7


def test_it_is_released_after_a_time_without_a_death() -> None:
    """300 s; then it has a stand-by again and may move."""
    fleet = a_fleet()
    create(fleet)
    kill_owner(fleet)
    kill_owner(fleet)
    fleet.look(298.0)
    assert quarantined(fleet) == {BAD}
    fleet.look(2.0)
    fleet.settle()
    assert fleet.at(BAD).phase is Phase.OWNED
    assert fleet.at(BAD).standby is not None


def test_it_is_released_when_its_pool_changes() -> None:
    """Whoever repairs the pool need not wait, not even for a rest to end."""
    fleet = a_fleet()
    create(fleet)
    for _ in range(3):
        kill_owner(fleet)
    fleet.objects[BAD] = "repaired"
    fleet.look()
    fleet.settle()
    assert fleet.at(BAD).phase is Phase.OWNED
    assert fleet.at(BAD).standby is not None


def test_a_new_leader_knows_who_is_in_quarantine() -> None:
    """By the phase in the map; the time counts anew."""
    fleet = a_fleet()
    create(fleet)
    kill_owner(fleet)
    kill_owner(fleet)
    home = owner(fleet)
    fleet.targets = Targets(SETTINGS)
    fleet.look(200.0)
    fleet.settle()
    fleet.look(200.0)
    assert quarantined(fleet) == {BAD}
    assert owner(fleet) == home
    fleet.look(100.0)
    fleet.settle()
    assert quarantined(fleet) == set()


def test_a_new_leader_lets_it_rest_on() -> None:
    """It was given to nobody when the leader went: another full rest, then one worker."""
    fleet = a_fleet()
    create(fleet)
    for _ in range(3):
        kill_owner(fleet)
    fleet.targets = Targets(SETTINGS)
    fleet.look()
    fleet.look(REST_SECONDS - 1.0)
    assert fleet.at(BAD).owners == ()
    fleet.look(2.0)
    fleet.settle()
    assert len(fleet.at(BAD).owners) == 1


def test_it_never_stays_with_a_dead_worker_although_all_others_drain() -> None:
    """Who is told to go keeps what it has, but the dead keep nothing."""
    fleet = a_fleet(workers=3)
    create(fleet)
    kill_owner(fleet)
    fleet.look(1.0)
    victim = owner(fleet)
    (last,) = set(fleet.members) - {victim}
    fleet.draining.add(last)
    fleet.die(victim)
    fleet.settle()
    assert quarantined(fleet) == {BAD}
    assert victim not in fleet.at(BAD).owners


# -- false cases --------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [0, 5])
def test_a_node_with_two_workers_dies(nodes: int) -> None:
    """At once, one shortly after the other, long after the last move: nothing was new."""
    fleet = a_fleet(nodes=nodes)
    fleet.die("w0", "w5")
    fleet.settle()
    assert quarantined(fleet) == set()
    fleet = a_fleet(nodes=nodes)
    fleet.die("w0")
    fleet.look()
    fleet.die("w5")
    fleet.settle()
    assert quarantined(fleet) == set()


def test_workers_of_one_node_accuse_nobody_together() -> None:
    """The group goes from one worker to the other of the same node, which dies too."""
    fleet = a_fleet(workers=2, groups=2)
    fleet.members.clear()
    fleet.add("a", node="n1")
    fleet.add("b", node="n1")
    fleet.settle()
    fleet.look(60.0)
    fleet.add("c", node="n1")
    fleet.settle()
    fleet.look(60.0)
    create(fleet)
    kill_owner(fleet)
    kill_owner(fleet)
    assert quarantined(fleet) == set()


def test_a_worker_that_was_dying_when_it_was_given_the_group_proves_nothing() -> None:
    """Both processes were killed at once; the second verdict comes a moment after the first."""
    fleet = a_fleet()
    create(fleet)
    fleet.look(1.0)
    standby = fleet.at(BAD).standby
    assert standby is not None
    fleet.down.add(standby)
    fleet.die(owner(fleet))
    fleet.look()
    fleet.look(0.01)
    assert owner(fleet) == standby
    fleet.die(standby)
    fleet.settle()
    assert quarantined(fleet) == set()


def test_one_worker_that_dies_twice_is_a_broken_worker() -> None:
    """Same name, two lives: it would kill whatever is given to it."""
    fleet = PlacedFleet(3, settings=SETTINGS)
    fleet.add("w0")
    fleet.settle()
    fleet.look(60.0)
    create(fleet)
    for _ in range(3):
        fleet.die("w0", signal=Signal.INCARNATION)
        fleet.add("w0")
        fleet.settle()
        fleet.look(11.0)
    assert quarantined(fleet) == set()


def test_a_fleet_that_has_just_started_accuses_nobody() -> None:
    """Everything is new everywhere in the first ten seconds."""
    fleet = PlacedFleet(6, settings=SETTINGS)
    for number in range(5):
        fleet.add(f"w{number}")
    fleet.settle()
    for number in range(4):
        fleet.look(1.0)
        fleet.die(f"w{number}")
        fleet.settle()
    assert quarantined(fleet) == set()


def test_many_suspects_are_none() -> None:
    """A drain gives 120 groups new workers, of which two die within seconds: some five groups were
    new at both, and no more than that is known."""
    fleet = a_fleet(groups=120, workers=4)
    fleet.draining.add("w3")
    fleet.settle()
    for name in ("w0", "w1"):
        fleet.look(1.0)
        fleet.die(name)
        fleet.settle()
    assert quarantined(fleet) == set()
    assert fleet.owned() == {"w2": 120}


def test_a_group_that_outlives_the_window_is_cleared() -> None:
    """Its first worker died with it, the second served it for 11 s: it was not the group."""
    fleet = a_fleet()
    create(fleet)
    kill_owner(fleet)
    fleet.look(5.0)
    fleet.look(6.0)
    fleet.draining.add(owner(fleet))
    fleet.settle()
    kill_owner(fleet)
    assert quarantined(fleet) == set()


def test_a_pod_that_is_taken_away_accuses_nobody() -> None:
    """Somebody deletes one pod after the other, as a scale-down or an eviction does."""
    fleet = a_fleet()
    create(fleet)
    for _ in range(3):
        kill_owner(fleet, signal=Signal.POD_GONE)
    assert quarantined(fleet) == set()


def test_deaths_further_apart_than_the_window_accuse_nobody() -> None:
    """Each worker dies 11 s after it was given the group."""
    fleet = a_fleet()
    create(fleet)
    for _ in range(3):
        kill_owner(fleet, after=11.0)
    assert quarantined(fleet) == set()


def test_quarantine_can_be_switched_off() -> None:
    """A window of 0."""
    fleet = a_fleet(settings=PlacementSettings(quarantine_window_seconds=0.0))
    create(fleet)
    for _ in range(4):
        kill_owner(fleet, after=0.0)
    assert quarantined(fleet) == set()
