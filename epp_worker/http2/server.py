"""The listening side: accepts connections, and sends all of them away in good order."""

import asyncio
import contextlib
import errno
from collections.abc import Mapping
from typing import cast

from epp_worker.http2.connection import Connection
from epp_worker.http2.contract import GrpcConnection, Service, Tls
from epp_worker.http2.counters import Counters
from epp_worker.http2.errors import ListenError
from epp_worker.http2.limits import Http2Limits
from epp_worker.http2.listener import Listener
from epp_worker.http2.shared import Shared


class Http2Server:
    """A gRPC server, on one port for plaintext and TLS.

    Args:
        services: by `:path` (`/package.Service/Method`).
        limits: bounds on what peers may make us hold.
        tls: None = plaintext alone.

    Attributes:
        counters: totals since the start; survive `close`.
    """

    def __init__(
        self,
        services: Mapping[str, Service],
        *,
        limits: Http2Limits | None = None,
        tls: Tls | None = None,
    ) -> None:
        self.counters = Counters()
        self._services = dict(services)
        self._limits = limits or Http2Limits()
        self._tls = tls
        self._shared: Shared | None = None
        self._listener: Listener | None = None

    @property
    def port(self) -> int:
        """The port that is listened on; 0 before `start` and after `close`."""
        return self._listener.port if self._listener is not None else 0

    @property
    def connections(self) -> tuple[GrpcConnection, ...]:
        """The connections open at this moment."""
        return tuple(self._shared.connections) if self._shared else ()

    def held_bytes(self) -> dict[str, int]:
        """What peers make the server hold: `messages` that are not whole yet, and answers that are
        `unsent`."""
        shared = self._shared
        if shared is None:
            return {"messages": 0, "unsent": 0}
        return {"messages": shared.budget.held, "unsent": shared.unsent.held}

    async def start(self, host: str, port: int) -> None:
        """Listen; port 0 takes a free one.

        Raises:
            ListenError: the address is taken, not ours, or not allowed.
        """
        loop = asyncio.get_running_loop()
        shared = Shared(self._services, self._limits, self.counters, loop)
        listener = Listener(shared, lambda: cast(asyncio.Protocol, Connection(shared)), self._tls)
        try:
            await listener.open(host, port)
        except OSError as error:
            raise ListenError(_advice(host, port, error)) from error
        self._shared, self._listener = shared, listener

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
