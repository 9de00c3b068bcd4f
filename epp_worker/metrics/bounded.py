"""What peers make a worker hold, which bounds they meet, and how TLS with them fares."""

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric

from epp_worker.metrics.figures import Figures
from fleet.metrics import counter, gauge

BOUNDS_HIT = counter(
    "epp_fleet_bounds_hit_total",
    "How often somebody passed a bound, and paid.",
    ("bound",),
    series="one for each bound",
)
FAULTS = counter(
    "epp_fleet_connection_faults_total",
    "Gateway connections ended for a fault, by HTTP/2 code.",
    ("code",),
    series="14 codes",
    when="after the first fault",
)
HELD_BYTES = gauge(
    "epp_fleet_held_bytes",
    "Bytes that gateways make the worker hold.",
    ("what",),
    series="one for each bound of bytes",
)
HANDSHAKES = counter(
    "epp_fleet_ext_proc_handshakes_total",
    "TLS handshakes of gateways.",
    ("outcome",),
    series="3 outcomes",
)
ARRIVING = gauge(
    "epp_fleet_connections_arriving", "Connections that have not said yet whether they speak TLS."
)
EXPIRY = gauge(
    "epp_fleet_certificate_expiry_seconds",
    "Seconds until the certificate of the internal port expires.",
    when="where security.* names certificates",
)
GATEWAY_EXPIRY = gauge(
    "epp_fleet_ext_proc_certificate_expiry_seconds",
    "Seconds until the certificate that gateways see expires.",
    when="where ext_proc speaks TLS",
)


def bound_families(figures: Figures) -> Iterator[Metric]:
    """All of them."""
    yield BOUNDS_HIT.by(figures.bounds_hit)
    yield FAULTS.by(figures.connection_faults)
    yield HELD_BYTES.by(figures.held_bytes)
    yield HANDSHAKES.by(figures.tls_handshakes)
    yield ARRIVING.of(figures.connections_arriving)
    if figures.certificate_expiry_seconds is not None:
        yield EXPIRY.of(figures.certificate_expiry_seconds)
    if figures.tls_expiry_seconds is not None:
        yield GATEWAY_EXPIRY.of(figures.tls_expiry_seconds)
