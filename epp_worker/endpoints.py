"""A pool's endpoints as this worker tells coordinators of them. Pure but for the clock it is given.

Picks know the ready ones alone; people who ask why a pool answers 503 want to see the others too.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from epp_worker.control.questions import QuestionBounds, QuestionService
from epp_worker.scheduling.endpoint import NEVER, EndpointState
from epp_worker.scheduling.pool import PoolState
from fleet.certificates import Role
from fleet.control.endpoint_messages import (
    ENDPOINTS,
    MAX_ENDPOINTS,
    AskEndpoints,
    EndpointRow,
    PoolEndpoints,
)
from fleet.model import Hold, Pod, PoolRef
from fleet.telemetry import RateLimited

if TYPE_CHECKING:
    from epp_worker.worker import Worker

BOUNDS = QuestionBounds(seconds=2.0, at_once=16, a_second=20.0)
"""An answer is 150 kB at most; one of 1,000 endpoints takes the serving loop a few milliseconds."""


def endpoints_service(
    worker: "Worker", unready: Callable[[PoolRef], Sequence[Pod]], limited: RateLimited
) -> QuestionService[AskEndpoints, PoolEndpoints]:
    """Answers which endpoints a pool has.

    Args:
        unready: the pods of a pool that are no endpoints now.
    """

    def known(ask: AskEndpoints) -> PoolEndpoints:
        ref = PoolRef(ask.namespace, ask.name)
        held = [group for group in worker.holdings if ref in group.states]
        nothing = PoolEndpoints(
            worker.settings.fleet, worker.id, worker.holdings.incarnation, *ref, hold=None
        )
        if not held:
            return nothing
        group = min(held, key=lambda one: one.hold is not Hold.OWNER)
        state = group.states[ref]
        return pool_endpoints(nothing, group.hold, state, unready(ref))

    return QuestionService(
        ENDPOINTS,
        known,
        BOUNDS,
        fleet=worker.settings.fleet,
        of=Role.COORDINATOR,
        limited=limited,
        certificates=worker.certificates,
    )


def pool_endpoints(
    nothing: PoolEndpoints, hold: Hold, state: PoolState, unready: Sequence[Pod]
) -> PoolEndpoints:
    """What is known of a pool that is held.

    Args:
        nothing: the answer's head.
        unready: pods of the pool that picks may not name.
    """
    now = state.now()
    ready = state.endpoints()
    waiting = _unready_rows(state, unready)
    rows: Iterable[EndpointRow] = itertools.chain((_row(each, now) for each in ready), waiting)
    return PoolEndpoints(
        nothing.fleet,
        nothing.worker,
        nothing.incarnation,
        nothing.namespace,
        nothing.name,
        hold=hold,
        endpoints=tuple(itertools.islice(rows, MAX_ENDPOINTS)),
        total=len(ready) + len(waiting),
        ready=len(ready),
        requests_per_second=round(state.request_rate(), 3),
    )


def _row(state: EndpointState, now: float) -> EndpointRow:
    never = state.metrics_at == NEVER
    return EndpointRow(
        pod=state.endpoint.pod,
        address=state.address,
        ready=True,
        running=state.running,
        waiting=state.waiting,
        kv=state.kv,
        age_ms=None if never else max(0, round((now - state.metrics_at) * 1e3)),
        inflight=state.inflight,
        failures=state.failures,
        refused=state.refused,
    )


def _unready_rows(state: PoolState, unready: Sequence[Pod]) -> list[EndpointRow]:
    """One row for each port; without an IP one for the pod."""
    rows: list[EndpointRow] = []
    for pod in unready:
        ports = [p for p in state.pool.target_ports if _active(pod, p)] if pod.ip else []
        addresses = [f"[{pod.ip}]:{p}" if ":" in pod.ip else f"{pod.ip}:{p}" for p in ports] or [""]
        rows.extend(EndpointRow(pod.name, address, ready=False) for address in addresses)
    return rows


def _active(pod: Pod, port: int) -> bool:
    return pod.active_ports is None or port in pod.active_ports
