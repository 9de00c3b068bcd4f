"""TLS handshakes: not all at once, and none for ever.

The first step of a handshake (keys, and our signature) is by far the dearest, and it comes as soon
as a transport is made, since the client's hello is here already. So a turn of the loop begins only
a few, whoever else has work gets its turns, and 2,000 gateways that come back at once are taken one
after another.
"""

import asyncio
import asyncio.sslproto
import itertools
import logging
import math
import socket
import ssl
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from epp_worker.http2 import hello
from epp_worker.http2.contract import Tls
from epp_worker.http2.dismiss import dismiss
from epp_worker.http2.shared import Shared

BEGUN_PER_TURN: Final = 4
"""A handshake takes some 1 ms in all, half of it in this step."""

_FRESH: Final = 32
_FRESH_SECONDS: Final = 0.05
"""So many may have begun within this time and not be done: their clients may all answer within the
same turn of the loop, and those that are slow to answer keep nobody waiting."""

_WAITS: Final = 3
"""Who waits for its turn longer than so many handshakes may take is let go; most clients have gone
before."""

_TLS_READ_BYTES: Final = 32 * 1024
"""asyncio gives each TLS connection a buffer of 256 KiB to read into: 2 GB for 8,000 of them."""

_H2: Final = b"h2"


@dataclass(frozen=True, slots=True, eq=False)
class _Client:
    """A socket whose hello is here.

    Attributes:
        since: when it was, by the loop's clock.
    """

    arriving: socket.socket
    peer: str
    since: float


class Handshakes:
    """Those that wait and those under way."""

    def __init__(self, shared: Shared, make: Callable[[], asyncio.Protocol], tls: Tls) -> None:
        asyncio.sslproto.SSLProtocol.max_size = _TLS_READ_BYTES
        self._shared = shared
        self._make = make
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Client] = deque()
        self._under_way: dict[asyncio.Task[None], float] = {}
        self._next: asyncio.Handle | None = None
        self._closed = False

    def __len__(self) -> int:
        return len(self._waiting) + len(self._under_way)

    def add(self, arriving: socket.socket, peer: str, record: bytes) -> None:
        """Begin with this one as soon as it is its turn."""
        offered = hello.offered_protocols(record)
        if offered is not None and _H2 not in offered:
            dismiss(arriving, hello.NO_APPLICATION_PROTOCOL)
            self._failed(peer, "no h2 in ALPN")
            return
        self._waiting.append(_Client(arriving, peer, self._loop.time()))
        self._soon()

    def close(self) -> None:
        """Drop them all."""
        self._closed = True
        if self._next is not None:
            self._next.cancel()
        for client in self._waiting:
            client.arriving.close()
        self._waiting.clear()
        for task in tuple(self._under_way):
            task.cancel()

    def _soon(self) -> None:
        if self._next is None and self._waiting:
            self._next = self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        self._next = None
        now = self._loop.time()
        limits = self._shared.limits
        begun = 0
        while self._waiting and begun < BEGUN_PER_TURN and self._has_room(now):
            client = self._waiting.popleft()
            if now - client.since >= limits.handshake_seconds * _WAITS:
                client.arriving.close()
                self._failed(client.peer, "timeout")
                continue
            begun += 1
            task = self._loop.create_task(self._shake(client))
            self._under_way[task] = now
            task.add_done_callback(self._done)
        if begun:
            self._soon()

    def _has_room(self, now: float) -> bool:
        """Whether another may begin; makes room if somebody has had long enough."""
        limits = self._shared.limits
        if len(self._under_way) < limits.max_handshakes:
            begun = reversed(self._under_way.values())
            nth = next(itertools.islice(begun, _FRESH - 1, None), -math.inf)
            if now - nth >= _FRESH_SECONDS:
                return True
            self._later(nth + _FRESH_SECONDS - now)
            return False
        oldest = next(iter(self._under_way))
        wait = self._under_way[oldest] + limits.handshake_seconds / 2 - now
        if wait <= 0:
            oldest.cancel()
        else:
            self._later(wait)
        return False

    def _later(self, seconds: float) -> None:
        if self._next is None:
            self._next = self._loop.call_later(seconds, self._begin)

    def _done(self, task: asyncio.Task[None]) -> None:
        del self._under_way[task]
        if self._next is not None:
            self._next.cancel()
            self._next = None
        self._soon()

    async def _shake(self, client: _Client) -> None:
        limits = self._shared.limits
        try:
            await self._loop.connect_accepted_socket(
                self._make,
                client.arriving,
                ssl=self._tls.context(),
                ssl_handshake_timeout=limits.handshake_seconds,
                ssl_shutdown_timeout=limits.keepalive_timeout_seconds,
            )
        except OSError as error:
            client.arriving.close()
            self._failed(client.peer, _reason(error))
        except asyncio.CancelledError:
            client.arriving.close()
            if not self._closed:
                self._failed(client.peer, "crowded out")
            raise
        else:
            self._shared.counters.tls_handshakes += 1

    def _failed(self, peer: str, reason: str) -> None:
        counts = self._shared.counters.tls_failed
        counts[reason] = counts.get(reason, 0) + 1
        self._shared.warn.log(
            logging.WARNING,
            "TLS handshake failed",
            key=reason,
            extra={"peer": peer, "reason": reason},
        )


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "unknown").lower().replace("_", " ")
    # asyncio: ConnectionAbortedError is its deadline, ConnectionResetError the peer's doing.
    return "timeout" if isinstance(error, ConnectionAbortedError | TimeoutError) else "closed"
