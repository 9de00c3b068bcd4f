"""One endpoint's metrics over one kept connection: `GET /metrics`, nothing else.

A worker does thousands of these a second, so they are done on bare sockets with callbacks: no
client library, no task, future, timer or stream for each. A page is read while it arrives instead
of being collected first.
"""

import asyncio
import errno
import os
import socket
from collections.abc import Callable

from epp_worker.datalayer.engines import Engine
from epp_worker.datalayer.http1 import BadResponse, ResponseReader
from epp_worker.datalayer.metrics_text import BadPage, EngineMetrics, Layout, PageReader
from fleet.model.identity import host_port

READ_BYTES = 64 * 1024
"""An ordinary page is one read."""

_WAIT = (errno.EINPROGRESS, errno.EAGAIN, errno.EALREADY, errno.EINTR)


class ScrapeFailed(Exception):
    """No metrics. `refused`: nobody listens at the address."""

    def __init__(self, why: str, *, refused: bool = False) -> None:
        super().__init__(why)
        self.refused = refused


Done = Callable[[EngineMetrics | Exception], None]
"""Takes what a fetch came to: metrics, ScrapeFailed, or an exception that is a fault of ours."""


class _Reading:
    """A fetch under way. `kept`: on a connection that an earlier one has left open."""

    __slots__ = ("_pieces", "done", "engine", "kept", "page", "response")

    def __init__(
        self, engine: Engine, layout: Layout, limit: int, done: Done, *, kept: bool
    ) -> None:
        self.engine = engine
        self.done = done
        self.kept = kept
        self.page = PageReader(engine, layout)
        self.response = ResponseReader(self._take, limit=limit)
        self._pieces = False

    def _take(self, body: bytes) -> None:
        if self.response.done and not self._pieces:
            self.page.read(body, 0, len(body))
        else:
            self._pieces = True
            self.page.feed(body)


class MetricsConnection:
    """Fetches the page of one address, one fetch at a time.

    Attributes:
        busy_seconds: time spent on fetches so far, for the scraper's budget.
    """

    __slots__ = (
        "_buffer",
        "_connecting",
        "_host",
        "_layout",
        "_limit",
        "_now",
        "_port",
        "_reading",
        "_request",
        "_socket",
        "busy_seconds",
    )

    def __init__(
        self,
        host: str,
        port: int,
        *,
        limit: int,
        now: Callable[[], float],
        buffer: bytearray | None = None,
    ) -> None:
        """
        Args:
            host: IP address.
            limit: most bytes of a response.
            now: seconds of processor time of this thread.
            buffer: where reads go, shared by all connections of one loop: it holds nothing from
                one read to the next. Its size is the most that is read before others have their
                turn.
        """
        self.busy_seconds = 0.0
        self._host = host
        self._port = port
        self._buffer = bytearray(READ_BYTES) if buffer is None else buffer
        self._limit = limit
        self._layout = Layout()
        self._now = now
        self._socket: socket.socket | None = None
        self._connecting = False
        self._reading: _Reading | None = None
        name = host_port(host, port)
        self._request = (
            f"GET /metrics HTTP/1.1\r\nHost: {name}\r\nUser-Agent: epp-fleet\r\n"
            "Accept: text/plain;version=0.0.4\r\nAccept-Encoding: identity\r\n\r\n"
        ).encode()

    def fetch(self, engine: Engine, done: Done) -> None:
        """Begin to read the endpoint's metrics; `done` is called once, maybe before this returns.

        Has no deadline of its own: `cancel` it. A kept connection that the peer closed in the
        meantime is replaced once.
        """
        kept = self._socket is not None
        self._reading = _Reading(engine, self._layout, self._limit, done, kept=kept)
        self._step(self._send if kept else self._connect)

    def cancel(self) -> None:
        """Give up the fetch under way, if there is one; its `done` will not be called."""
        if self._reading is not None:
            self.close()

    def close(self) -> None:
        """Drop the connection, if there is one, and what is being read over it."""
        link, self._socket = self._socket, None
        self._reading = None
        if link is not None:
            loop = asyncio.get_running_loop()
            loop.remove_reader(link)
            if self._connecting:
                loop.remove_writer(link)
            link.close()

    # --- steps of a fetch

    def _step(self, work: Callable[[], None]) -> None:
        """Do `work`; whatever goes wrong ends the fetch, and the connection with it."""
        before = self._now()
        try:
            work()
        except ConnectionRefusedError:
            self._end(ScrapeFailed("connection refused", refused=True))
        except OSError as error:
            if not self._begin_anew():
                self._end(ScrapeFailed(f"connection failed: {error.strerror or error}"))
        except (BadResponse, BadPage) as error:
            self._end(ScrapeFailed(str(error)))
        except Exception as error:  # noqa: BLE001 - a fault of ours: whoever asked makes it known
            self._end(error)
        self.busy_seconds += self._now() - before

    def _begin_anew(self) -> bool:
        """Once more, on a connection of its own, after a kept one has ended unanswered."""
        reading = self._reading
        if reading is None or not reading.kept or reading.response.received:
            return False
        self.close()
        again = _Reading(reading.engine, self._layout, self._limit, reading.done, kept=False)
        self._reading = again
        self._step(self._connect)
        return True

    def _connect(self) -> None:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        link = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._socket = link
        self._connecting = False
        code = link.connect_ex((self._host, self._port))
        if code in _WAIT:
            asyncio.get_running_loop().add_writer(link, self._step, self._connected)
            self._connecting = True
        elif code:
            raise OSError(code, os.strerror(code))
        else:
            self._opened(link)

    def _connected(self) -> None:
        link = self._socket
        if link is not None:
            code = link.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                raise OSError(code, os.strerror(code))
            asyncio.get_running_loop().remove_writer(link)
            self._connecting = False
            self._opened(link)

    def _opened(self, link: socket.socket) -> None:
        asyncio.get_running_loop().add_reader(link, self._step, self._read)
        self._send()

    def _send(self) -> None:
        link = self._socket
        if link is not None and link.send(self._request) < len(self._request):
            raise BadResponse("the peer takes no request")  # 200 bytes on an empty connection

    def _read(self) -> None:
        link, reading = self._socket, self._reading
        if link is None:
            return
        try:
            size = link.recv_into(self._buffer)
        except (BlockingIOError, InterruptedError):
            return
        if reading is None:  # closed while it was kept, or an answer that nobody asked for
            self.close()
            return
        response = reading.response
        if size and response.received:
            response.feed(bytes(self._buffer[:size]))
        elif size:
            begin = response.feed_all(self._buffer, size)
            if begin >= 0:
                reading.page.read(self._buffer, begin, size)
        elif response.received or not self._begin_anew():
            response.eof()
        else:
            return
        if response.done:
            self._end(reading.page.finish(), reusable=response.reusable)

    def _end(self, result: EngineMetrics | Exception, *, reusable: bool = False) -> None:
        reading, self._reading = self._reading, None
        if not reusable:
            self.close()
        if reading is not None:
            reading.done(result)
