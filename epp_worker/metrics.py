"""What Prometheus reads of a worker.

The serving loop only keeps plain numbers. A scrape copies them in one step on the loop and renders
the page in a thread, so that thousands of endpoints cost the streams nothing but the copy.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from epp_worker.datalayer.counts import ScrapeCounts
from epp_worker.extproc.observer import SilentObserver
from epp_worker.handover.counts import StreamFigures
from epp_worker.handover.metrics import families as state_families
from epp_worker.requests.moment import Moment
from epp_worker.requests.page import write
from epp_worker.requests.text import Family, escaped, labels
from epp_worker.scheduling.contract import Pick
from epp_worker.scheduling.prefix.figures import PrefixPage
from epp_worker.scheduling.prefix.metrics import families as prefix_families
from fleet.model import EpochVersion, Hold, PoolRef
from fleet.sources.metrics import SourceFigures, families
from fleet.store.metrics import families as store_families

CODE_NAMES = (
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
)
"""gRPC status codes by number."""

OUTCOMES = ("picked", "400", "413", "429", "503")


class PickCounts(SilentObserver):
    """What became of requests: picked, or refused with an HTTP status; and of picked ones.

    Attributes:
        complete: picked requests whose response came to its end.
        aborted: picked requests whose stream broke before that.
        detached: picked requests whose stream ended with the pick.
        usage_unreadable_total: usage values in responses that could not be read.
    """

    def __init__(self) -> None:
        self.by_outcome = dict.fromkeys(OUTCOMES, 0)
        self.complete = 0
        self.aborted = 0
        self.detached = 0
        self.usage_unreadable_total = 0

    def picked(self, pick: Pick) -> None:
        """See `SessionObserver.picked`."""
        self.by_outcome["picked"] += 1

    def refused(self, status: int) -> None:
        """See `SessionObserver.refused`."""
        outcome = str(status)
        self.by_outcome[outcome] = self.by_outcome.get(outcome, 0) + 1

    def usage_unreadable(self, count: int) -> None:
        """See `SessionObserver.usage_unreadable`."""
        self.usage_unreadable_total += count

    def left(self) -> None:
        """See `SessionObserver.left`."""
        self.detached += 1

    def finished(self, complete: bool) -> None:
        """See `SessionObserver.finished`."""
        if complete:
            self.complete += 1
        else:
            self.aborted += 1


@dataclass(frozen=True, slots=True)
class Figures:
    """All numbers of one moment.

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


class _Collector:
    """Turns figures into metric families."""

    def __init__(self) -> None:
        self.figures: Figures | None = None

    def collect(self) -> Iterator[Metric]:
        figures = self.figures
        if figures is None:
            return
        streams = dict(zip(CODE_NAMES, figures.streams_total, strict=False))
        yield _counter("streams", "ext_proc streams ended, by gRPC code.", "code", streams)
        yield _gauge("streams_open", "ext_proc streams open now.", figures.streams_open)
        yield _gauge("connections_open", "Gateway connections.", figures.connections_open)
        yield _counter("picks", "Requests decided.", "outcome", figures.picks)
        yield _counter(
            "strays", "Streams of groups that are owned elsewhere.", "outcome", figures.strays
        )
        yield _gauge("strays_waiting", "Streams that wait for their group.", figures.strays_waiting)
        hold = GaugeMetricFamily("epp_fleet_hold", "Route groups held here.", labels=("hold",))
        for kind, count in figures.holds.items():
            hold.add_metric((kind.value,), count)
        yield hold
        yield _gauge(
            "owned_load", "Owned groups plus their streams/s, as placed.", figures.owned_load
        )
        yield _gauge(
            "loop_lag_seconds", "Worst delay of the serving loop lately.", figures.loop_lag_seconds
        )
        yield _gauge(
            "loop_busy_ratio", "Share of a core the serving loop uses.", figures.loop_busy_ratio
        )
        yield _counter("responses", "Picked requests that are over.", "outcome", figures.responses)
        yield _total("usage_unreadable", "Usage values not understood.", figures.usage_unreadable)
        yield _served_elsewhere(figures.served_elsewhere)
        if figures.certificate_expiry_seconds is not None:
            yield _gauge(
                "certificate_expiry_seconds",
                "Seconds until the certificate of the internal port expires.",
                figures.certificate_expiry_seconds,
            )
        yield from _tls(figures)
        yield from _bounds(figures)
        scrapes = figures.scrapes
        outcomes = {"good": scrapes.good, "failed": scrapes.failed}
        yield _counter("scrapes", "Model servers' metrics pages read.", "outcome", outcomes)
        yield _total("scrape_values_dropped", "Impossible values on pages.", scrapes.dropped_values)
        yield _gauge(
            "endpoints_failing",
            "Ready endpoints whose metrics cannot be read.",
            scrapes.endpoints_failing,
        )
        yield _gauge("epoch", "Highest leadership epoch seen.", figures.seen.epoch)
        yield _gauge("map_version", "Version of the last share applied.", figures.applied.version)
        yield _counter(
            "plugin_faults",
            "Calls of scheduling plugins that failed or were slow, by plugin type.",
            "plugin",
            figures.plugin_faults,
        )
        yield from families(figures.source)
        yield from state_families(figures.state)
        yield from prefix_families(figures.prefixes)
        yield from store_families(figures.store_errors)


def _bounds(figures: Figures) -> Iterator[Metric]:
    yield _counter(
        "bounds_hit", "How often somebody passed a bound, and paid.", "bound", figures.bounds_hit
    )
    yield _counter(
        "connection_faults",
        "Gateway connections ended for a fault, by HTTP/2 code.",
        "code",
        figures.connection_faults,
    )
    held = GaugeMetricFamily(
        "epp_fleet_held_bytes", "Bytes that gateways make the worker hold.", labels=("what",)
    )
    for what, size in figures.held_bytes.items():
        held.add_metric((what,), size)
    yield held


def _tls(figures: Figures) -> Iterator[Metric]:
    yield _counter(
        "ext_proc_handshakes", "TLS handshakes of gateways.", "outcome", figures.tls_handshakes
    )
    yield _gauge(
        "connections_arriving",
        "Connections that have not said yet whether they speak TLS.",
        figures.connections_arriving,
    )
    if figures.tls_expiry_seconds is not None:
        yield _gauge(
            "ext_proc_certificate_expiry_seconds",
            "Seconds until the certificate that gateways see expires.",
            figures.tls_expiry_seconds,
        )


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"epp_fleet_{name}", text, value=value)


def _total(name: str, text: str, value: int) -> Metric:
    return CounterMetricFamily(f"epp_fleet_{name}", text, value=value)


def _served_elsewhere(pools: Mapping[PoolRef, int]) -> Metric:
    family = CounterMetricFamily(
        "epp_fleet_served_elsewhere",
        "Responses of another endpoint than the one picked.",
        labels=("namespace", "pool"),
    )
    for ref, count in pools.items():
        family.add_metric((ref.namespace, ref.name), count)
    return family


def _counter(name: str, text: str, label: str, values: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(f"epp_fleet_{name}", text, labels=(label,))
    for key, value in values.items():
        family.add_metric((key,), value)
    return family


_INFLIGHT = Family(
    "epp_fleet_inflight_requests", "gauge", "Requests picked here that are not over."
)


def _inflight(pools: Mapping[PoolRef, Mapping[str, int]]) -> str:
    """As text: there are thousands of them."""
    return _INFLIGHT.write(
        (f'endpoint="{escaped(address)}",{where}', float(count))
        for ref, endpoints in pools.items()
        if (where := labels(namespace=ref.namespace, pool=ref.name))
        for address, count in endpoints.items()
    )


class MetricsPage:
    """Renders figures, and those of the process itself."""

    def __init__(self) -> None:
        self._collector = _Collector()
        self._registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self._registry)
        self._registry.register(self._collector)

    def render(self, figures: Figures) -> bytes:
        """The page in the text format 0.0.4; may take long, so not on the serving loop."""
        self._collector.figures = figures
        usual = generate_latest(self._registry)
        return b"".join((usual, _inflight(figures.inflight).encode(), *write(figures.router)))
