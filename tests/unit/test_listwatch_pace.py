"""How fast a list+watch asks, and what it does after each failure."""

import random

from fleet.errors import KubeForbidden, KubeGone, KubeThrottled, KubeUnavailable
from fleet.kube.listwatch_pace import Failures, Pace
from fleet.settings.model import KubernetesSettings
from tests.scripted_kube import Highest

AWAY = KubeUnavailable("no answer")
GONE = KubeGone("expired", status=410)


def failures(rng: random.Random | None = None) -> Failures:
    return Failures(Pace(), rng or Highest())


def test_waits_double_up_to_a_cap() -> None:
    """0.2 s first, 15 s at most: pods change all the time, and a list is cheap then."""
    row = failures()
    waits = [row.failed(AWAY).wait_seconds for _ in range(9)]
    assert waits == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 15.0, 15.0]
    for _ in range(5000):
        assert row.failed(AWAY) == (15.0, True)


def test_waits_are_spread() -> None:
    """Between half and all of it, so that many workers do not come back together."""
    waits = {failures(random.Random(seed)).failed(AWAY).wait_seconds for seed in range(200)}
    assert len(waits) == 200
    assert 0.1 <= min(waits) < 0.12
    assert 0.18 < max(waits) <= 0.2


def test_something_good_begins_a_new_row() -> None:
    """Only a row of failures makes waits long."""
    row = failures()
    row.failed(AWAY)
    row.failed(AWAY)
    row.good()
    assert row.failed(AWAY).wait_seconds == 0.2


def test_whatever_broke_is_listed_anew() -> None:
    """A watch that broke off may have lost events."""
    for error in (AWAY, GONE, KubeForbidden("no", status=403), RuntimeError("ours")):
        assert failures().failed(error).list_anew


def test_history_expires_for_everybody_and_is_no_fault() -> None:
    """kubernetes/kubernetes#133810: listed at once, but a second 410 in a row has to wait."""
    row = failures()
    assert row.failed(GONE) == (0.0, True)
    assert row.failed(GONE) == (0.4, True)


def test_an_overloaded_server_is_asked_for_less() -> None:
    """Retry-After is the least that is waited, spread upwards; only the third 429 lists anew."""
    busy = KubeThrottled("busy", retry_after_seconds=8.0)
    row = failures()
    assert row.failed(busy) == (10.0, False)
    assert row.failed(busy) == (10.0, False)
    assert row.failed(busy) == (10.0, True)
    for seed in range(100):
        wait = failures(random.Random(seed)).failed(busy).wait_seconds
        assert 8.0 <= wait <= 10.0


def test_a_short_retry_after_does_not_undercut_the_back_off() -> None:
    """`Retry-After: 0` is no leave to spin."""
    row = failures()
    for _ in range(3):
        row.failed(AWAY)
    assert row.failed(KubeThrottled("busy", retry_after_seconds=0.0)).wait_seconds == 1.6


def test_a_watch_that_ends_at_once_is_resumed_more_slowly() -> None:
    """It lost nothing, so nothing is listed."""
    row = failures()
    assert [row.ended_early() for _ in range(3)] == [(0.2, False), (0.4, False), (0.8, False)]


def test_a_missing_kind_is_looked_for_within_seconds() -> None:
    """kubernetes-sigs/gateway-api-inference-extension#1737: never minutes."""
    row = failures()
    waits = [row.missing().wait_seconds for _ in range(7)]
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    row.found()
    assert row.missing() == (1.0, True)


def test_full_lists_are_spread() -> None:
    """By up to a tenth, downwards: the setting is a promise."""
    assert failures().relist_seconds() == 1800.0
    drawn = [failures(random.Random(seed)).relist_seconds() for seed in range(100)]
    assert 1620.0 <= min(drawn) < max(drawn) <= 1800.0


def test_the_settings_set_the_pace() -> None:
    """And our own deadline is 10 s later than the server's."""
    pace = Pace.of(KubernetesSettings(list_page=50, watch_seconds=60.0, relist_seconds=600.0))
    assert (pace.page, pace.watch_seconds, pace.relist_seconds) == (50, 60.0, 600.0)
    assert pace.grace_seconds == 10.0
