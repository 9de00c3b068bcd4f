"""The far side of a forwarded stream: a call of another worker as the transport's own streams are.

What is answered waits here until the peer's window takes it; while that is much, nothing more is
read of the call.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from epp_worker.http2.contract import GrpcConnection, StreamHandler
from fleet.control.messages import FORWARD_METHOD
from fleet.errors import FleetError
from fleet.model import GroupKey

UNSENT_BYTES = 256 * 1024
"""While more waits for the peer, nothing is read of its call."""


class PeerGone(FleetError):
    """The peer's call is over."""


class PeerConnection:
    """Another worker's connection; it is never sent away."""

    def __init__(self, peer: str) -> None:
        self.peer = peer

    def go_away(self) -> None:
        """Whose connection it is knows by the leader where its streams belong."""


class PeerStream:
    """See `GrpcStream`; `read` and `write` are the two directions of the call."""

    def __init__(self, group: GroupKey, peer: str) -> None:
        self.authority = f"{group.service}.{group.namespace}.svc:{group.port}"
        self.path = FORWARD_METHOD
        self.headers: Mapping[str, str] = {}
        self.connection: GrpcConnection = PeerConnection(peer)
        self.ended: tuple[int, str] | None = None
        self._unsent: deque[bytes] = deque()
        self._unsent_bytes = 0
        self._news = asyncio.Event()
        self._on_sent: Callable[[], None] | None = None
        self._held_back = False
        self._readable = asyncio.Event()
        self._readable.set()

    def send(self, *messages: bytes) -> None:
        """See `GrpcStream.send`."""
        if self.ended is None:
            self._unsent.extend(messages)
            self._unsent_bytes += sum(map(len, messages))
            self._paced()
            self._news.set()

    def end(self, status: int = 0, message: str = "") -> None:
        """See `GrpcStream.end`."""
        if self.ended is None:
            self.ended = (status, message)
            self._news.set()

    def fits(self, size: int) -> bool:
        """See `GrpcStream.fits`."""
        return self._unsent_bytes + size <= UNSENT_BYTES

    def when_sent(self, callback: Callable[[], None]) -> None:
        """See `GrpcStream.when_sent`."""
        self._on_sent = callback
        self._paced()

    def hold_back(self, *, on: bool) -> None:
        """See `GrpcStream.hold_back`."""
        self._held_back = on
        self._paced()

    def _paced(self) -> None:
        if self._held_back or self._unsent_bytes > UNSENT_BYTES:
            self._readable.clear()
        else:
            self._readable.set()
        if not self._unsent and self._on_sent is not None:
            callback, self._on_sent = self._on_sent, None
            callback()

    async def read(self, context: Any, handler: StreamHandler) -> None:
        """Give the handler all that the peer sends, until either side has ended."""
        while self.ended is None:
            await self._readable.wait()
            try:
                message = await context.read()
            except Exception:  # noqa: BLE001 - grpcio has many names for a call that is over
                return
            if not isinstance(message, bytes):
                self._half_closed(handler)
                return
            self._received(handler, message)

    def _received(self, handler: StreamHandler, message: bytes) -> None:
        if self.ended is None:
            handler.received(message)

    def _half_closed(self, handler: StreamHandler) -> None:
        if self.ended is None:
            handler.half_closed()

    async def write(self, context: Any) -> tuple[int, str]:
        """Send all that is answered; returns the status, once there is one.

        Raises:
            PeerGone: the call is over.
        """
        while True:
            await self._news.wait()
            self._news.clear()
            while self._unsent:
                message = self._unsent[0]
                try:
                    await context.write(message)
                except Exception as error:
                    raise PeerGone from error  # grpcio has many names for it
                self._unsent.popleft()
                self._unsent_bytes -= len(message)
                self._paced()
            if self.ended is not None:
                return self.ended
