"""What a stream needs of the connection that it is on."""

from typing import Protocol

from epp_worker.http2.contract import GrpcConnection
from epp_worker.http2.errors import ErrorCode
from epp_worker.http2.flow import Outbox
from epp_worker.http2.shared import Shared


class Carrier(GrpcConnection, Protocol):
    """A connection, seen from one of its streams. Streams are told apart by id: none is used twice.

    Attributes:
        shared: what all connections of the server have in common.
        out: the way out.
        round: grows with every liveness check.
    """

    shared: Shared
    out: Outbox
    round: int

    def headers_frame(self, stream_id: int, block: bytes, flags: int = 0) -> bytes:
        """A HEADERS frame with a block of `replies`."""
        ...

    def settled(self) -> None:
        """A stream's end was written, or it died."""
        ...

    def forget(self, stream_id: int) -> None:
        """Both sides have closed it."""
        ...

    def reset(self, stream_id: int, code: ErrorCode) -> None:
        """End a stream by RST_STREAM; if it is closed already, do nothing."""
        ...

    def overflowed(self, stream_id: int) -> None:
        """It holds more answers than its bound."""
        ...

    def check_overfull(self) -> None:
        """More answers wait than before."""
        ...
