"""The seam between the transport and what is served over it.

The transport calls; the handler answers through the stream it was given. All on one event loop;
no call awaits, none may block.
"""

import ssl
from collections.abc import Callable, Mapping
from typing import Protocol


class GrpcStream(Protocol):
    """One gRPC call, as the handler sees it."""

    @property
    def authority(self) -> str:
        """`:authority` of this very stream, as received ("" if absent)."""
        ...

    @property
    def path(self) -> str:
        """`:path`, `/package.Service/Method`."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """The other request headers, lower-case, last one wins; shared, do not change."""
        ...

    @property
    def connection(self) -> "GrpcConnection":
        """The connection it came on."""
        ...

    def send(self, *messages: bytes) -> None:
        """Queue gRPC messages; framing, flow control and batching are the transport's."""
        ...

    def end(self, status: int = 0, message: str = "") -> None:
        """Send trailers after all that is queued; nothing may be sent afterwards."""
        ...

    def fits(self, size: int) -> bool:
        """Whether `size` more bytes would go out now, within all send windows."""
        ...

    def when_sent(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, as soon as nothing that was sent waits here; perhaps at once.

        One at a time: a later one takes the place of an earlier one. None is called any more when
        the stream is dead. It must not raise.
        """
        ...

    def hold_back(self, *, on: bool) -> None:
        """Open this stream's receive window no more, or again. What the client may send already
        still comes: one window at most."""
        ...


class GrpcConnection(Protocol):
    """A gateway's connection."""

    @property
    def peer(self) -> str:
        """Remote `host:port`."""
        ...

    def __hash__(self) -> int:
        """By identity: usable as a key."""
        ...

    def go_away(self) -> None:
        """Begin a two-phase GOAWAY: no stream is lost, new ones go elsewhere. Idempotent."""
        ...


class StreamHandler(Protocol):
    """What the service does with one call. Exactly one of `aborted` or the handler's own
    `stream.end` is the last thing that happens."""

    def received(self, message: bytes) -> None:
        """One whole gRPC message."""
        ...

    def half_closed(self) -> None:
        """The client will send no more."""
        ...

    def aborted(self) -> None:
        """RST_STREAM, or the connection is gone: release everything; the stream is dead."""
        ...


Service = Callable[[GrpcStream], StreamHandler]
"""Called when a call to a known path begins; may end the stream at once."""


class Tls(Protocol):
    """How the port speaks TLS."""

    @property
    def required(self) -> bool:
        """Whether plaintext is refused."""
        ...

    def context(self) -> ssl.SSLContext:
        """What the next handshake uses. Asked for each of them, so it must not block."""
        ...
