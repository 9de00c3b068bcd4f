"""Crash-looping workers take groups only if they have lasted for a while."""

import pytest

from coordinator.leader.probation import Probation
from coordinator.planning import Peer
from coordinator.verdicts import Death
from fleet.model import (
    Addresses,
    EpochVersion,
    GroupKey,
    LeaderInfo,
    Member,
    Phase,
    Placement,
    Reason,
    ShardMap,
    Signal,
)


class Fleet:
    """Worker `a` lives and dies; `b` is always there (or not)."""

    def __init__(self, *, other: bool = True) -> None:
        self.probation = Probation()
        self.now = 1000.0
        self.life = 0
        self.other = other
        self.previous: ShardMap | None = None

    def peers(self) -> dict[str, Peer]:
        others = {"b": Peer("b", "1", "b:1", accepts=True)} if self.other else {}
        return {"a": Peer("a", str(self.life), "a:1", accepts=True)} | others

    def accepts(self) -> bool:
        """Whether `a` may be given groups now."""
        return self.probation.screen(self.peers(), self.previous, self.now)["a"].accepts

    def live(
        self, seconds: float, signal: Signal = Signal.REFUSED, *, draining: bool = False
    ) -> None:
        """One more life of `a`, of this length."""
        self.life += 1
        self.probation.screen(self.peers(), self.previous, self.now)
        self.now += seconds
        member = Member("a", str(self.life), Addresses("", "", "", ""), draining=draining)
        self.probation.died((Death(member, signal),), self.now)

    def owns(self) -> None:
        key = GroupKey("ns", "s", 1)
        placement = Placement(key, (), Phase.OWNED, ("a",), None, Reason.INITIAL, 0.0)
        leader = LeaderInfo("c", "", "")
        self.previous = ShardMap("f", EpochVersion(1, 1), 0.0, leader, {key: placement}, {})

    def waits(self) -> float:
        """How long the next life has to last, in steps of 5 s."""
        self.life += 1
        born = self.now
        while not self.accepts():
            self.now += 5.0
        return self.now - born


@pytest.mark.parametrize(
    ("lives", "expected"),
    [(0, 0.0), (1, 0.0), (2, 10.0), (3, 20.0), (4, 40.0), (6, 160.0), (9, 300.0), (40, 300.0)],
)
def test_each_further_short_life_doubles_the_wait(lives: int, expected: float) -> None:
    """The first is forgiven: a process may die once (opentelemetry-operator#3781)."""
    fleet = Fleet()
    for _ in range(lives):
        fleet.live(0.125)
    assert fleet.waits() == expected


@pytest.mark.parametrize(
    ("seconds", "signal", "draining"),
    [
        (60.0, Signal.REFUSED, False),
        (1.0, Signal.POD_GONE, False),
        (1.0, Signal.REFUSED, True),
    ],
)
def test_long_lives_and_planned_ends_are_no_failures(
    seconds: float, signal: Signal, *, draining: bool
) -> None:
    """A roll-out, a scale-down or a crash now and then is not a loop."""
    fleet = Fleet()
    for _ in range(5):
        fleet.live(seconds, signal, draining=draining)
    assert fleet.waits() == 0.0


def test_the_only_worker_is_never_on_probation() -> None:
    """A bad owner is better than none."""
    fleet = Fleet(other=False)
    for _ in range(5):
        fleet.live(1.0)
    assert fleet.waits() == 0.0


def test_an_owner_is_not_drained_for_its_past() -> None:
    """It was given groups when nobody else was there; it keeps them."""
    fleet = Fleet()
    for _ in range(5):
        fleet.live(1.0)
    fleet.owns()
    assert fleet.waits() == 0.0


def test_the_past_is_forgotten_after_ten_minutes() -> None:
    """Counted from the last death."""
    fleet = Fleet()
    for _ in range(5):
        fleet.live(1.0)
    fleet.now += 600.0
    assert fleet.waits() == 0.0
    fleet.live(1.0)
    assert fleet.waits() == 0.0
