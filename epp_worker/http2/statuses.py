"""gRPC status codes that the transport itself gives, and words that go with them."""

from typing import Final

OK: Final = 0
CANCELLED: Final = 1
DEADLINE_EXCEEDED: Final = 4
RESOURCE_EXHAUSTED: Final = 8
UNIMPLEMENTED: Final = 12
INTERNAL: Final = 13

TOO_LATE: Final = "the client's deadline has passed"
NO_ROOM: Final = "too many unfinished messages in this server"
