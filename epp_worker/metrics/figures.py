"""All numbers of a worker at one moment."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from epp_worker.datalayer.counts import ScrapeCounts
from epp_worker.handover.counts import StreamFigures
from epp_worker.requests.moment import Moment
from epp_worker.scheduling.prefix.figures import PrefixPage
from fleet.model import EpochVersion, Hold, PoolRef
from fleet.sources.metrics import SourceFigures


@dataclass(frozen=True, slots=True)
class Figures:
    """See the module.

    Attributes:
        streams_total: by gRPC code, 0..16.
        inflight: by pool, then by endpoint address.
        responses: picked requests that are over, by how they ended.
        served_elsewhere: by pool: responses of another endpoint than the one picked.
        store_errors: calls to the store that failed, by kind.
        certificate_expiry_seconds: None without certificates.
        tls_expiry_seconds: the same of the gateways' port; None = it speaks plaintext alone.
        tls_handshakes: of gateways, by outcome.
        connections_arriving: accepted ones that have not said yet which protocol they speak.
        bounds_hit: how often somebody paid for passing a bound.
        held_bytes: what peers make the worker hold, by what for.
        connection_faults: connections ended for a peer's fault, by the HTTP/2 error code.
        plugin_faults: calls of plugins that failed or were slow, by plugin type.
        router: what is shown under the llm-d router's names.
        owned_load: of the owned groups, as placement counts it: 1 each, plus streams/s.
        map_age_seconds: since a leader or the store last confirmed the share that is held.
        now: when this was, by the clock of the endpoints' `metrics_at`.
    """

    streams_total: Sequence[int]
    streams_open: int
    connections_open: int
    picks: Mapping[str, int]
    strays: Mapping[str, int]
    strays_waiting: int
    holds: Mapping[Hold, int]
    inflight: Mapping[PoolRef, Mapping[str, int]]
    loop_lag_seconds: float
    loop_busy_ratio: float
    seen: EpochVersion
    applied: EpochVersion
    responses: Mapping[str, int] = field(default_factory=dict)
    usage_unreadable: int = 0
    served_elsewhere: Mapping[PoolRef, int] = field(default_factory=dict)
    scrapes: ScrapeCounts = field(default_factory=ScrapeCounts)
    source: SourceFigures = field(default_factory=SourceFigures)
    state: StreamFigures = field(default_factory=StreamFigures)
    prefixes: PrefixPage = field(default_factory=PrefixPage)
    store_errors: Mapping[str, int] = field(default_factory=dict)
    certificate_expiry_seconds: float | None = None
    tls_expiry_seconds: float | None = None
    tls_handshakes: Mapping[str, int] = field(default_factory=dict)
    connections_arriving: int = 0
    bounds_hit: Mapping[str, int] = field(default_factory=dict)
    held_bytes: Mapping[str, int] = field(default_factory=dict)
    connection_faults: Mapping[str, int] = field(default_factory=dict)
    plugin_faults: Mapping[str, int] = field(default_factory=dict)
    owned_load: float = 0.0
    router: Moment = field(default_factory=Moment)
    map_age_seconds: float = 0.0
    now: float = 0.0
