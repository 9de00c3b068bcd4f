"""What was reckoned from endpoints' reports is used again exactly as long as it is true."""

import random

import pytest

from epp_worker.scheduling.endpoint import EndpointState, ToldMetrics
from epp_worker.scheduling.load import Reported, read_reported, weighted_load
from epp_worker.scheduling.pool import PoolState
from epp_worker.scheduling.state_merge import trust
from fleet.model.identity import PoolRef
from fleet.model.pools import Endpoint, Pool

QUEUE, CACHE = 2.0, 3.0


def _pool(count: int = 5, now: float = 100.0) -> PoolState:
    pool = PoolState(
        Pool(PoolRef("ns", "a"), "u", {"a": "b"}, (8000,), None),
        now=lambda: now,
        rng=random.Random(1),
    )
    pool.set_endpoints([Endpoint(f"p{i}", f"u{i}", f"10.0.0.{i + 1}:80", 0) for i in range(count)])
    return pool


def _scrape(state: EndpointState, rng: random.Random, at: float = 100.0) -> None:
    state.scraped(
        waiting=float(rng.randrange(4)),
        running=1.0,
        kv=rng.random(),
        at=at,
        inflight=rng.randrange(3),
    )


@pytest.mark.parametrize("seed", range(20))
def test_it_is_the_same_load_whatever_happens(seed: int) -> None:
    """Scrapes, news of others, picks and their ends, in any order."""
    rng = random.Random(seed)
    states = tuple(_pool().endpoints())
    for each in states:
        _scrape(each, rng)
    reported: Reported | None = None
    reread = 0
    for _ in range(60):
        state = states[rng.randrange(len(states))]
        match rng.randrange(8):
            case 0:
                _scrape(state, rng)
            case 1:
                state.heard(ToldMetrics(float(rng.randrange(4)), 1.0, 0.5, 100.0, 1, 0, False))
            case 2:
                state.inflight += 1
                state.detach(100.0)
            case _:
                state.inflight = max(0, state.inflight + rng.choice((1, 1, -1)))
        if reported is None or not reported.holds(states, 50.0):
            reported = read_reported(states, 50.0, CACHE)
            reread += 1
        assert reported is not None
        assert reported.load(QUEUE, CACHE) == weighted_load(states, 50.0, QUEUE, CACHE, 0.0)
    assert reread < 40


def test_it_holds_until_the_first_report_is_overdue() -> None:
    """The oldest one counts."""
    states = tuple(_pool().endpoints())
    for number, each in enumerate(states):
        _scrape(each, random.Random(1), at=100.0 + number)
    reported = read_reported(states, 90.0, CACHE)
    assert reported is not None
    assert reported.holds(states, 100.0)
    assert not reported.holds(states, 100.1)
    assert read_reported(states, 100.1, CACHE) is None


def test_it_is_of_these_very_endpoints() -> None:
    """Others may be as many."""
    states = tuple(_pool().endpoints())
    for each in states:
        _scrape(each, random.Random(1))
    reported = read_reported(states, 0.0, CACHE)
    assert reported is not None
    assert not reported.holds((*states[1:], states[0]), 0.0)


def test_a_promotion_makes_reports_fresh_again() -> None:
    """What was overdue is read again."""
    pool = _pool(now=1000.0)
    states = tuple(pool.endpoints())
    for each in states:
        _scrape(each, random.Random(1))
    reported = read_reported(states, 100.0, CACHE)
    assert reported is not None
    trust(pool, 1000.0)
    assert not reported.holds(states, 100.0)


@pytest.mark.parametrize("missing", ["waiting", "kv"])
def test_what_is_not_known_is_not_read(missing: str) -> None:
    """Then the mean of the others counts, which changes with each of them."""
    states = tuple(_pool().endpoints())
    for each in states:
        _scrape(each, random.Random(1))
    figures: dict[str, float | None] = {"waiting": 1.0, "kv": 0.5, missing: None}
    states[2].scraped(
        waiting=figures["waiting"], running=1.0, kv=figures["kv"], at=100.0, inflight=0
    )
    assert read_reported(states, 0.0, CACHE) is None


def test_endpoints_of_several_pools_are_not_read() -> None:
    """Nobody would tell of their changes."""
    states = (*_pool().endpoints(), *_pool().endpoints())
    for each in states:
        _scrape(each, random.Random(1))
    assert read_reported(states, 0.0, CACHE) is None
