"""What the transport counts. Plain integers: a metrics collector reads them, nobody waits."""

from typing import Final

from epp_worker.http2.bounds import Bound

GRPC_CODES: Final = 17
"""gRPC status codes are 0 to 16."""


class Counters:
    """Totals of one server since its start, and two gauges (`..._open`)."""

    __slots__ = (
        "bounds",
        "connection_faults",
        "connections_arriving",
        "connections_dead",
        "connections_open",
        "connections_refused",
        "connections_total",
        "handler_errors",
        "http_refused",
        "plaintext_refused",
        "send_overflows",
        "streams_open",
        "streams_refused",
        "streams_total",
        "tls_failed",
        "tls_handshakes",
    )

    def __init__(self) -> None:
        self.bounds = dict.fromkeys(Bound, 0)
        """How often somebody paid for passing each bound."""
        self.connections_open = 0
        self.connections_total = 0
        self.connections_arriving = 0
        """Accepted, but nothing was said yet that tells TLS from plaintext."""
        self.connections_refused = 0
        """Beyond `Http2Limits.max_connections`."""
        self.connections_dead = 0
        """Closed because the peer answered no keep-alive PING."""
        self.connection_faults: dict[str, int] = {}
        """GOAWAYs for a peer's mistakes, by the code's name."""
        self.streams_open = 0
        """Calls whose end has not been written yet."""
        self.streams_total = [0] * GRPC_CODES
        """Calls ended, by gRPC status code; CANCELLED (1) = the peer reset it or went away."""
        self.streams_refused = 0
        """Beyond `max_streams`, malformed, or after the final GOAWAY."""
        self.http_refused = 0
        """Requests that were no gRPC calls (405, 415)."""
        self.plaintext_refused = 0
        """Connections in plaintext where TLS is required."""
        self.tls_handshakes = 0
        """That were completed."""
        self.tls_failed: dict[str, int] = {}
        """Those that were not, by OpenSSL's word for the reason, or `timeout`, `closed`,
        `crowded out`, `no h2 in ALPN`."""
        self.handler_errors = 0
        """Exceptions that a handler let out."""
        self.send_overflows = 0
        """Streams or connections cut because their unsent answers passed a bound."""

    def hit(self, bound: Bound | None) -> None:
        """Somebody pays for passing a bound; None = there was none."""
        if bound is not None:
            self.bounds[bound] += 1
