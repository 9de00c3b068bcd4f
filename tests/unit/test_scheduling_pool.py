"""Picks of one pool: who is best, who is last, and what is counted."""

import random
from collections import Counter
from dataclasses import replace

import pytest

from epp_worker.scheduling.contract import Pick, PickRequest, Refusal, ResponsePhase
from epp_worker.scheduling.endpoint import EndpointState
from epp_worker.scheduling.pool import PoolState
from fleet.model.identity import PoolRef
from fleet.model.pools import RESPONSE_PHASE, RESPONSE_PHASES, Endpoint, Pool

POOL = Pool(PoolRef("ns", "pool"), "uid", {"app": "a"}, (8000,), None)


class Time:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


def endpoint(number: int, *, uid: str = "", address: str = "") -> Endpoint:
    return Endpoint(f"pod-{number}", uid or f"uid-{number}", address or f"10.0.0.{number}:8000", 0)


def pool_of(time: Time, count: int, *, seed: int = 1) -> PoolState:
    state = PoolState(POOL, now=time, rng=random.Random(seed))
    state.set_endpoints([endpoint(number) for number in range(1, count + 1)])
    return state


def report(state: EndpointState, time: Time, waiting: float | None, kv: float | None = 0.0) -> None:
    state.scraped(waiting=waiting, running=0.0, kv=kv, at=time.now, inflight=state.inflight)


def request(subset: frozenset[str] | None = None) -> PickRequest:
    return PickRequest("m", subset, lambda _: None)


def picked(pool: PoolState, subset: frozenset[str] | None = None) -> Pick:
    answer = pool.pick(request(subset))
    assert not isinstance(answer, Refusal), answer
    return answer


def states(pool: PoolState) -> list[EndpointState]:
    return list(pool.endpoints())


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("queues", [None, [1.0] * 8, [0.0] + [1.0] * 7])
def test_a_burst_spreads(time: Time, seed: int, queues: list[float] | None) -> None:
    """200 requests at once over 8 equal pods, also before any scrape and with frozen metrics that
    favour one pod: max/mean <= 1.5 (llm-d-router#2515)."""
    pool = pool_of(time, 8, seed=seed)
    for number, state in enumerate(states(pool)):
        if queues is not None:
            report(state, time, queues[number])
    for _ in range(200):
        picked(pool)
    counts = pool.inflight().values()
    assert sum(counts) == 200
    assert max(counts) / 25 <= 1.5


@pytest.mark.parametrize("seed", range(5))
def test_several_workers_do_not_herd(time: Time, seed: int) -> None:
    """Four workers that see the same metrics and not each other: still spread."""
    total: Counter[str] = Counter()
    for worker in range(4):
        pool = pool_of(time, 8, seed=100 * seed + worker)
        for state in states(pool):
            report(state, time, 1.0)
        for _ in range(50):
            picked(pool)
        total.update(pool.inflight())
    assert max(total.values()) / 25 <= 1.5


@pytest.mark.parametrize(
    ("metrics", "best"),
    [
        ([(3, 0.2), (0, 0.1), (10, 0.2)], 2),
        ([(6, 0.2), (0, 0.85), (10, 0.9)], 1),
        ([(4, 0.2), (4, 0.85)], 1),
        ([(0, 0.5), (0, 0.4), (0, 0.6)], 2),
        ([(2, 0.1), (1, 0.1), (0, 0.1)], 3),
    ],
)
def test_best_endpoint(time: Time, metrics: list[tuple[float, float]], best: int) -> None:
    """Queue and KV cache weigh alike, as in the Go EPP's hermetic cases."""
    pool = pool_of(time, len(metrics))
    for state, (waiting, kv) in zip(states(pool), metrics, strict=True):
        report(state, time, waiting, kv)
    assert picked(pool).address == f"10.0.0.{best}:8000"


def test_ties_are_random(time: Time) -> None:
    """Equal endpoints share the first pick."""
    first = Counter(picked(pool_of(time, 4, seed=seed)).address for seed in range(400))
    assert len(first) == 4
    assert max(first.values()) < 150


def test_own_requests_count_until_the_metrics_show_them(time: Time) -> None:
    """A request picked after a scrape adds to the queue; the next scrape takes over."""
    pool = pool_of(time, 2)
    one, two = states(pool)
    report(one, time, 0)
    report(two, time, 0.5)
    assert picked(pool).address == one.address
    assert picked(pool).address == two.address
    report(one, time, 0)
    report(two, time, 0)
    assert {picked(pool).address, picked(pool).address} == {one.address, two.address}


def test_unknown_is_not_best(time: Time) -> None:
    """A pod that was never scraped counts as the average: after the idle one, before the busy."""
    pool = pool_of(time, 3)
    idle, busy, new = states(pool)
    report(idle, time, 0, 0.0)
    report(busy, time, 10, 0.8)
    order = [picked(pool).address for _ in range(12)]
    assert order[:3] == [idle.address] * 3
    assert new.address in order
    assert busy.address not in order


def test_stale_is_the_last_resort(time: Time) -> None:
    """Overdue metrics: others first, whatever the old values say (inference-extension#336)."""
    pool = pool_of(time, 2)
    pool.stale_after = 5.0
    old, fresh = states(pool)
    report(old, time, 0, 0.0)
    time.now += 6
    report(fresh, time, 50, 0.9)
    assert {picked(pool).address for _ in range(20)} == {fresh.address}


def test_all_stale_still_serves(time: Time) -> None:
    """Scrapes blocked, traffic not: every ready pod is used, evenly, and never a 503."""
    pool = pool_of(time, 4)
    for state in states(pool):
        for _ in range(3):
            state.scrape_failed(refused=False)
    for _ in range(40):
        picked(pool)
    assert set(pool.inflight().values()) == {10}


def test_refused_port_is_passed_over_at_once(time: Time) -> None:
    """Ready, but nobody listens: last resort until a scrape works (fast-model-actuation#629)."""
    pool = pool_of(time, 2)
    closed, open_ = states(pool)
    report(closed, time, 0)
    report(open_, time, 9)
    closed.scrape_failed(refused=True)
    assert {picked(pool).address for _ in range(10)} == {open_.address}
    report(closed, time, 0)
    assert picked(pool).address == closed.address


def test_one_failed_scrape_changes_nothing(time: Time) -> None:
    """A timeout with values that are not overdue yet is no verdict."""
    pool = pool_of(time, 2)
    one, two = states(pool)
    report(one, time, 0)
    report(two, time, 9)
    one.scrape_failed(refused=False)
    assert picked(pool).address == one.address


def test_page_without_values(time: Time) -> None:
    """A page without any known family proves only that the server answers."""
    pool = pool_of(time, 1)
    (state,) = states(pool)
    state.scrape_failed(refused=True)
    state.scraped(waiting=None, running=None, kv=None, at=time.now, inflight=0)
    assert (state.failures, state.refused, state.metrics_at) == (0, False, float("-inf"))


def test_no_endpoint(time: Time) -> None:
    """503: no capacity exists (llm-d-router#1735)."""
    answer = pool_of(time, 0).pick(request())
    assert isinstance(answer, Refusal)
    assert (answer.status, answer.reason) == (503, "rejected-no-endpoints")


@pytest.mark.parametrize(
    ("subset", "allowed"),
    [
        ({"10.0.0.1:8000"}, {"10.0.0.1:8000"}),
        ({"10.0.0.1"}, {"10.0.0.1:8000", "10.0.0.1:8001"}),
        ({"10.0.0.1:8001", "10.9.9.9:1"}, {"10.0.0.1:8001"}),
        ({"fd00::10"}, {"[fd00::10]:8000"}),
        ({"[fd00::10]:8000"}, {"[fd00::10]:8000"}),
        ({"10.0.0.1:9999"}, set()),
        (set(), set()),
    ],
)
def test_subset(time: Time, subset: set[str], allowed: set[str]) -> None:
    """ip:port exactly, a bare ip at any port; none or an empty hint: 503, never the whole pool."""
    pool = PoolState(POOL, now=time, rng=random.Random(1))
    addresses = ["10.0.0.1:8000", "10.0.0.1:8001", "10.0.0.2:8000", "[fd00::10]:8000"]
    pool.set_endpoints([endpoint(i, address=a) for i, a in enumerate(addresses)])
    answers = [pool.pick(request(frozenset(subset))) for _ in range(20)]
    if allowed:
        assert {a.address for a in answers if not isinstance(a, Refusal)} == allowed
    else:
        assert all(isinstance(a, Refusal) and a.status == 503 for a in answers)


def test_release_is_once(time: Time) -> None:
    """An open request counts once and is given back once."""
    pool = pool_of(time, 1)
    first, second = picked(pool), picked(pool)
    first.release()
    first.release()
    assert pool.inflight() == {"10.0.0.1:8000": 1}
    second.release()
    second.served_by("10.0.0.1:8000")
    assert pool.inflight() == {"10.0.0.1:8000": 0}


def test_endpoints_come_and_go(time: Time) -> None:
    """The same pod at the same address keeps what is known of it; a new pod there starts afresh;
    a pick on a pod that is gone releases harmlessly (inference-extension#2306)."""
    pool = pool_of(time, 2)
    one, two = states(pool)
    report(one, time, 3)
    open_pick = picked(pool, frozenset({two.key}))
    pool.set_endpoints([one.endpoint, endpoint(2, uid="another"), endpoint(3)])
    after = states(pool)
    assert after[0] is one
    assert after[1] is not two
    assert pool.inflight() == {f"10.0.0.{i}:8000": 0 for i in (1, 2, 3)}
    open_pick.release()
    assert pool.inflight() == {f"10.0.0.{i}:8000": 0 for i in (1, 2, 3)}
    pool.set_endpoints([])
    assert isinstance(pool.pick(request()), Refusal)


def test_another_uid_is_another_pool(time: Time) -> None:
    """Nothing known of a deleted pool serves its successor (inference-extension#350)."""
    pool = pool_of(time, 2)
    picked(pool)
    pool.update(Pool(PoolRef("ns", "pool"), "uid-2", {"app": "a"}, (8000,), None))
    assert isinstance(pool.pick(request()), Refusal)
    assert pool.inflight() == {}


def test_request_rate(time: Time) -> None:
    """Settles at the true rate and falls by itself: to 1/e after the time constant of 10 s."""
    pool = pool_of(time, 2)
    assert pool.request_rate() == 0
    for _ in range(2000):
        time.now += 0.05
        picked(pool).release()
    assert pool.request_rate() == pytest.approx(20, rel=0.02)
    time.now += 10
    assert pool.request_rate() == pytest.approx(20 / 2.71828, rel=0.02)
    time.now += 1e6
    assert pool.request_rate() == 0


def test_old_data_asks_for_a_scrape(time: Time) -> None:
    """A pick whose data is older than 1 s calls the hook; a fresher one does not."""
    pool = pool_of(time, 1)
    calls: list[float] = []
    pool.on_stale = lambda: calls.append(time.now)
    picked(pool)
    assert len(calls) == 1
    (state,) = states(pool)
    report(state, time, 0)
    time.now += 1.0
    picked(pool)
    assert len(calls) == 1
    time.now += 0.1
    picked(pool)
    assert len(calls) == 2


def test_endpoint_without_address() -> None:
    """An endpoint must name ip and port."""
    with pytest.raises(ValueError, match="pod-1"):
        EndpointState(endpoint(1, address="nonsense"))


def test_what_a_pool_says_of_the_response_phase(caplog: pytest.LogCaptureFixture) -> None:
    """Its annotation, followed when it changes; what cannot be understood is told, and left out."""
    asked = replace(POOL, annotations={RESPONSE_PHASE: " detach "})
    state = PoolState(asked, now=lambda: 0.0, rng=random.Random(1))
    found = [state.response_phase]
    assert not caplog.records
    said: list[dict[str, str]] = [{RESPONSE_PHASE: "Detached"}, {}]
    for annotations in said:
        state.update(replace(asked, annotations=annotations))
        found.append(state.response_phase)
    assert found == [ResponsePhase.DETACH, None, None]
    assert [record.message for record in caplog.records] == ["annotation not understood"]


def test_the_phases_that_pools_may_name_are_those_that_there_are() -> None:
    """What coordinators take for an annotation, workers do too."""
    assert set(RESPONSE_PHASES) == set(ResponsePhase)
