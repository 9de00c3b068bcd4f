"""When a new leader knows enough to make a map."""

from dataclasses import replace

import pytest

from coordinator.leader.settling import Informed, settled
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
