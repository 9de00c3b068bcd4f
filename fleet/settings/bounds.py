"""How much a peer may make a worker hold or do; see docs/transport.md."""

from dataclasses import dataclass
from typing import Annotated

from fleet.settings.limits import Range

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class BoundSettings:
    """What gateways, or whoever reaches ext_proc_port, may make a worker hold and do. Each bound
    that somebody runs into is counted by epp_fleet_bounds_hit_total."""

    max_connections: Annotated[int, Range(1, 10**6)] = 16_384
    """Connections at once, or as many as open files allow. 100 pools x 8 threads x 10 gateways are
    8,000. Beyond it the oldest connection that was never used gives way, else the newcomer."""

    max_streams: Annotated[int, Range(16, 2**31 - 1)] = 131_072
    """Open requests of all connections; each takes some 4 kB. More are refused, so that gateways
    may try elsewhere. The last quarter is for connections that have few."""

    max_header_bytes: Annotated[int, Range(1024, 2**20)] = 16_384
    """One stream's own headers, sent or decoded (the request's own ones are messages). A connection
    that sends more is ended."""

    max_buffered_bytes_per_pool: Annotated[int, Range(1024, 2**40)] = 128 * _MIB
    """Request bodies of one pool's Service, within worker.max_buffered_bytes. Beyond it the body of
    that pool that has made no progress for longest is answered 429."""

    max_unsent_bytes: Annotated[int, Range(65_536, 2**40)] = 512 * _MIB
    """Answers that gateways do not read, of the whole worker: beyond it the connection that holds
    most is ended, as one is that holds a quarter; a stream that holds a sixteenth is reset."""

    max_prefix_index_bytes: Annotated[int, Range(2**20, 2**40)] = 256 * _MIB
    """What is remembered of prompts, of all pools: 140 bytes for 256 bytes of a prompt at an
    endpoint, 31,250 of these for each endpoint. Beyond it those that have most forget most."""

    max_idle_frames: Annotated[int, Range(100, 2**31 - 1)] = 30_000
    """Frames of a connection in 10 s that bring nothing: PING, SETTINGS, PRIORITY, empty DATA,
    windows opened without use, frames for closed streams. More end it."""

    max_unanswered_resets: Annotated[int, Range(100, 2**31 - 1)] = 20_000
    """Streams of a connection in 10 s that end by RST_STREAM before we had answered. More end it.
    Envoy ends nearly every stream so, but after the answer; and it resets all that are open when it
    loses its clients."""

    preface_seconds: Annotated[float, Range(0.1, 600)] = 10.0
    """A connection that has not begun to speak HTTP/2 or TLS by then is closed."""

    keepalive_seconds: Annotated[float, Range(0, 86_400)] = 30.0
    """After this long without a byte of a connection it is asked by PING; 0: never."""

    keepalive_timeout_seconds: Annotated[float, Range(0.1, 600)] = 10.0
    """A connection that does not answer that by then is closed."""
