"""The phases of an ext_proc stream, and how a gateway sends bodies."""

from enum import IntEnum
from typing import NamedTuple

from envoy.extensions.filters.http.ext_proc.v3.processing_mode_pb2 import ProcessingMode


class Kind(IntEnum):
    """Which phase a message belongs to; the values are the field numbers."""

    UNKNOWN = 0
    REQUEST_HEADERS = 2
    RESPONSE_HEADERS = 3
    REQUEST_BODY = 4
    RESPONSE_BODY = 5
    REQUEST_TRAILERS = 6
    RESPONSE_TRAILERS = 7


class BodyMode(IntEnum):
    """How the gateway sends bodies (ProcessingMode.BodySendMode)."""

    NONE = 0
    STREAMED = 1
    BUFFERED = 2
    BUFFERED_PARTIAL = 3
    FULL_DUPLEX_STREAMED = 4
    GRPC = 5


assert int(ProcessingMode.FULL_DUPLEX_STREAMED) == BodyMode.FULL_DUPLEX_STREAMED  # noqa: S101


class Modes(NamedTuple):
    """`protocol_config`: the body mode of each direction."""

    request: BodyMode
    response: BodyMode
