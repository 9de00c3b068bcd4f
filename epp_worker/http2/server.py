"""The listening side: accepts connections, and sends all of them away in good order."""

import asyncio
import contextlib
import errno
from collections.abc import Mapping

from epp_worker.http2.connection import Connection
from epp_worker.http2.contract import GrpcConnection, Service
from epp_worker.http2.counters import Counters
from epp_worker.http2.errors import ListenError
from epp_worker.http2.limits import Http2Limits
from epp_worker.http2.shared import Shared
from fleet.listening import listen_tcp

_BACKLOG = 4096
"""All gateways of a cluster may reconnect at the same moment."""


class Http2Server:
    """A gRPC server without TLS.

    Args:
        services: by `:path` (`/package.Service/Method`).
        limits: bounds on what peers may make us hold.

    Attributes:
        counters: totals since the start; survive `close`.
    """

    def __init__(
        self, services: Mapping[str, Service], *, limits: Http2Limits | None = None
    ) -> None:
        self.counters = Counters()
        self._services = dict(services)
        self._limits = limits or Http2Limits()
        self._shared: Shared | None = None
        self._listener: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """The port that is listened on; 0 before `start` and after `close`."""
        if self._listener is None or not self._listener.sockets:
            return 0
        port: int = self._listener.sockets[0].getsockname()[1]
        return port

    @property
    def connections(self) -> tuple[GrpcConnection, ...]:
        """The connections open at this moment."""
        return tuple(self._shared.connections) if self._shared else ()

    async def start(self, host: str, port: int) -> None:
        """Listen; port 0 takes a free one.

        Raises:
            ListenError: the address is taken, not ours, or not allowed.
        """
        loop = asyncio.get_running_loop()
        shared = Shared(self._services, self._limits, self.counters, loop)
        try:
            self._listener = await listen_tcp(
                lambda: Connection(shared), host, port, backlog=_BACKLOG
            )
        except OSError as error:
            raise ListenError(_advice(host, port, error)) from error
        self._shared = shared

    def go_away_all(self) -> None:
        """Begin a two-phase GOAWAY on every connection; new connections are still taken."""
        for connection in self.connections:
            connection.go_away()

    async def close(self, grace_seconds: float) -> None:
        """Stop listening, send all connections away, and cut what is left after the grace."""
        if self._listener is None or self._shared is None:
            return
        shared = self._shared
        self._listener.close()
        self.go_away_all()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_seconds):
                await shared.emptied.wait()
        for connection in tuple(shared.connections):
            connection.shut()
            connection.abort()
        await shared.emptied.wait()
        shared.timers.close()
        self._listener = None


def _advice(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {port} on {host} is in use by another process: stop it (ss -ltnp shows it) "
            "or choose another port (--ext-proc-port)"
        )
    if error.errno == errno.EACCES:
        return f"port {port} on {host} is not allowed: choose one above 1023 (--ext-proc-port)"
    return f"cannot listen on {host}:{port}: {error.strerror or error}"
