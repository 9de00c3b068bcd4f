"""What is told of a pool, and how it counts in the next picks."""

import random

import pytest

from epp_worker.scheduling.contract import PickRequest, Refusal
from epp_worker.scheduling.endpoint import NEVER, EndpointState, ToldMetrics
from epp_worker.scheduling.pool import PoolState
from epp_worker.scheduling.state_merge import (
    begin_anew,
    forget_speaker,
    hear_counts,
    hear_metrics,
    keep_living,
    trust,
)
from fleet.model.identity import PoolRef
from fleet.model.pools import Endpoint, Pool

ONE, TWO = "10.0.0.1:8000", "10.0.0.2:8000"
POOL = Pool(PoolRef("ns", "pool"), "uid", {"app": "a"}, (8000,), None)


class Time:
    """A clock that the test moves."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def pool(time: Time) -> PoolState:
    state = PoolState(POOL, now=time, rng=random.Random(1))
    state.set_endpoints([endpoint(1), endpoint(2)])
    return state


def endpoint(number: int, uid: str = "") -> Endpoint:
    return Endpoint(f"pod-{number}", uid or f"uid-{number}", f"10.0.0.{number}:8000", 0)


def at(pool: PoolState, address: str) -> EndpointState:
    state = pool.find(address)
    assert state is not None
    return state


def told(waiting: float, when: float, seen: int = 0) -> ToldMetrics:
    return ToldMetrics(waiting, 0.0, 0.0, when, seen, 0, False)


def picked(pool: PoolState) -> str:
    answer = pool.pick(PickRequest("m", None, lambda _: None))
    assert not isinstance(answer, Refusal)
    return answer.address


def test_requests_of_others_count_in_a_pick(pool: PoolState) -> None:
    """Another worker has 3 open on one endpoint: the other endpoint is picked. Our own are told
    apart."""
    hear_counts(pool, "b", "life-b", {ONE: 3})
    assert [picked(pool) for _ in range(3)] == [TWO] * 3
    assert pool.inflight() == {ONE: 0, TWO: 3}
    assert at(pool, ONE).inflight == 3


def test_requests_of_the_dead_do_not_hide_our_own(pool: PoolState) -> None:
    """The dead owner had 10 open at its last scrape. They are dropped with it; if that scrape's
    count stayed, our first 10 picks would be taken for requests that the metrics have shown."""
    hear_counts(pool, "b", "life-b", {ONE: 10, TWO: 10})
    metrics = {ONE: told(1.0, 999.0, seen=10), TWO: told(2.0, 999.0, seen=10)}
    hear_metrics(pool, metrics, scrapes=False)
    keep_living(pool, {"life-a"}, {"life-b"})
    assert pool.origins is None
    assert (at(pool, ONE).inflight, at(pool, ONE).inflight_seen) == (0, 0)
    assert [picked(pool) for _ in range(4)].count(ONE) >= 2
    assert at(pool, ONE).inflight < 4


def test_a_speaker_that_ends_takes_its_counts_along(pool: PoolState) -> None:
    """Only those."""
    hear_counts(pool, "b", "life-b", {ONE: 2})
    hear_counts(pool, "c", "life-c", {ONE: 1})
    forget_speaker(pool, "b")
    assert at(pool, ONE).inflight == 1


def test_a_speaker_that_says_it_all_again_changes_nothing(pool: PoolState) -> None:
    """A new stream begins with a snapshot. Were its requests taken for new ones in between, the
    metrics would seem not to have shown them."""
    hear_counts(pool, "b", "life-b", {ONE: 6})
    at(pool, ONE).scraped(waiting=1.0, running=0.0, kv=0.0, at=999.5, inflight=6)
    begin_anew(pool, "b")
    hear_counts(pool, "b", "life-b", {ONE: 6})
    assert (at(pool, ONE).inflight, at(pool, ONE).inflight_seen) == (6, 6)


def test_who_does_not_scrape_takes_what_it_is_told(pool: PoolState) -> None:
    """Even if it is older than what was told before: clocks of the path differ."""
    hear_metrics(pool, {ONE: told(5.0, 999.0)}, scrapes=False)
    hear_metrics(pool, {ONE: told(6.0, 998.9)}, scrapes=False)
    assert at(pool, ONE).waiting == 6.0


def test_who_scrapes_takes_only_newer_metrics(pool: PoolState) -> None:
    """A promoted worker is ahead of the late words of the former owner."""
    at(pool, ONE).scraped(waiting=1.0, running=0.0, kv=0.0, at=999.5, inflight=0)
    hear_metrics(pool, {ONE: told(9.0, 999.4)}, scrapes=True)
    assert at(pool, ONE).waiting == 1.0
    hear_metrics(pool, {ONE: told(7.0, 999.6)}, scrapes=True)
    assert at(pool, ONE).waiting == 7.0


def test_metrics_of_an_endpoint_that_is_not_listed_yet_wait_for_it(pool: PoolState) -> None:
    """The follower's own watch of the pods is behind the owner's."""
    hear_metrics(pool, {"10.0.0.3:8000": told(4.0, 999.0)}, scrapes=False)
    hear_counts(pool, "b", "life-b", {"10.0.0.3:8000": 2})
    pool.set_endpoints([endpoint(1), endpoint(3)])
    newcomer = at(pool, "10.0.0.3:8000")
    assert (newcomer.waiting, newcomer.inflight, newcomer.foreign) == (4.0, 2, 2)


def test_another_pod_at_the_address_begins_anew(pool: PoolState) -> None:
    """Metrics of the pod before it are not its own."""
    hear_metrics(pool, {ONE: told(4.0, 999.0)}, scrapes=False)
    pool.set_endpoints([endpoint(1, uid="another"), endpoint(2)])
    assert at(pool, ONE).metrics_at == NEVER


def test_a_pool_of_another_uid_knows_nothing_of_the_old_one(pool: PoolState) -> None:
    """Deleted and made again under its name."""
    hear_counts(pool, "b", "life-b", {ONE: 3})
    pool.update(Pool(POOL.ref, "uid-2", {"app": "a"}, (8000,), None))
    pool.set_endpoints([endpoint(1)])
    assert at(pool, ONE).inflight == 0


def test_promoted_metrics_are_fresh_for_one_second(pool: PoolState, time: Time) -> None:
    """However old: an idle pool's are never sent again while they do not change."""
    hear_metrics(pool, {ONE: told(5.0, 500.0), TWO: told(1.0, 500.0)}, scrapes=False)
    trust(pool, time.now)
    pool.stale_after = 90.0
    assert picked(pool) == TWO
    assert at(pool, ONE).metrics_at == time.now - 89.0
    at(pool, ONE).scraped(waiting=0.0, running=0.0, kv=0.0, at=time.now, inflight=0)
    time.now += 1.1
    assert picked(pool) == ONE


def test_nothing_is_told_twice(pool: PoolState) -> None:
    """Followers hear of changes: of picks, ends, and scrapes that found something else."""
    touched: list[str] = []
    pool.watch(lambda state: touched.append(state.address))
    pick = pool.pick(PickRequest("m", frozenset({ONE}), lambda _: None))
    assert not isinstance(pick, Refusal)
    pick.served_by(TWO)
    pick.release()
    assert touched == [ONE, ONE, TWO, TWO]
    touched.clear()
    for _ in range(2):
        at(pool, ONE).scraped(waiting=2.0, running=0.0, kv=0.0, at=1.0, inflight=0)
        at(pool, TWO).scrape_failed(refused=True)
        hear_counts(pool, "b", "life-b", {ONE: 1})
    assert touched == [ONE, TWO, ONE]
    touched.clear()
    pool.watch(None)
    pool.pick(PickRequest("m", None, lambda _: None))
    assert touched == []
