"""What all connections of a server have in common."""

import asyncio
import logging
import traceback
from collections.abc import Mapping
from typing import Final, Protocol

from epp_worker.http2.bounds import Bound
from epp_worker.http2.contract import GrpcConnection, Service
from epp_worker.http2.counters import Counters
from epp_worker.http2.deadlines import Deadlines
from epp_worker.http2.flow import Outbox, Unsent
from epp_worker.http2.headers import HeadCache
from epp_worker.http2.limits import Http2Limits
from epp_worker.http2.messages import MessageBudget
from epp_worker.http2.timers import Loop, Timed, Timers
from fleet.clock import SystemClock
from fleet.telemetry import RateLimited

log = logging.getLogger("epp_worker.http2")

_WARN_SECONDS: Final = 5.0


class Member(GrpcConnection, Timed, Protocol):
    """A connection, seen from its server.

    Attributes:
        out: the way out.
    """

    out: Outbox
    closing: bool

    def cut_off(self, bound: Bound) -> None:
        """End it because its peer does not read what we answer."""
        ...

    def go_away(self) -> None:
        """Say that it will end."""
        ...

    def shut(self) -> None:
        """Close it after what was put is written."""
        ...

    def abort(self) -> None:
        """Close it at once."""
        ...


class Shared:
    """One server's services, bounds, counts, and its living connections."""

    __slots__ = (
        "budget",
        "connections",
        "counters",
        "deadlines",
        "emptied",
        "heads",
        "limits",
        "loop",
        "resting",
        "services",
        "streams_held",
        "timers",
        "unsent",
        "unused",
        "warn",
    )

    def __init__(
        self,
        services: Mapping[str, Service],
        limits: Http2Limits,
        counters: Counters,
        loop: Loop,
    ) -> None:
        self.services = services
        self.limits = limits
        self.counters = counters
        self.loop = loop
        self.timers = Timers(loop)
        self.deadlines = Deadlines(loop, self.timers)
        self.heads = HeadCache()
        self.budget = MessageBudget(limits.max_message_bytes, limits.max_partial_bytes)
        self.unsent = Unsent(limits.max_send_bytes)
        self.resting = 0
        """Connections that have read more than they could do in their turn."""
        self.streams_held = 0
        """Streams of all connections that either side has not closed yet."""
        self.warn = RateLimited(log, SystemClock(), seconds=_WARN_SECONDS)
        """For faults that a peer may repeat as often as it likes."""
        self.connections: dict[Member, None] = {}
        self.unused: dict[Member, None] = {}
        """Connections on which no stream was ever opened, the oldest first."""
        self.emptied = asyncio.Event()
        """Set while no connection is open."""
        self.emptied.set()

    def joined(self, connection: Member) -> None:
        """A connection is open."""
        self.connections[connection] = None
        self.unused[connection] = None
        self.counters.connections_open += 1
        self.counters.connections_total += 1
        self.emptied.clear()

    def left(self, connection: Member) -> None:
        """A connection is gone."""
        self.connections.pop(connection, None)
        self.unused.pop(connection, None)
        self.counters.connections_open -= 1
        self.timers.forget(connection)
        if not self.connections:
            self.emptied.set()

    def make_room(self) -> bool:
        """End the oldest connection that may have to give way, if there is one: whoever opens
        connections for nothing keeps no gateway out."""
        oldest = next(iter(self.unused), None)
        if oldest is None and self.limits.oldest_gives_way:
            oldest = next((one for one in self.connections if not one.closing), None)
        if oldest is None:
            return False
        self.unused.pop(oldest, None)
        oldest.go_away()
        oldest.out.flush()
        oldest.abort()
        return True

    def handler_failed(self, event: str, path: str, error: Exception) -> None:
        """Count, and log where it broke: neither its text nor locals, which may quote a prompt."""
        self.counters.handler_errors += 1
        stack = traceback.extract_tb(error.__traceback__)
        self.warn.log(
            logging.ERROR,
            event,
            key=type(error).__name__,
            extra={
                "method": path,
                "error": type(error).__name__,
                "stack": " > ".join(f"{at.filename}:{at.lineno} {at.name}" for at in stack),
            },
        )
