"""An HTTP listener that odd or hostile peers can neither fill nor make talk.

aiohttp bounds what a request may hold, but not how many connections there are nor how long one may
take over its first line: whoever opens enough of them takes all files of the process. And it logs
what a peer got wrong word for word, with a traceback each: a slip in a header may be a token.
"""

import asyncio
import logging
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from fleet.clock import SystemClock
from fleet.listening import listen_tcp
from fleet.telemetry import RateLimited

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 128
"""A scraper, some probes, people and tools: each needs one, and may reconnect at any time."""

_BACKLOG = 512

_WARN_SECONDS = 10.0


class _Door:
    """Makes aiohttp's protocols. When there are too many, the oldest connection goes, not the
    newcomer: idle ones cannot lock anybody out."""

    def __init__(self, server: web.Server, most: int) -> None:
        self._server = server
        self._most = most

    def __call__(self) -> asyncio.Protocol:
        present = self._server.connections
        if len(present) >= self._most:
            # Each newcomer of this turn must find another one: the ended are still in the list.
            open_ones = (one.transport for one in present if one.transport is not None)
            oldest = next((one for one in open_ones if not one.is_closing()), None)
            if oldest is not None:
                oldest.abort()
        return self._server()


class _Discreet(logging.Filter):
    """Turns aiohttp's reports of malformed requests into an event that quotes nothing."""

    def __init__(self) -> None:
        super().__init__()
        self._limited = RateLimited(log, SystemClock(), seconds=_WARN_SECONDS)

    def filter(self, record: logging.LogRecord) -> bool:
        """See `logging.Filter.filter`."""
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, HttpProcessingError):
            return True
        kind = type(error).__name__
        self._limited.log(logging.INFO, "malformed HTTP request", extra={"kind": kind})
        return False


_DISCREET = _Discreet()


class HttpListener:
    """A running listener.

    Attributes:
        port: the port that was bound.
    """

    def __init__(self, runner: web.AppRunner, server: asyncio.Server) -> None:
        self._runner = runner
        self._server = server
        self.port: int = server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stop listening and end all connections; idempotent."""
        self._server.close()
        await self._runner.cleanup()


async def listen_http(
    app: web.Application,
    host: str,
    port: int,
    *,
    shutdown_seconds: float = 1.0,
    max_connections: int = MAX_CONNECTIONS,
    **options: Any,
) -> HttpListener:
    """Serve an application.

    Args:
        port: 0 = any free one.
        shutdown_seconds: requests that are being answered when the listener closes get this long.
        options: for `aiohttp.web.AppRunner`.

    Raises:
        OSError: the port cannot be had.
    """
    logging.getLogger("aiohttp.server").addFilter(_DISCREET)
    runner = web.AppRunner(
        app,
        access_log=None,
        handle_signals=False,
        shutdown_timeout=shutdown_seconds,
        **options,
    )
    await runner.setup()
    handlers = runner.server
    try:
        if handlers is None:  # only before setup
            raise RuntimeError("the runner was not set up")
        door = _Door(handlers, max_connections)
        server = await listen_tcp(door, host, port, backlog=_BACKLOG)
    except BaseException:
        await runner.cleanup()
        raise
    return HttpListener(runner, server)
