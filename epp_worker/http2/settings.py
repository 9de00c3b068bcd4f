"""SETTINGS in both directions (RFC 9113, 6.5)."""

from collections.abc import Iterator
from typing import Final

from epp_worker.http2.errors import ConnectionFault, ErrorCode
from epp_worker.http2.frames import (
    DEFAULT_WINDOW,
    MAX_MAX_FRAME,
    MAX_WINDOW,
    MIN_MAX_FRAME,
    read_setting,
    settings,
    window_update,
)
from epp_worker.http2.limits import Http2Limits

HEADER_TABLE_SIZE: Final = 1
ENABLE_PUSH: Final = 2
MAX_CONCURRENT_STREAMS: Final = 3
INITIAL_WINDOW_SIZE: Final = 4
MAX_FRAME_SIZE: Final = 5
MAX_HEADER_LIST_SIZE: Final = 6

NO_TABLE: Final = settings({HEADER_TABLE_SIZE: 0})
"""A header table of size 0 makes every header block stand alone once the peer has acknowledged it,
so that decoded blocks can be remembered whole."""

_RANGES: Final = {
    ENABLE_PUSH: (0, 1, ErrorCode.PROTOCOL_ERROR),
    INITIAL_WINDOW_SIZE: (0, MAX_WINDOW, ErrorCode.FLOW_CONTROL_ERROR),
    MAX_FRAME_SIZE: (MIN_MAX_FRAME, MAX_MAX_FRAME, ErrorCode.PROTOCOL_ERROR),
}


def opening(limits: Http2Limits) -> bytes:
    """What we say first: our SETTINGS and the connection's larger window.

    The header table of size 0 is not among them but follows with the first call (`NO_TABLE`):
    clients that set up their table first thing are right about its size until then.
    """
    ours = settings(
        {
            MAX_CONCURRENT_STREAMS: limits.max_streams,
            INITIAL_WINDOW_SIZE: limits.stream_window,
            MAX_HEADER_LIST_SIZE: limits.max_header_list_bytes,
        }
    )
    more = limits.connection_window - DEFAULT_WINDOW
    return ours + window_update(0, more) if more else ours


def parse(data: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The (identifier, value) pairs of a SETTINGS payload, in order, unknown ones included.

    Raises:
        ConnectionFault: a length or value that the RFC forbids.
    """
    if (end - start) % 6:
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "SETTINGS length is no multiple of 6")
    for at in range(start, end, 6):
        name, value = read_setting(data, at)
        low, high, code = _RANGES.get(name, (0, 0xFFFF_FFFF, ErrorCode.PROTOCOL_ERROR))
        if not low <= value <= high:
            raise ConnectionFault(code, f"SETTINGS {name} = {value} is out of range")
        yield name, value
