"""What the functions of frames need of the connection that a frame came on."""

from abc import abstractmethod
from collections import deque
from collections.abc import Callable

from epp_worker.http2.carrier import Carrier
from epp_worker.http2.errors import ErrorCode
from epp_worker.http2.farewell import Farewell
from epp_worker.http2.flood import FloodGuard
from epp_worker.http2.flow import ReceiveWindow
from epp_worker.http2.headers import HeadDecoder
from epp_worker.http2.liveness import Liveness
from epp_worker.http2.stream import Stream


class OpenBlock:
    """A header block that waits for its CONTINUATIONs."""

    __slots__ = ("count", "data", "flags", "stream_id")

    def __init__(self, stream_id: int, flags: int, data: bytes) -> None:
        self.stream_id = stream_id
        self.flags = flags
        self.data = bytearray(data)
        self.count = 0


class Receiver(Carrier):
    """A connection, seen from its frames.

    Attributes:
        streams: every stream that either side has not closed yet.
        last_id: the highest stream that the peer has begun.
        closed_ids: those closed last.
        reset_ids: those that we reset last.
        table: the function of each type of frame, as things stand.
        block: the header block that is open.
        idle_updates: WINDOW_UPDATEs that brought nothing.
        again: a frame to be read before anything else, in the next turn.
        closing: nothing more is read or answered.
    """

    __slots__ = (
        "again",
        "block",
        "closed_ids",
        "closing",
        "decoder",
        "farewell",
        "idle_frames",
        "idle_updates",
        "initial_window",
        "last_id",
        "liveness",
        "receive",
        "reset_ids",
        "streams",
        "table",
        "unanswered_resets",
    )

    streams: dict[int, Stream]
    last_id: int
    closed_ids: deque[int]
    reset_ids: deque[int]
    table: "tuple[FrameFunction, ...]"
    block: OpenBlock | None
    again: bytes
    closing: bool
    decoder: HeadDecoder
    receive: ReceiveWindow
    initial_window: int
    idle_frames: FloodGuard
    idle_updates: int
    unanswered_resets: FloodGuard
    liveness: Liveness
    farewell: Farewell

    @abstractmethod
    def opened(self, stream: Stream) -> None:
        """A new stream."""

    @abstractmethod
    def refuse(self, stream_id: int, code: ErrorCode) -> None:
        """RST_STREAM for a stream that we hold nothing of."""

    @abstractmethod
    def table_changed(self, size: int) -> None:
        """The peer's decoder has another table size."""

    @abstractmethod
    def round_trip(self) -> None:
        """The PING after our first GOAWAY was answered."""

    @abstractmethod
    def work(self, data: bytes, at: int) -> None:
        """Read data[at:] and write, in one piece, what it makes us say."""


FrameFunction = Callable[[Receiver, int, int, bytes, int, int], None]
"""(connection, flags, stream id, buffer, payload's start, payload's end)."""
