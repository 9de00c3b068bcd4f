"""What can be wrong with a peer's bytes, in the protocol's own codes (RFC 9113, section 7)."""

from enum import IntEnum

from epp_worker.http2.bounds import Bound
from fleet.errors import FleetError


class ErrorCode(IntEnum):
    """Codes of RST_STREAM and GOAWAY."""

    NO_ERROR = 0x0
    PROTOCOL_ERROR = 0x1
    INTERNAL_ERROR = 0x2
    FLOW_CONTROL_ERROR = 0x3
    SETTINGS_TIMEOUT = 0x4
    STREAM_CLOSED = 0x5
    FRAME_SIZE_ERROR = 0x6
    REFUSED_STREAM = 0x7
    CANCEL = 0x8
    COMPRESSION_ERROR = 0x9
    CONNECT_ERROR = 0xA
    ENHANCE_YOUR_CALM = 0xB
    INADEQUATE_SECURITY = 0xC
    HTTP_1_1_REQUIRED = 0xD


class ConnectionFault(FleetError):
    """The connection cannot go on. Never leaves the connection, which answers with GOAWAY.

    Attributes:
        code: the GOAWAY's error code.
        bound: what the peer ran into, if it was a bound.
    """

    def __init__(self, code: ErrorCode, reason: str, bound: Bound | None = None) -> None:
        super().__init__(reason)
        self.code = code
        self.bound = bound


class PrefaceFault(ConnectionFault):
    """The peer does not speak HTTP/2 at all (TLS to a plaintext port): just close."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.PROTOCOL_ERROR, "no HTTP/2 connection preface")


class ListenError(FleetError):
    """The port cannot be listened on; the message names it and the remedy."""
