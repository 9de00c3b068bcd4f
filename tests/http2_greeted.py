"""A connection that has greeted, and what ended it."""

import struct

from epp_worker.http2 import Http2Limits
from epp_worker.http2.frames import PREFACE
from tests.http2_peer import ECHO, Wire, raw

DATA, HEADERS, PRIORITY, RST, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
ACK = END_STREAM = 1
END_HEADERS = 4
HELLO = PREFACE + raw(SETTINGS, 0, 0)
BLOCK = (
    b"\x83\x86"  # :method POST, :scheme http
    + b"\x04"
    + bytes((len(ECHO),))
    + ECHO.encode()
    + b"\x01\x05a.b:1"
    + b"\x0f\x10\x10application/grpc"
)
"""A request's header block by hand, without the dynamic table (RFC 7541, appendix A)."""


def greeted(limits: Http2Limits | None = None) -> Wire:
    """A connection whose peer has said hello, its answers taken."""
    wire = Wire(limits=limits)
    wire.talk(HELLO, raw(SETTINGS, ACK, 0))
    return wire


def fault_of(wire: Wire) -> int | None:
    """The code of the last GOAWAY, if the connection was ended by one."""
    codes = [struct.unpack(">I", p[4:8])[0] for k, _, _, p in wire.frames() if k == GOAWAY]
    if wire.closed():
        assert codes
        return int(codes[-1])
    return None
