"""A connection that has not said yet whether it speaks TLS."""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Any, Final, Protocol

from epp_worker.http2 import hello, replies
from epp_worker.http2.bounds import Bound
from epp_worker.http2.dismiss import dismiss
from epp_worker.http2.shared import Shared
from epp_worker.http2.timers import Ticket
from fleet.model.identity import host_port

_HTTP_1: Final = (b"GET ", b"HEAD ", b"POST ")


class Door(Protocol):
    """Where arrivals go on to."""

    def forget(self, arrival: "Arrival") -> None:
        """It is none any more."""
        ...

    def plain(self, arriving: socket.socket, peer: str) -> None:
        """It speaks no TLS."""
        ...


Secure = Callable[[socket.socket, tuple[Any, ...], bytes], None]
"""Takes on who speaks TLS: the socket, its peer's address, and its first record, which is still to
be read from the socket."""


class Arrival:
    """An accepted socket whose first bytes are looked at and left where they are.

    A TLS client is waited for until its whole first record is here: so no slot of a handshake is
    taken by one that is slow to say hello. The kernel wakes us (SO_RCVLOWAT) only once that many
    bytes have come, or the connection is over.
    """

    __slots__ = (
        "_address",
        "_door",
        "_loop",
        "_peer",
        "_secure",
        "_shared",
        "_socket",
        "_wanted",
        "_watching",
        "ticket",
    )

    def __init__(
        self,
        door: Door,
        secure: Secure | None,
        shared: Shared,
        arriving: socket.socket,
        address: tuple[Any, ...],
    ) -> None:
        self.ticket: Ticket | None = None
        self._door = door
        self._shared = shared
        self._secure = secure
        self._loop = asyncio.get_running_loop()
        self._socket = arriving
        self._address = address
        self._peer = host_port(address[0], address[1])
        self._wanted = 1
        self._watching = False

    def look(self) -> None:
        """See what has come."""
        try:
            head = self._socket.recv(hello.RECORD_HEAD, socket.MSG_PEEK)
        except BlockingIOError:
            self._wait_for(1)
            return
        except OSError:
            self.drop()
            return
        secure = self._secure
        if not head:
            self.drop()
        elif secure is None or head[0] != hello.HANDSHAKE:
            self._leave()
            if head.startswith(_HTTP_1):
                self._shared.counters.http_refused += 1
                self._shared.warn.log(
                    logging.INFO,
                    "connection fault",
                    key="HTTP/1",
                    extra={"peer": self._peer, "reason": "HTTP/1"},
                )
                dismiss(self._socket, replies.HTTP_1)
            else:
                self._door.plain(self._socket, self._peer)
        elif len(head) < min(self._wanted, hello.RECORD_HEAD):
            self.drop()  # woken with less than was waited for: there will be no more
        elif len(head) < hello.RECORD_HEAD:
            self._wait_for(hello.RECORD_HEAD)
        else:
            self._look_at_record(head, secure)

    def check(self, now: float) -> float | None:
        """The time is up."""
        del now
        self._shared.counters.connections_dead += 1
        self._shared.counters.hit(Bound.PREFACE)
        self.drop()
        return None

    def drop(self) -> None:
        """Close it."""
        self._leave()
        self._socket.close()

    def _look_at_record(self, head: bytes, secure: Secure) -> None:
        try:
            size = hello.record_bytes(head)
            record = self._socket.recv(size, socket.MSG_PEEK)
        except (OSError, ValueError):
            self.drop()
            return
        if len(record) == size:
            self._leave()
            secure(self._socket, self._address, record)
        elif self._wanted == size:
            self.drop()
        else:
            self._wait_for(size)

    def _wait_for(self, size: int) -> None:
        if size != self._wanted:
            self._wanted = size
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)
        if not self._watching:
            self._watching = True
            self._loop.add_reader(self._socket.fileno(), self.look)
            self._shared.timers.at(
                self._shared.loop.time() + self._shared.limits.preface_seconds, self
            )

    def _leave(self) -> None:
        if self._watching:
            self._loop.remove_reader(self._socket.fileno())
            self._shared.timers.forget(self)
        if self._wanted != 1:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
        self._door.forget(self)
