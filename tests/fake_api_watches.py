"""The open watches of a fake API server: what each still has to send."""

import asyncio
import json
from collections.abc import Callable

from tests.fake_api_store import Event, Raw, Resource

CLOSE = None
"""In a watch's queue: end it."""


def line_of(value: Raw) -> bytes:
    """One line of a watch."""
    return json.dumps(value).encode() + b"\n"


class OpenWatch:
    """One open watch.

    Attributes:
        lines: what to send; `CLOSE` ends the watch.
        flowing: not set while nothing may be sent.
        cut: it ends by a reset.
        bookmarks: it asked for bookmarks.
    """

    def __init__(self, path: str, resource: Resource, select: Callable[[Raw], bool]) -> None:
        self.path = path
        self.lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.flowing = asyncio.Event()
        self.flowing.set()
        self.cut = False
        self.bookmarks = False
        self._resource = resource
        self._select = select

    def tell(self, event: Event) -> None:
        """Queue the event if it concerns this watch."""
        if event.resource == self._resource:
            seen = event.seen_through(self._select)
            if seen is not None:
                self.lines.put_nowait(line_of(seen))

    def bookmark(self, version: int) -> bytes:
        """A bookmark's line."""
        metadata = {"resourceVersion": str(version), "creationTimestamp": None}
        body = {"kind": self._resource.kind, "apiVersion": self._resource.api_version}
        return line_of({"type": "BOOKMARK", "object": {**body, "metadata": metadata}})
