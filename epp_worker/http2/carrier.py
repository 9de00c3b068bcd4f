"""What a stream needs of the connection that it is on."""

from abc import ABC, abstractmethod

from epp_worker.http2.errors import ErrorCode
from epp_worker.http2.flow import Outbox
from epp_worker.http2.shared import Shared


class Carrier(ABC):
    """A connection, seen from one of its streams. Streams are told apart by id: none is used twice.

    A class and no Protocol, as `receiver.Receiver` is: compiled code reads the attributes of a
    class in a nanosecond, and has to look up those of a Protocol.

    Attributes:
        peer: remote `host:port`.
        shared: what all connections of the server have in common.
        out: the way out.
        round: grows with every liveness check.
    """

    __slots__ = ("out", "peer", "round", "shared")

    peer: str
    shared: Shared
    out: Outbox
    round: int

    @abstractmethod
    def go_away(self) -> None:
        """See `contract.GrpcConnection.go_away`."""

    @abstractmethod
    def headers_frame(self, stream_id: int, block: bytes, flags: int = 0) -> bytes:
        """A HEADERS frame with a block of `replies`."""

    @abstractmethod
    def settled(self) -> None:
        """A stream's end was written, or it died."""

    @abstractmethod
    def forget(self, stream_id: int) -> None:
        """Both sides have closed it."""

    @abstractmethod
    def reset(self, stream_id: int, code: ErrorCode) -> None:
        """End a stream by RST_STREAM; if it is closed already, do nothing."""

    @abstractmethod
    def overflowed(self, stream_id: int) -> None:
        """It holds more answers than its bound."""

    @abstractmethod
    def check_overfull(self) -> None:
        """More answers wait than before."""
