"""One endpoint's metrics over one kept connection: `GET /metrics`, nothing else.

A protocol of our own instead of a client library: a worker does thousands of these a second, and a
page is read while it arrives instead of being collected first.
"""

import asyncio
from collections.abc import Callable
from typing import cast

from epp_worker.datalayer.http1 import BadResponse, ResponseReader
from epp_worker.datalayer.metrics_text import BadPage, EngineMetrics, PageReader
from fleet.model.identity import host_port


class ScrapeFailed(Exception):
    """No metrics. `refused`: nobody listens at the address."""

    def __init__(self, why: str, *, refused: bool = False) -> None:
        super().__init__(why)
        self.refused = refused


class _Gone(ScrapeFailed):
    """The connection ended before the first byte of the answer."""


class MetricsConnection:
    """Fetches the page of one address, one fetch at a time.

    Attributes:
        busy_seconds: time spent reading pages, for the scraper's budget.
    """

    __slots__ = ("_host", "_limit", "_now", "_port", "_protocol", "_request", "busy_seconds")

    def __init__(self, host: str, port: int, *, limit: int, now: Callable[[], float]) -> None:
        """
        Args:
            host: IP address.
            limit: most bytes of a response.
            now: monotonic seconds.
        """
        self.busy_seconds = 0.0
        self._host = host
        self._port = port
        self._limit = limit
        self._now = now
        self._protocol: _Protocol | None = None
        name = host_port(host, port)
        self._request = (
            f"GET /metrics HTTP/1.1\r\nHost: {name}\r\nUser-Agent: epp-fleet\r\n"
            "Accept: text/plain;version=0.0.4\r\n\r\n"
        ).encode()

    async def fetch(self) -> EngineMetrics:
        """The endpoint's metrics now. Has no deadline of its own: cancel it.

        A kept connection that the peer closed in the meantime is replaced once.

        Raises:
            ScrapeFailed: refused, cut, not a metrics page, too long.
        """
        kept = self._protocol is not None and not self._protocol.closed
        try:
            return await self._exchange()
        except _Gone:
            if not kept:
                raise
            return await self._exchange()

    def close(self) -> None:
        """Drop the connection, if there is one."""
        protocol, self._protocol = self._protocol, None
        if protocol is not None:
            protocol.abort()

    async def _exchange(self) -> EngineMetrics:
        page = PageReader()
        response = ResponseReader(page.feed, limit=self._limit)
        reusable = False
        try:
            protocol = await self._connected()
            await protocol.exchange(self._request, response)
            reusable = response.reusable
            return page.finish()
        except ConnectionRefusedError as error:
            raise ScrapeFailed("connection refused", refused=True) from error
        except OSError as error:
            raise ScrapeFailed(f"connection failed: {error.strerror or error}") from error
        except (BadResponse, BadPage) as error:
            raise ScrapeFailed(str(error)) from error
        finally:
            if not reusable:
                self.close()

    async def _connected(self) -> "_Protocol":
        if self._protocol is None or self._protocol.closed:
            self.close()
            loop = asyncio.get_running_loop()
            _, protocol = await loop.create_connection(
                lambda: _Protocol(self._spent, self._now), self._host, self._port
            )
            self._protocol = protocol
        return self._protocol

    def _spent(self, seconds: float) -> None:
        self.busy_seconds += seconds


class _Protocol(asyncio.Protocol):
    """A connection that carries one exchange at a time."""

    def __init__(self, spent: Callable[[float], None], now: Callable[[], float]) -> None:
        self.closed = False
        self._spent = spent
        self._now = now
        self._transport: asyncio.Transport | None = None
        self._response: ResponseReader | None = None
        self._finished: asyncio.Future[None] | None = None

    async def exchange(self, request: bytes, response: ResponseReader) -> None:
        """Send `request` and read until `response` is complete."""
        if self.closed or self._transport is None:
            raise _Gone("the connection is closed")
        self._response = response
        self._finished = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        try:
            await self._finished
        finally:
            self._response = self._finished = None

    def abort(self) -> None:
        """Close without waiting for what is still to be sent."""
        self.closed = True
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        response = self._response
        if response is None:  # an answer that nobody asked for
            self.abort()
            return
        before = self._now()
        try:
            response.feed(data)
        except (BadResponse, BadPage) as error:
            self.abort()
            self._fail(error)
        else:
            if response.done:
                self._succeed()
        self._spent(self._now() - before)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        response = self._response
        if response is None:
            return
        if response.received == 0:
            self._fail(_Gone("the connection was closed before an answer"))
            return
        if exc is not None and not response.done:  # reset: no end of a page, wherever it stands
            self._fail(BadResponse("the connection broke inside the response"))
            return
        try:
            response.eof()
        except BadResponse as error:
            self._fail(error)
        else:
            self._succeed()

    def _succeed(self) -> None:
        if self._finished is not None and not self._finished.done():
            self._finished.set_result(None)

    def _fail(self, error: Exception) -> None:
        if self._finished is not None and not self._finished.done():
            self._finished.set_exception(error)
