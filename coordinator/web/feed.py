"""The news of the map and the workers, made once for all that listen, while anybody does.

What was told last is kept in one log of bounded size. A listener holds a place in it and no queue:
whoever is too slow, or was away for too long, is told to read the whole map again.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator

import msgspec

from coordinator.view import View
from coordinator.web.changes import WorkersChangeDocument, map_changes, pressing, workers_change
from coordinator.web.documents import (
    FORMAT,
    LeaderDocument,
    WorkerDocument,
    leader_document,
    worker_document,
)
from fleet.model import ShardMap

log = logging.getLogger(__name__)

MAX_EVENTS = 512
MAX_LOG_BYTES = 4 * 1024 * 1024
"""Of the log; the oldest events go first."""

GAP_SECONDS = 0.1
"""Between two looks at what is new."""
LOOK_SECONDS = 1.0
"""Who leads is looked at this often, whatever else happens; likewise figures that always change."""
REST = 3.0
"""So many times as long as a look took, none follows: the leader's loop needs the interpreter."""


class StandingDocument(msgspec.Struct, frozen=True):
    """Event `standing`: who leads, and why this replica is not ready (null if it is)."""

    format: int
    fleet: str | None
    leader: LeaderDocument | None
    leading: bool
    not_ready: str | None
    answered_by: str


class ResetDocument(msgspec.Struct, frozen=True):
    """Event `reset`: read `GET /api/v1/map`, then go on with what follows."""

    format: int
    epoch: int
    version: int


def event(name: str, document: msgspec.Struct, mark: str | None = None) -> bytes:
    """One server-sent event; JSON has no line breaks.

    Args:
        mark: its id, of a client that comes again.
    """
    ident = "" if mark is None else f"id: {mark}\n"
    return f"event: {name}\n{ident}data: ".encode() + msgspec.json.encode(document) + b"\n\n"


class Feed:
    """One log of news of one coordinator.

    Attributes:
        closed: nothing will follow: the listener closes.
    """

    def __init__(self, view: View) -> None:
        self.closed = False
        self._view = view
        self._log: deque[tuple[int, bytes, str | None]] = deque()
        self._bytes = 0
        self._next = 0
        self._map: ShardMap | None = None
        self._workers: dict[str, WorkerDocument] = {}
        self._workers_told = float("-inf")
        self._standing: StandingDocument | None = None
        self._news = asyncio.Event()
        self._listeners = 0
        self._watching: asyncio.Task[None] | None = None
        self._looking = asyncio.Lock()

    @property
    def listeners(self) -> int:
        """How many listen."""
        return self._listeners

    @contextlib.asynccontextmanager
    async def listen(self) -> AsyncIterator[None]:
        """Have news gathered; the first listener starts that, the last one ends it."""
        self._listeners += 1
        try:
            await self.look()
            if self._watching is None:
                self._watching = asyncio.create_task(self._watch(), name="news for the page")
            yield
        finally:
            self._listeners -= 1
            if not self._listeners and self._watching is not None:
                self._watching.cancel()
                self._watching = None

    def begin(self, known: str) -> tuple[list[bytes], int]:
        """What a new listener is told, and its place in the log.

        Args:
            known: epoch.version of the map that it has; "" = none.
        """
        told = []
        place = self._place_after(known)
        if place is None:
            place = self._next
            told.append(self._reset())
        if self._standing is not None:
            told.append(event("standing", self._standing))
        everybody = list(self._workers.values())
        told.append(event("workers", WorkersChangeDocument(FORMAT, True, everybody, [])))
        return told, place

    def after(self, place: int) -> tuple[list[bytes], int]:
        """What was told since that place, and the place after it."""
        if place < self._next - len(self._log):
            everybody = WorkersChangeDocument(FORMAT, True, list(self._workers.values()), [])
            return [self._reset(), event("workers", everybody)], self._next
        oldest = self._next - len(self._log)
        return [self._log[i][1] for i in range(place - oldest, len(self._log))], self._next

    async def change(self, place: int, seconds: float) -> None:
        """Wait for news after that place, or for the end, at most so long."""
        if self._next == place and not self.closed:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._news.wait()

    def close(self) -> None:
        """Say that nothing will follow."""
        self.closed = True
        self._wake()

    def _place_after(self, known: str) -> int | None:
        if self._map is not None and known == str(self._map.version):
            return self._next
        return next((n for n, _, since in self._log if since is not None and since == known), None)

    def _reset(self) -> bytes:
        version = (0, 0) if self._map is None else self._map.version
        return event("reset", ResetDocument(FORMAT, *version))

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            revision = self._view.revision()
            began = loop.time()
            try:
                await self.look()
            except Exception:
                log.exception("news for the page could not be gathered")
            await asyncio.sleep(max(GAP_SECONDS, REST * (loop.time() - began)))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._view.after(revision)

    async def look(self) -> None:
        """Tell what is new since the last look."""
        async with self._looking:
            self._look_at_standing()
            await self._look_at_map()
            self._look_at_workers()

    def _look_at_standing(self) -> None:
        view, shard_map = self._view, self._view.shard_map()
        standing = StandingDocument(
            FORMAT,
            None if shard_map is None else shard_map.fleet,
            leader_document(view.leader()),
            view.leading(),
            view.ready(),
            view.id,
        )
        if standing != self._standing:
            self._standing = standing
            self._tell(event("standing", standing))

    async def _look_at_map(self) -> None:
        old, new = self._map, self._view.shard_map()
        if new is old or new is None:
            return
        if old is None:
            self._map = new
            self._tell(self._reset())
            return
        changes = await asyncio.to_thread(map_changes, old, new, self._view.leader())
        self._map = new
        if changes is None:
            self._tell(self._reset())
        else:
            self._tell(event("map", changes, str(new.version)), str(old.version))

    def _look_at_workers(self) -> None:
        now = asyncio.get_running_loop().time()
        workers = {each.member.id: worker_document(each) for each in self._view.members()}
        changed = workers_change(self._workers, workers)
        if changed is None:
            return
        if now - self._workers_told < LOOK_SECONDS and not pressing(self._workers, workers):
            return
        self._workers, self._workers_told = workers, now
        self._tell(event("workers", changed))

    def _tell(self, what: bytes, since: str | None = None) -> None:
        """Add to the log what leads on from the map of version `since`, or from any."""
        self._log.append((self._next, what, since))
        self._next += 1
        self._bytes += len(what)
        while len(self._log) > MAX_EVENTS or (self._bytes > MAX_LOG_BYTES and len(self._log) > 1):
            self._bytes -= len(self._log.popleft()[1])
        self._wake()

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()
