"""How much a peer may make us hold, and how long we wait for it."""

from dataclasses import dataclass

from epp_worker.http2.frames import DEFAULT_WINDOW, MAX_WINDOW
from fleet.errors import SettingsError

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Http2Limits:
    """Bounds of one server. Sizes are bytes, durations seconds.

    Raises:
        SettingsError: a value makes no sense; names each.
    """

    max_connections: int = 16_384
    """A gateway opens one per worker thread and cluster: 100 pools x 8 threads x 10 gateways are
    8,000. More are closed at once."""

    oldest_gives_way: bool = False
    """Beyond `max_connections` the oldest connection gives way, used or not. Otherwise one that was
    never used does, or else the newcomer is closed."""

    max_streams: int = 4096
    """Per connection; announced as SETTINGS_MAX_CONCURRENT_STREAMS, refused beyond."""

    max_message_bytes: int = 16 * _MIB
    """One gRPC message, compressed or not."""

    max_partial_bytes: int = 256 * _MIB
    """Unfinished messages of the whole server together."""

    max_header_list_bytes: int = 16_384
    """One request's headers, decoded, as RFC 9113 counts them; grpc-core's own limit. Each open
    stream holds its headers, and decoding 25 kB of them takes 8 ms."""

    max_header_block_bytes: int = 16_384
    """One request's headers as sent, over HEADERS and all its CONTINUATIONs."""

    max_continuations: int = 32
    """CONTINUATION frames after one HEADERS."""

    stream_window: int = _MIB
    """What a peer may send on a stream before we grant more."""

    max_open_streams: int = 131_072
    """Streams of the whole server; each costs some 3 KiB. Refused beyond, so that a gateway may try
    elsewhere: 8,000 connections have 16 each at the same moment."""

    connection_window: int = 16 * _MIB
    """The same for all streams of a connection together."""

    max_stream_send_bytes: int = 32 * _MIB
    """Answers that wait for one stream's window; beyond it the stream is reset."""

    max_connection_send_bytes: int = 128 * _MIB
    """Answers that wait on one connection; beyond it the connection is closed."""

    max_send_bytes: int = 512 * _MIB
    """Answers that wait in the whole server; beyond it the connection that holds most is closed."""

    write_high_water: int = 256 * 1024
    """Unsent bytes in the socket's own buffer at which we stop adding to it."""

    max_idle_frames: int = 30_000
    """PING, SETTINGS, PRIORITY, empty DATA and frames for closed streams in `flood_window`
    seconds. grpc-go measures bandwidth with up to one PING per round trip."""

    max_unanswered_resets: int = 20_000
    """Streams reset before we had answered, in `flood_window` seconds. Envoy ends nearly every
    ext_proc stream by RST_STREAM, so answered ones never count; and a gateway that loses its
    clients resets up to `max_streams` at one moment."""

    flood_window: float = 10.0

    preface_seconds: float = 10.0
    """A connection that has said nothing sensible for this long is closed."""

    handshake_seconds: float = 10.0
    """The same for a TLS handshake, from its turn on."""

    max_handshakes: int = 1024
    """TLS handshakes under way at once; more wait. For another address the oldest of the one that
    has most gives way at once; for its own, after half of `handshake_seconds`: a machine full of
    gateways that all come back is slow to answer, too."""

    keepalive_seconds: float = 30.0
    """Silence after which we ask by PING whether the peer still lives; 0: never."""

    keepalive_timeout_seconds: float = 10.0
    """Silence after that PING: the peer is dead."""

    goaway_ping_seconds: float = 1.0
    """Longest wait for the PING that separates the two GOAWAYs."""

    drain_seconds: float = 600.0
    """After GOAWAY, streams still open are cut after this long."""

    farewell_seconds: float = 1.0
    """After the last stream the peer may close first for this long, so that our last bytes are
    never lost to a TCP reset."""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        problems = [
            f"http2.{name}: must be at least {least:{_PLAIN}}, is {getattr(self, name):{_PLAIN}}"
            for name, least in _LEAST.items()
            if getattr(self, name) < least
        ]
        problems += [
            f"http2.{name}: must be at most {MAX_WINDOW}, is {getattr(self, name)}"
            for name in ("stream_window", "connection_window")
            if getattr(self, name) > MAX_WINDOW
        ]
        if problems:
            raise SettingsError(problems)


_PLAIN = ".15g"
"""1 is written "1" also where it has become a float on its way: compiled code makes it one."""

_LEAST: dict[str, float] = {
    "max_connections": 1,
    "max_streams": 1,
    "max_message_bytes": 1,
    "max_partial_bytes": 1,
    "max_open_streams": 1,
    "max_header_list_bytes": 1024,
    "max_header_block_bytes": 1024,
    "max_continuations": 0,
    "stream_window": DEFAULT_WINDOW,
    "connection_window": DEFAULT_WINDOW,
    "max_stream_send_bytes": 1,
    "max_connection_send_bytes": 1,
    "max_send_bytes": 1,
    "write_high_water": 1,
    "max_idle_frames": 1,
    "max_unanswered_resets": 1,
    "flood_window": 0.001,
    "preface_seconds": 0.001,
    "handshake_seconds": 0.001,
    "max_handshakes": 1,
    "keepalive_seconds": 0,
    "keepalive_timeout_seconds": 0.001,
    "goaway_ping_seconds": 0.001,
    "drain_seconds": 0,
    "farewell_seconds": 0,
}
