"""How fast slices are written: as fast as the API server bears it."""

from coordinator.routes.pace import MOST_PAUSE_SECONDS, MOST_SETBACK_SECONDS, Pace, Setbacks
from fleet.model import GroupKey
from tests.stepped_clock import SteppedClock


class Still(SteppedClock):
    def go(self, seconds: float) -> None:
        self._now += seconds


def test_a_429_stops_everything_and_halves_what_is_under_way() -> None:
    """For as long as the server asks."""
    clock = Still()
    pace = Pace(50, clock)
    assert (pace.in_flight, pace.pause()) == (50, 0.0)
    pace.slow_down(2.0)
    assert (pace.in_flight, pace.pause()) == (25, 2.0)
    clock.go(2.0)
    assert pace.pause() == 0.0


def test_many_429s_at_once_count_as_one() -> None:
    """Fifty requests were under way when it began."""
    clock = Still()
    pace = Pace(50, clock)
    for _ in range(50):
        pace.slow_down(1.0)
    assert (pace.in_flight, pace.throttled) == (25, 50)
    clock.go(1.0)
    pace.slow_down(1.0)
    assert pace.in_flight == 12


def test_it_comes_back_one_for_each_round_and_never_stops() -> None:
    """Twelve answers make it thirteen; whatever happens, one is under way."""
    clock = Still()
    pace = Pace(50, clock)
    for _ in range(20):
        pace.slow_down(0.5)
        clock.go(1.0)
    assert pace.in_flight == 1
    for _ in range(2000):
        pace.answered()
    assert pace.in_flight == 50


def test_a_server_that_asks_for_an_hour_is_asked_again_before() -> None:
    """At most half a minute."""
    pace = Pace(50, Still())
    pace.slow_down(3600.0)
    assert pace.pause() == MOST_PAUSE_SECONDS


def test_a_silent_server_gets_less() -> None:
    """It may be drowning; it is no 429."""
    clock = Still()
    pace = Pace(50, clock)
    pace.silent()
    assert (pace.in_flight, pace.pause() > 0, pace.throttled) == (25, True, 0)


def test_what_fails_is_left_alone_for_longer_each_time() -> None:
    """0.5, 1, 2, 4, 8, 10, 10 s; another wish is tried at once, and a success forgets it all."""
    clock, group = Still(), GroupKey("ns", "a", 1)
    setbacks = Setbacks(clock)
    waits = []
    for _ in range(7):
        setbacks.failed(group, "x", "no")
        began = clock.monotonic()
        assert setbacks.message(group, "y") is None
        while setbacks.message(group, "x") == "no":
            clock.go(0.25)
        waits.append(clock.monotonic() - began)
    assert waits == [0.5, 1.0, 2.0, 4.0, 8.0, MOST_SETBACK_SECONDS, MOST_SETBACK_SECONDS]
    setbacks.failed(group, "y", "no")
    clock.go(0.5)
    assert setbacks.message(group, "y") is None
    setbacks.failed(group, "y", "no")
    setbacks.good(group)
    assert setbacks.message(group, "y") is None
