"""All figures of a worker at one moment, as its metrics page shows them."""

from epp_worker.bounds import BoundWatch
from epp_worker.group import inflight_of
from epp_worker.handover.counts import StreamFigures
from epp_worker.holdings import Holdings
from epp_worker.http2.counters import Counters
from epp_worker.loopwatch import LoopWatch
from epp_worker.metrics import Figures, PickCounts
from epp_worker.requests.moment import Requests
from epp_worker.scheduling.prefix.slot import PREFIX
from epp_worker.strays import StrayGate
from epp_worker.surroundings import Surroundings
from fleet.model import Hold
from fleet.sources.metrics import source_figures
from fleet.store.metrics import store_errors


def gather(
    counters: Counters,
    picks: PickCounts,
    requests: Requests,
    gate: StrayGate,
    watch: LoopWatch,
    holdings: Holdings,
    given: Surroundings,
    state: StreamFigures,
    bounds: BoundWatch,
    map_age_seconds: float,
) -> Figures:
    """Read every counter and gauge; changes none of them."""
    strays = gate.counts
    certificates = given.certificates
    return Figures(
        streams_total=tuple(counters.streams_total),
        streams_open=counters.streams_open,
        connections_open=counters.connections_open,
        picks=dict(picks.by_outcome),
        strays={
            "served": strays.served,
            "forwarded": strays.forwarded,
            "held": strays.held,
            "failed": strays.failed,
        },
        strays_waiting=len(gate),
        holds=holdings.counts(),
        inflight=inflight_of(holdings),
        loop_lag_seconds=watch.peak_lag_seconds(),
        loop_busy_ratio=watch.busy_ratio,
        seen=holdings.seen,
        applied=holdings.applied,
        responses={
            "complete": picks.complete,
            "aborted": picks.aborted,
            "detached": picks.detached,
        },
        usage_unreadable=picks.usage_unreadable_total,
        served_elsewhere={
            ref: state.mismatches for group in holdings for ref, state in group.states.items()
        },
        scrapes=given.scraper.counts(),
        source=source_figures(given.source),
        state=state,
        prefixes=holdings.slots.prefixes(
            (ref, pool.slots.get(PREFIX))
            for group in holdings
            for ref, pool in group.states.items()
        ),
        store_errors=store_errors(given.store),
        owned_load=sum(1.0 + group.rate for group in holdings if group.hold is Hold.OWNER),
        certificate_expiry_seconds=(
            None if certificates is None else certificates.expiry_seconds()
        ),
        tls_expiry_seconds=None if given.tls is None else given.tls.expiry_seconds(),
        tls_handshakes={
            "good": counters.tls_handshakes,
            "failed": sum(counters.tls_failed.values()),
            "plaintext_refused": counters.plaintext_refused,
        },
        connections_arriving=counters.connections_arriving,
        bounds_hit=bounds.hits(),
        held_bytes=bounds.held(),
        connection_faults=dict(counters.connection_faults),
        router=requests.moment(
            (
                (pool, group.hold is Hold.OWNER)
                for group in holdings
                for pool in group.states.values()
            ),
            given.scraper.counts().failed,
        ),
        plugin_faults=dict(holdings.schedulers.faults.counts()),
        map_age_seconds=map_age_seconds,
        now=given.clock.monotonic(),
    )
