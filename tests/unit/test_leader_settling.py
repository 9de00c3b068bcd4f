"""When a new leader knows enough to make a map, and has workers enough for a first placement."""

from dataclasses import dataclass, replace

import pytest

from coordinator.leader.settling import Informed, Muster, settled
from coordinator.verdicts import Judged
from coordinator.worker_pods import WorkerPod
from fleet.model import (
    Addresses,
    EpochVersion,
    GroupKey,
    LeaderInfo,
    Member,
    MemberState,
    Phase,
    Placement,
    Reason,
    ShardMap,
)
from fleet.settings.model import MembershipSettings

SETTINGS = MembershipSettings(heartbeat_seconds=0.5, ttl_seconds=2.0)
ALL = Informed(store_reads=1, past=True, reached=True, all_reached=True, pods_reached=True)
STORE_AWAY = replace(ALL, store_reads=0)


def when(known: Informed, *, in_store: bool) -> float | None:
    """The first moment, in tenths of a second, at which it has settled; None = not within 9 s."""
    for tenth in range(90):
        if settled(known, elapsed=tenth / 10, in_store=in_store, settings=SETTINGS):
            return tenth / 10
    return None


@pytest.mark.parametrize("in_store", [True, False])
@pytest.mark.parametrize(
    ("known", "expected"),
    [
        (ALL, 0.0),
        (replace(ALL, all_reached=False), 2.0),
        (replace(ALL, past=False), 0.6),
        (replace(ALL, past=False, reached=False, all_reached=False), 2.0),
        (replace(ALL, pods_reached=False), 0.0),
    ],
)
def test_with_the_stores_word(known: Informed, expected: float, *, in_store: bool) -> None:
    """At once if all are reached; a fleet without a past waits 1.2 heartbeats; else the TTL."""
    assert when(known, in_store=in_store) == expected


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        (replace(ALL, past=False, reached=False, all_reached=False), 3.0 + 2.0),
        (replace(ALL, past=False), 3.0 + 0.6),
        (ALL, 0.0),
    ],
)
def test_a_store_that_comes_back_empty_is_no_word_against_workers(
    known: Informed, expected: float
) -> None:
    """It was away for 3 s of the term: who has not beaten since then may do so for as long as when
    a term begins. A map of old needs no such wait."""
    for tenth in range(90):
        told = replace(known, told_for=max(0.0, tenth / 10 - 3.0))
        if settled(told, elapsed=tenth / 10, in_store=False, settings=SETTINGS):
            assert tenth / 10 == expected
            return
    raise AssertionError("never")


def test_a_lease_in_the_store_waits_for_the_store() -> None:
    """Absent from a store that was not read is unknown, not dead."""
    assert when(STORE_AWAY, in_store=True) is None


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        (STORE_AWAY, 0.0),
        (replace(STORE_AWAY, all_reached=False), 2.0),
        (replace(STORE_AWAY, pods_reached=False), 2.0),
        (replace(STORE_AWAY, past=False), 2.0),
        (replace(STORE_AWAY, past=False, pods_reached=False), 2.0),
        (replace(STORE_AWAY, past=False, reached=False, all_reached=False), None),
    ],
)
def test_a_lease_elsewhere_does_not_wait_for_a_store_that_is_away(
    known: Informed, expected: float | None
) -> None:
    """Memory of a map is as good; workers' own words are, after the TTL; nothing is not enough."""
    assert when(known, in_store=False) == expected


def workers(*names: str, reached: bool = True) -> list[Judged]:
    return [
        Judged(Member(name, "i", Addresses("", "", "", "")), MemberState.ALIVE, None, reached)
        for name in names
    ]


@dataclass
class Pods:
    """Worker pods, of which some are being deleted."""

    names: tuple[str, ...]
    ending: tuple[str, ...] = ()

    def living(self) -> list[WorkerPod]:
        return [
            WorkerPod(name, "u", "", ended=False, ending=name in self.ending, cost=None)
            for name in self.names
        ]


def a_map(phase: Phase, reason: Reason) -> ShardMap:
    key = GroupKey("ns", "s", 1)
    owners = () if phase is Phase.UNOWNED else ("w0",)
    placement = Placement(key, (), phase, owners, None, reason, 0.0)
    return ShardMap("f", EpochVersion(1, 1), 0.0, LeaderInfo("c", "", ""), {key: placement}, {})


UNOWNED = a_map(Phase.UNOWNED, Reason.INITIAL)


def complete_at(
    comings: dict[float, str], pods: Pods | None, previous: ShardMap | None = UNOWNED
) -> float:
    """When a first placement may be made, in tenths of a second, of workers that come at these."""
    muster = Muster(SETTINGS)
    for tenth in range(90):
        here = [name for when, name in comings.items() if when <= tenth / 10]
        if muster.complete(workers(*here), pods, previous, 100.0 + tenth / 10) and here:
            return tenth / 10
    raise AssertionError("never")


@pytest.mark.parametrize(
    ("comings", "pods", "expected"),
    [
        # Three pods: as soon as all are here, one TTL after the first at the latest.
        ({0.0: "a", 0.5: "b", 1.4: "c"}, Pods(("a", "b", "c")), 1.4),
        ({1.0: "a", 2.0: "b", 9.9: "c"}, Pods(("a", "b", "c")), 3.0),
        # A single one waits for nobody; one that is being deleted is not waited for.
        ({0.3: "a"}, Pods(("a",)), 0.3),
        ({0.3: "a"}, Pods(("a", "b"), ending=("b",)), 0.3),
        # A list that does not know whom we talk to is not believed.
        ({0.0: "a"}, Pods(()), 0.8),
        ({0.0: "a"}, Pods(("x", "y")), 0.8),
        # No pods: nobody came for 1.5 heartbeats (of 0.5 s), one TTL after the first at the latest.
        ({0.0: "a"}, None, 0.8),
        ({0.0: "a", 0.3: "b", 0.9: "c"}, None, 1.7),
        ({0.0: "a", 0.7: "b", 1.4: "c", 1.9: "d", 2.4: "e"}, None, 2.0),
    ],
)
def test_a_first_placement_waits_for_workers_that_start_together(
    comings: dict[float, str], pods: Pods | None, expected: float
) -> None:
    """A pod that is Pending or crash-looping costs one TTL (opentelemetry-operator#3781)."""
    assert complete_at(comings, pods) == pytest.approx(expected)


@pytest.mark.parametrize(
    "previous",
    [
        a_map(Phase.OWNED, Reason.INITIAL),
        a_map(Phase.OPENING, Reason.OWNER_DEAD),
        a_map(Phase.UNOWNED, Reason.OWNER_DEAD),
    ],
)
def test_groups_that_have_lost_their_owner_wait_for_nobody(previous: ShardMap) -> None:
    """The first worker that comes gets them, whoever else is about to start."""
    assert complete_at({0.4: "a"}, Pods(("a", "b", "c")), previous) == 0.4


def test_it_is_over_for_the_term_once_it_was_complete() -> None:
    """A newcomer later on holds up nothing: it joins."""
    muster = Muster(SETTINGS)
    pods = Pods(("a",))
    assert muster.complete(workers("a"), pods, None, 0.0)
    assert muster.complete(workers("a", "b"), Pods(("a", "b", "c")), None, 0.1)


def test_a_worker_that_goes_before_anything_was_placed_does_not_count() -> None:
    """The next one is the first; meanwhile it may be shown that nobody owns anything."""
    muster = Muster(SETTINGS)
    pods = Pods(("a", "b"))
    assert not muster.complete(workers("a"), pods, None, 0.0)
    assert muster.complete(workers("a", reached=False), pods, None, 1.0)
    assert not muster.complete(workers("b"), pods, None, 1.9)
    assert not muster.complete(workers("b"), pods, None, 3.8)
    assert muster.complete(workers("b"), pods, None, 3.9)
