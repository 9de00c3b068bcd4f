"""Accepting: in small bites, and with a look at what a connection says before it costs anything.

asyncio cannot push back bytes that were read, so whether a connection is TLS is looked up
(MSG_PEEK) before a transport is made of its socket. Until then a connection is a socket and an
entry in the timers: one that says nothing is cheap, and is closed after `preface_seconds`.

asyncio's own accept loop takes as many connections in one turn as its backlog is deep: 4,096 of
them keep everybody else waiting for 0.9 s.
"""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable, Sequence
from typing import Any, Final

from epp_worker.http2.arrivals import Arrival
from epp_worker.http2.bounds import Bound
from epp_worker.http2.contract import Tls
from epp_worker.http2.handshakes import Crowd, Handshakes
from epp_worker.http2.shared import Shared

ACCEPTED_PER_TURN: Final = 16
"""Connections taken in one turn of the loop."""

_BACKLOG: Final = 4096
"""All gateways of a cluster may reconnect at the same moment."""

_EXHAUSTED: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))
_PAUSE_SECONDS: Final = 0.5
"""No file is free: connections wait in the kernel meanwhile."""


class Listener:
    """One port, on every address of a host.

    Args:
        make: a new connection's protocol.
        tls: None = plaintext alone.
    """

    def __init__(
        self, shared: Shared, make: Callable[[], asyncio.Protocol], tls: Tls | None
    ) -> None:
        self._shared = shared
        self._make = make
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._sockets: list[socket.socket] = []
        self._arrivals: dict[Arrival, None] = {}
        self._crowd: Crowd[Any] = Crowd()
        """All who are no connection yet, by their addresses."""
        self._opening: set[asyncio.Task[None]] = set()
        self._handshakes = Handshakes(shared, make, tls, self._crowd) if tls is not None else None
        self._resume: asyncio.TimerHandle | None = None

    @property
    def port(self) -> int:
        """The port that is listened on; 0 after `close`."""
        port: int = self._sockets[0].getsockname()[1] if self._sockets else 0
        return port

    async def open(self, host: str, port: int) -> None:
        """Listen; port 0 takes one that is free on all addresses.

        Raises:
            OSError: the port cannot be had.
        """
        found = await self._loop.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        addresses = list(dict.fromkeys((family, address) for family, _, _, _, address in found))
        self._sockets = _bind_all(addresses, port)
        self._listen()

    def close(self) -> None:
        """Stop listening, and drop whoever has not become a connection yet."""
        if self._resume is not None:
            self._resume.cancel()
        for listening in self._sockets:
            self._loop.remove_reader(listening.fileno())
            listening.close()
        self._sockets.clear()
        for arrival in tuple(self._arrivals):
            arrival.drop()
        for task in tuple(self._opening):
            task.cancel()
        if self._handshakes is not None:
            self._handshakes.close()

    # For arrivals.

    def forget(self, arrival: Arrival) -> None:
        """It is a connection now, or gone."""
        del self._arrivals[arrival]
        self._crowd.remove(arrival)
        self._shared.counters.connections_arriving -= 1

    def plain(self, arriving: socket.socket, peer: str) -> None:
        """It speaks plaintext."""
        if self._tls is not None and self._tls.required:
            self._shared.counters.plaintext_refused += 1
            self._shared.warn.log(
                logging.WARNING,
                "plaintext refused: this port wants TLS",
                extra={"peer": peer},
            )
            arriving.close()
            return
        task = self._loop.create_task(self._open(arriving))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    # Inside.

    async def _open(self, arriving: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._make, arriving)
        except OSError:
            arriving.close()

    def _listen(self) -> None:
        self._resume = None
        for listening in self._sockets:
            self._loop.add_reader(listening.fileno(), self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        counters = self._shared.counters
        most = self._shared.limits.max_connections
        for _ in range(ACCEPTED_PER_TURN):
            try:
                arriving, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionError):
                return
            except OSError as error:
                self._failed(error)
                return
            shaking = 0 if self._handshakes is None else len(self._handshakes)
            arriving_now = len(self._arrivals) + len(self._opening) + shaking
            if counters.connections_open + arriving_now >= most:
                counters.hit(Bound.CONNECTIONS)
                if not self._make_room(address[0]):
                    counters.connections_refused += 1
                    arriving.close()
                    continue
            arriving.setblocking(False)
            secure = None if self._handshakes is None else self._handshakes.add
            arrival = Arrival(self, secure, self._shared, arriving, address)
            self._arrivals[arrival] = None
            self._crowd.add(address[0], arrival)
            counters.connections_arriving += 1
            arrival.look()

    def _make_room(self, source: str) -> bool:
        """End somebody who has to give way to a newcomer, if there is anybody: first of those who
        are no connection yet, and whose address has more of them than the newcomer's."""
        in_the_way = self._crowd.in_the_way(source)
        if in_the_way is None:
            return self._shared.make_room()
        in_the_way.drop()
        return True

    def _failed(self, error: OSError) -> None:
        self._shared.warn.log(
            logging.ERROR,
            "connections cannot be accepted",
            extra={"reason": error.strerror or str(error)},
        )
        if error.errno in _EXHAUSTED:
            for listening in self._sockets:
                self._loop.remove_reader(listening.fileno())
            self._resume = self._loop.call_later(_PAUSE_SECONDS, self._listen)


def _bind_all(addresses: Sequence[tuple[int, tuple[Any, ...]]], port: int) -> list[socket.socket]:
    bound: list[socket.socket] = []
    try:
        for family, address in addresses:
            chosen = port or (bound[0].getsockname()[1] if bound else 0)
            # asyncio sets TCP_NODELAY only where a socket's protocol says TCP. Without it a second
            # small write waits until the peer acknowledges the first, up to 40 ms.
            listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
            bound.append(listening)
            listening.setblocking(False)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listening.bind((address[0], chosen, *address[2:]))
            listening.listen(_BACKLOG)
    except OSError:
        for listening in bound:
            listening.close()
        raise
    return bound
