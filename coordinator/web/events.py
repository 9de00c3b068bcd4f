"""`GET /api/v1/events`: the map and the workers as they change, as server-sent events.

A client that comes again says in `Last-Event-ID` which epoch.version of the map it has. Events:
`map` (changes from one version to the next), `reset` (read the whole map), `workers`, `standing`,
and `beat` whenever nothing else was said for a while.
"""

import asyncio
import time

import msgspec
from aiohttp import web

from coordinator.view import View
from coordinator.web.documents import FORMAT, timestamp
from coordinator.web.errors import not_now
from coordinator.web.feed import Feed, event

MAX_LISTENERS = 64
"""Who comes when there are as many is turned away, and may poll."""

BEAT_SECONDS = 2.0
WRITE_SECONDS = 10.0
"""Who does not read what it is sent for so long is cut off."""

STREAM_SECONDS = 60.0
"""Then a stream ends, and who may still read comes again: a right is looked at when it begins."""

RETRY_MILLISECONDS = 1_000
_MAX_KNOWN = 50


class BeatDocument(msgspec.Struct, frozen=True):
    """Event `beat`: `now` is this replica's clock."""

    format: int
    now: str


class Events:
    """The handler, and those that listen."""

    def __init__(self, view: View) -> None:
        self._feed = Feed(view)

    def routes(self) -> list[web.AbstractRouteDef]:
        """For the application's router."""
        return [web.get("/api/v1/events", self.events, allow_head=False)]

    async def close(self, _: web.Application) -> None:
        """End all streams: the listener closes."""
        self._feed.close()

    async def events(self, request: web.Request) -> web.StreamResponse:
        """One stream."""
        if self._feed.listeners >= MAX_LISTENERS:
            return not_now("too_many_listeners", f"{MAX_LISTENERS} streams are open; poll instead")
        if self._feed.closed:
            return not_now("closing", "this coordinator stops")
        headers = {
            "Content-Type": "text/event-stream",
            "Cache-Control": "no-store",
            "X-Accel-Buffering": "no",
            "X-Content-Type-Options": "nosniff",
        }
        response = web.StreamResponse(headers=headers)
        known = request.headers.get("Last-Event-ID", "")[:_MAX_KNOWN]
        try:
            async with self._feed.listen():
                await response.prepare(request)
                await self._tell(response, known)
            await response.write_eof()
        except (ConnectionError, TimeoutError):
            if request.transport is not None:
                request.transport.abort()
        return response

    async def _tell(self, response: web.StreamResponse, known: str) -> None:
        """Until the stream has lasted its time, or the listener closes."""
        loop = asyncio.get_running_loop()
        end = loop.time() + STREAM_SECONDS
        told, place = self._feed.begin(known)
        told.insert(0, f"retry: {RETRY_MILLISECONDS}\n".encode() + _beat())
        while not self._feed.closed and loop.time() < end:
            async with asyncio.timeout(WRITE_SECONDS):
                for each in told:  # one by one: what a slow reader has not taken stays in the log
                    await response.write(each)
            await self._feed.change(place, BEAT_SECONDS)
            told, place = self._feed.after(place)
            told = told or [_beat()]


def _beat() -> bytes:
    return event("beat", BeatDocument(FORMAT, timestamp(time.time())))
