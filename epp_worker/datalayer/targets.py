"""The endpoints that are read, one by one, and the places that bound how many at once.

Endpoints that fail have places of their own, fewer ones, or a pool full of dead pods would starve
the healthy ones.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Protocol

from epp_worker.datalayer.engines import Engine, engine_of
from epp_worker.datalayer.fetch import Done
from epp_worker.datalayer.metrics_text import EngineMetrics
from epp_worker.scheduling.endpoint import EndpointState
from epp_worker.scheduling.pool import PoolState
from epp_worker.scheduling.subset import split_address


class Connection(Protocol):
    """Reads one endpoint; see `epp_worker.datalayer.fetch.MetricsConnection`."""

    busy_seconds: float

    def fetch(self, engine: Engine, done: Done) -> None:
        """Begin to read its metrics; `done` gets them, or what went wrong, once."""
        ...

    def cancel(self) -> None:
        """Give up the fetch under way, if there is one."""
        ...

    def close(self) -> None:
        """Drop what is open."""
        ...


Connect = Callable[[str, int], Connection]
"""Makes the connection to an ip and port; nothing is opened yet."""


class Phase(IntEnum):
    """Where an endpoint is between two scrapes."""

    IDLE = 0
    WAITING = 1
    READING = 2


class Target:
    """One endpoint and how to reach it.

    Attributes:
        not_before: it is not asked until then.
        ready_since: of its pod, when it was last looked at.
        place: where it waits or is being read.
        done: takes what a fetch came to.
        at: when the present scrape began; `inflight`: what was open then.
        busy: the connection's `busy_seconds` when the last scrape had ended.
    """

    __slots__ = (
        "_waiters",
        "at",
        "busy",
        "connection",
        "done",
        "followed",
        "inflight",
        "not_before",
        "phase",
        "place",
        "ready_since",
        "state",
    )

    def __init__(
        self,
        followed: "Followed",
        state: EndpointState,
        connect: Connect,
        done: Callable[["Target", EngineMetrics | Exception], None],
    ) -> None:
        address = split_address(state.address)
        if address is None or address[1] is None:
            raise ValueError(f"no ip:port: {state.address}")
        self.followed = followed
        self.state = state
        self.connection = connect(address[0], address[1])
        self.done: Done = lambda result: done(self, result)
        self.phase = Phase.IDLE
        self.place: Places | None = None
        self.not_before = 0.0
        self.ready_since = state.endpoint.ready_since
        self.at = self.busy = 0.0
        self.inflight = 0
        self._waiters: list[asyncio.Future[None]] | None = None

    def begin(self, now: float) -> None:
        """Read it."""
        self.phase = Phase.READING
        self.at = now
        self.inflight = self.state.inflight
        self.connection.fetch(engine_of(self.state.endpoint.engine), self.done)

    def end(self) -> None:
        """It is read, given up, or gone: free its place and tell who waits for that."""
        if self.place is not None:
            self.place.leave(self)
            self.place = None
        self.phase = Phase.IDLE
        waiters, self._waiters = self._waiters, None
        for waiter in waiters or ():
            if not waiter.done():
                waiter.set_result(None)

    def drop(self) -> None:
        """The endpoint is of no interest any more."""
        self.connection.cancel()
        self.connection.close()
        self.end()

    def ready_anew(self) -> bool:
        """Whether its pod has become ready again since the last call: then what was held against
        it may be over, and it is asked without delay."""
        since = self.state.endpoint.ready_since
        anew, self.ready_since = since != self.ready_since, since
        if anew:
            self.not_before = 0.0
        return anew

    def ended(self) -> asyncio.Future[None]:
        """Done when the scrape that waits or is under way has ended."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._waiters is None:
            self._waiters = []
        self._waiters.append(waiter)
        return waiter


class Followed:
    """A pool that is scraped.

    Attributes:
        interval: seconds between scrapes when it was last due; `started`: when that was.
        due: when it is next.
        settle_at: when a shorter interval may count its metrics as overdue.
        gone: it is not followed any more.
    """

    __slots__ = ("due", "gone", "interval", "pool", "settle_at", "started", "targets")

    def __init__(self, pool: PoolState, now: float) -> None:
        self.pool = pool
        self.targets: dict[EndpointState, Target] = {}
        self.interval = 0.0
        self.started = float("-inf")
        self.due = now
        self.settle_at: float | None = None
        self.gone = False


class Places:
    """So many endpoints may be read at once; the others wait in line."""

    __slots__ = ("_free", "_line", "_reading")

    def __init__(self, count: int) -> None:
        self._free = count
        self._line: deque[Target] = deque()
        self._reading: deque[tuple[Target, float]] = deque()

    def line_up(self, target: Target) -> None:
        """Let it wait for its turn."""
        target.phase = Phase.WAITING
        target.place = self
        self._line.append(target)

    def leave(self, target: Target) -> None:
        """It waits no more, or is read no more."""
        if target.phase is Phase.READING:
            self._free += 1

    def waiting(self) -> bool:
        """Whether somebody could begin now."""
        while self._line and self._line[0].phase is not Phase.WAITING:
            self._line.popleft()
        return bool(self._line) and self._free > 0

    def begin(self, most: int, now: float) -> None:
        """Let up to `most` begin."""
        while most and self.waiting():
            most -= 1
            self._free -= 1
            target = self._line.popleft()
            self._reading.append((target, now))
            target.begin(now)

    def overdue(self, limit: float, now: float) -> Iterable[Target]:
        """Those being read for `limit` seconds; each is told of once."""
        while (begun := self.oldest()) is not None and begun + limit <= now:
            yield self._reading.popleft()[0]

    def oldest(self) -> float | None:
        """When the one that takes longest was begun; None = nobody is being read."""
        while self._reading:
            target, at = self._reading[0]
            if target.phase is Phase.READING and target.at == at:
                return at
            self._reading.popleft()
        return None
