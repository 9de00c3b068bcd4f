"""How many detached requests an endpoint still has, by its own figures."""

import pytest

from epp_worker.scheduling.detached import (
    ARRIVAL_SECONDS,
    FORGET_SECONDS,
    MAX_SECONDS,
    Detached,
)
from epp_worker.scheduling.endpoint import EndpointState
from fleet.model.pools import Endpoint


def detached(*since: float) -> Detached:
    made = Detached()
    for at in since:
        made.add(at)
    return made


@pytest.mark.parametrize(
    ("running", "waiting", "tracked", "left"),
    [
        (3.0, 0.0, 0, 3),
        (2.0, 1.0, 0, 3),
        (1.0, None, 0, 1),
        (None, 2.0, 0, 2),
        (5.0, 5.0, 0, 3),
        (3.0, 0.0, 2, 1),
        (3.0, 0.0, 9, 0),
        (0.0, 0.0, 0, 0),
        (0.5, 0.0, 0, 1),
    ],
)
def test_no_more_than_the_server_has(
    running: float | None, waiting: float | None, tracked: int, left: int
) -> None:
    """All that run or wait, less those whose streams are open."""
    made = detached(1.0, 2.0, 3.0)
    gone = made.settle(at=10.0, running=running, waiting=waiting, tracked=tracked)
    assert (len(made), gone) == (left, 3 - left)


def test_what_has_just_left_may_not_have_arrived() -> None:
    """The server's figures of that moment do not show it yet."""
    made = detached(1.0, 10.0 - ARRIVAL_SECONDS / 2, 10.1)
    assert made.settle(at=10.0, running=0.0, waiting=0.0, tracked=0) == 1
    assert len(made) == 2


def test_a_server_without_figures_has_them_for_a_minute() -> None:
    """No longer: they would be counted for ever."""
    made = detached(1.0, 2.0)
    assert made.settle(at=1.5 + MAX_SECONDS, running=None, waiting=None, tracked=0) == 1
    assert made.settle(at=2.0 + MAX_SECONDS, running=None, waiting=None, tracked=0) == 1


def test_without_any_scrape_they_are_forgotten_one_day() -> None:
    """A server whose metrics never come must not look busier with every request."""
    state = EndpointState(Endpoint("pod", "uid", "10.0.0.1:8000", 0))
    told: list[int] = []
    state.touched = lambda changed: told.append(changed.inflight)
    for at in (0.0, 1.0, FORGET_SECONDS + 0.5):
        state.inflight += 1
        state.detach(at)
    assert state.inflight == len(state.detached) == 2
    assert told == [2]
