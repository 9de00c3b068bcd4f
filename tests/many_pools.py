"""A worker that holds many pools, as its metrics page sees it."""

import random
import time
from dataclasses import replace

from epp_worker.group import inflight_of
from epp_worker.metrics import Figures
from epp_worker.requests.moment import Requests
from epp_worker.scheduling.contract import PickRequest, Refusal
from epp_worker.scheduling.group import GroupPicker
from epp_worker.scheduling.pool import PoolState
from fleet.model import PoolRef
from fleet.model.pools import Endpoint, Pool
from tests.metrics_pages import empty_figures
from tests.silent_observer import SilentObserver

ENDPOINTS = 4


class Held:
    """A group of one pool, as far as figures need it."""

    def __init__(self, state: PoolState) -> None:
        self.states = {state.pool.ref: state}


class ManyPools:
    """So many owned pools of a few scraped endpoints, each with a request behind it if `asked`."""

    def __init__(self, count: int, *, asked: bool) -> None:
        self._requests = Requests(SilentObserver(), time.monotonic)
        self._states = [_pool(number) for number in range(count)]
        self._groups = [Held(state) for state in self._states]
        for state in self._states if asked else ():
            self._ask(state)

    def _ask(self, state: PoolState) -> None:
        record = self._requests(GroupPicker([state]))
        request = PickRequest("llama-3-8b-instruct", None, lambda _: None)
        record.asked(request, 1000)
        pick = state.pick(request)
        assert not isinstance(pick, Refusal)
        record.picked(pick)
        record.first_bytes(streamed=True)
        record.usage(100, 200, 50)
        record.came(5000)
        record.finished(complete=True)

    def figures(self) -> Figures:
        """What the loop copies of the pools at a scrape."""
        router = self._requests.moment(((state, True) for state in self._states), 0)
        return replace(
            empty_figures(router, now=time.monotonic()),
            inflight=inflight_of(self._groups),  # type: ignore[arg-type]
            served_elsewhere={state.pool.ref: state.mismatches for state in self._states},
        )


def _pool(number: int) -> PoolState:
    ref = PoolRef(f"tenant-{number % 50}", f"pool-{number}")
    state = PoolState(
        Pool(ref, f"uid-{number}", {"app": "x"}, (8000,), None),
        now=time.monotonic,
        rng=random.Random(number),
    )
    state.set_endpoints(
        [
            Endpoint(
                f"{ref.name}-{pod}",
                f"{number}-{pod}",
                f"10.{pod}.{number >> 8}.{number & 255}:8000",
                0,
            )
            for pod in range(ENDPOINTS)
        ]
    )
    for each in state.endpoints():
        each.scraped(waiting=1.0, running=2.0, kv=0.5, at=time.monotonic(), inflight=0)
    return state
