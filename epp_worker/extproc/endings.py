"""How a session may end by itself: gRPC statuses, and refusals over its bounds."""

from typing import NamedTuple

from epp_worker.scheduling.contract import Refusal

TOO_LARGE = Refusal(413, "", "The request body is larger than this endpoint picker takes.")
SATURATED = Refusal(429, "rejected-saturated", "The endpoint picker holds too much; try again.")


class Status(NamedTuple):
    """How the gRPC stream ends: grpc-status and grpc-message."""

    code: int
    message: str


OK = Status(0, "")
INCOMPLETE = Status(3, "half-closed before the request was complete")
NO_HEADERS = Status(3, "request body before request headers")
UNSUPPORTED = Status(12, "body mode GRPC is not supported: use FULL_DUPLEX_STREAMED")
