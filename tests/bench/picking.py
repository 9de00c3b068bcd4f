"""What the default configuration adds to a pick: CPU time over a pick of anybody."""

import gc
import random
import time
from collections.abc import Iterator

from epp_worker.scheduling.configured import Schedulers
from epp_worker.scheduling.contract import PickRequest, Refusal
from epp_worker.scheduling.pool import PoolState
from fleet.model.identity import PoolRef
from fleet.model.pools import Endpoint, Pool
from fleet.picking import decode
from fleet.picking.choice import DEFAULT_NAME, Configs
from tests.bench.rows import Row

PICKS = 1000
ROUNDS = 15
TARGETS_US = {32: 35.0, 100: 60.0}

_ANYBODY = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins: [{type: random-picker}]
"""
_REQUEST = PickRequest("m", None, lambda _: None)


def _pool(count: int, schedulers: Schedulers) -> PoolState:
    state = PoolState(
        Pool(PoolRef("ns", "a"), "u", {"a": "b"}, (8000,), None),
        now=time.perf_counter,
        rng=random.Random(1),
        schedulers=schedulers.scheduler,
    )
    state.set_endpoints(
        [Endpoint(f"p{i}", f"u{i}", f"10.0.{i // 200}.{i % 200}:8000", 0) for i in range(count)]
    )
    rng = random.Random(2)
    for each in state.endpoints():
        each.scraped(
            waiting=float(rng.randrange(6)),
            running=float(rng.randrange(9)),
            kv=rng.random(),
            at=time.perf_counter(),
            inflight=0,
        )
        each.inflight = rng.randrange(4)
    return state


def _cpu_us(state: PoolState) -> float:
    """Of one pick and its end: the least of some rounds, for others' work to fall out."""
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.thread_time()
        for _ in range(PICKS):
            pick = state.pick(_REQUEST)
            if not isinstance(pick, Refusal):
                pick.release()
        best = min(best, time.thread_time() - began)
    return best / PICKS * 1e6


def rows() -> Iterator[Row]:
    """The room."""
    anybody = Schedulers()
    anybody.configs = Configs({DEFAULT_NAME: decode(_ANYBODY, name=DEFAULT_NAME)})
    gc.disable()
    try:
        for count, target in TARGETS_US.items():
            trivial = _cpu_us(_pool(count, anybody))
            usual = _cpu_us(_pool(count, Schedulers()))
            yield Row(f"pick: anybody of {count} endpoints", trivial, "us CPU")
            yield Row(f"pick: default scorers add, {count}", usual - trivial, "us CPU", target)
    finally:
        gc.enable()
