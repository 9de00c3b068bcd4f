"""A TLS connection as asyncio's protocols see it, from the end of its handshake on.

asyncio's own begins with the handshake, on the loop; it also keeps a buffer of its own for each
connection, of 256 KiB unless told otherwise. Here all connections of a server have one together.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final, cast

from epp_worker.http2.handshakes.shaking import Shaking

_CIPHER_BYTES: Final = 64 * 1024
"""Read from a socket at once."""

_PLAIN_BYTES: Final = _CIPHER_BYTES + 16 * 1024
"""That, and what was left of a record before."""

_HIGH_BYTES: Final = 64 * 1024

_IDLE_BYTES: Final = 64 * 1024
_WORTH: Final = 4
"""Bytes of records for each byte that comes out of them; what is more is idle, and a connection may
have `_IDLE_BYTES` of it: four records that are not complete. A record of one small frame is 31
long; a change of keys is 27 for nothing, and takes 5 us."""


class Room:
    """What the connections of one loop use in turns.

    Args:
        linger_seconds: how long a peer may take to close after us.
        idle: called for each connection that is ended for records that say nothing.
    """

    __slots__ = ("cipher", "idle", "linger_seconds", "loop", "plain")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, linger_seconds: float, idle: Callable[[], None]
    ) -> None:
        self.loop = loop
        self.idle = idle
        self.linger_seconds = linger_seconds
        self.cipher = memoryview(bytearray(_CIPHER_BYTES))
        self.plain = memoryview(bytearray(_PLAIN_BYTES))


class Secured(asyncio.Transport):
    """See `asyncio.Transport`. `begin` must follow.

    After `close` our last bytes and close_notify are sent; the socket stays until the peer has
    closed too, so that a reset does not overtake them, but not for longer than `linger_seconds`.
    """

    __slots__ = (
        "_closing",
        "_full",
        "_gone",
        "_high",
        "_idle",
        "_incoming",
        "_linger",
        "_loop",
        "_number",
        "_outgoing",
        "_over",
        "_protocol",
        "_reading",
        "_room",
        "_said_bye",
        "_socket",
        "_tls",
        "_unsent",
    )

    def __init__(
        self, room: Room, connected: socket.socket, shaken: Shaking, peer: tuple[Any, ...]
    ) -> None:
        super().__init__({"peername": peer, "ssl_object": shaken.tls()})
        self._room = room
        self._loop = room.loop
        self._socket = connected
        self._number = connected.fileno()
        self._tls = shaken.tls()
        self._incoming = shaken.incoming
        self._outgoing = shaken.outgoing
        self._unsent = bytearray(shaken.unsent)
        self._protocol: asyncio.Protocol | None = None
        self._high = _HIGH_BYTES
        self._full = False
        self._idle = 0
        self._reading = False
        self._closing = False
        self._over = False
        """The peer has said all."""
        self._said_bye = False
        self._gone = False
        self._linger: asyncio.TimerHandle | None = None

    def begin(self, protocol: asyncio.Protocol) -> None:
        """Connected: tell the protocol, and hand on what came with the end of the handshake."""
        self._protocol = protocol
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._watch()
        protocol.connection_made(self)
        self._decrypt()

    # asyncio.Transport

    def is_closing(self) -> bool:
        """Whether nothing more can be written."""
        return self._closing

    def pause_reading(self) -> None:
        """Leave what comes in the socket."""
        if self._reading and not self._closing:
            self._unwatch()

    def resume_reading(self) -> None:
        """Go on."""
        if not self._closing:
            self._watch()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """From `high` bytes on the protocol is paused; until a quarter of that is left."""
        del low
        self._high = _HIGH_BYTES if high is None else high

    def get_write_buffer_size(self) -> int:
        """Bytes that the socket has not taken, encrypted."""
        return len(self._unsent)

    def write(self, data: "bytes | bytearray | memoryview[Any]") -> None:
        """Encrypt, and send what the socket takes."""
        if self._closing:
            return
        try:
            at = self._tls.write(data)
            while at < len(data):
                at += self._tls.write(memoryview(data)[at:])
        except ssl.SSLError:
            self.abort()
            return
        self._push()

    def close(self) -> None:
        """Send what is left, say good-bye, and wait for the peer's."""
        if self._closing:
            return
        self._closing = True
        if not self._over:
            self._watch()
        if not self._unsent:
            self._say_bye()

    def abort(self) -> None:
        """At once."""
        self._closing = True
        self._finish()

    # Inside: reading.

    def _watch(self) -> None:
        if not self._reading and not self._gone:
            self._reading = True
            self._loop.add_reader(self._number, self._readable)

    def _unwatch(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._number)

    def _readable(self) -> None:
        cipher = self._room.cipher
        try:
            size = self._socket.recv_into(cipher)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.abort()
            return
        if not size:
            self._peer_is_done()
        elif not self._closing:
            self._incoming.write(cipher[:size])
            self._idle += size
            self._decrypt()

    def _decrypt(self) -> None:
        """Hand on all that can be read: no more than one read of the socket holds."""
        read = cast(Callable[[int, memoryview], int], self._tls.read)
        plain = self._room.plain
        at, done = 0, False
        try:
            while at < len(plain):
                size = read(len(plain) - at, plain[at:])
                if not size:
                    done = True
                    break
                at += size
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            done = True
        except ssl.SSLError:
            self.abort()
            return
        self._idle = max(0, self._idle - _WORTH * at)
        if self._idle > _IDLE_BYTES:
            self._room.idle()
            self.abort()
            return
        if self._outgoing.pending:  # new keys were asked for
            self._push()
        if at and not self._closing and self._protocol is not None:
            self._protocol.data_received(bytes(plain[:at]))
        if done:
            self._peer_is_done()
        elif at == len(plain):
            self._loop.call_soon(self._more)

    def _more(self) -> None:
        if not self._closing:
            self._decrypt()

    def _peer_is_done(self) -> None:
        self._over = True
        self._unwatch()
        if self._said_bye:
            self._finish()
        else:
            self.close()

    # Inside: writing.

    def _push(self) -> None:
        data = self._outgoing.read()
        if self._unsent:
            self._unsent += data
        elif data:
            try:
                sent = self._socket.send(data)
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError:
                self.abort()
                return
            if sent == len(data):
                return
            self._unsent += memoryview(data)[sent:]
            self._loop.add_writer(self._number, self._writable)
        if len(self._unsent) > self._high and not self._full and self._protocol is not None:
            self._full = True
            self._protocol.pause_writing()

    def _writable(self) -> None:
        try:
            sent = self._socket.send(self._unsent)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.abort()
            return
        del self._unsent[:sent]
        if not self._unsent:
            self._loop.remove_writer(self._number)
            if self._closing:
                self._say_bye()
                return
        if self._full and len(self._unsent) <= self._high // 4 and self._protocol is not None:
            self._full = False
            self._protocol.resume_writing()

    # Inside: the end.

    def _say_bye(self) -> None:
        if self._said_bye or self._gone:
            return
        self._said_bye = True
        with contextlib.suppress(ssl.SSLError):  # raised whenever the peer has not said it yet
            self._tls.unwrap()
        try:
            self._socket.send(self._outgoing.read())
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            self._over = True
        if self._over:
            self._finish()
        else:
            self._linger = self._loop.call_later(self._room.linger_seconds, self.abort)

    def _finish(self) -> None:
        if self._gone:
            return
        self._gone = True
        self._unwatch()
        if self._unsent:
            self._loop.remove_writer(self._number)
            self._unsent.clear()
        if self._linger is not None:
            self._linger.cancel()
        self._loop.call_soon(self._lost)

    def _lost(self) -> None:
        protocol, self._protocol = self._protocol, None
        if protocol is not None:
            protocol.connection_lost(None)
        self._socket.close()
