"""One TLS handshake on a socket, a step at a time."""

import contextlib
import socket
import ssl
from enum import Enum, auto
from typing import Final

_READ_BYTES: Final = 16 * 1024 + 5


class Step(Enum):
    """What became of a step."""

    READ = auto()
    """The peer has to say more."""
    WRITE = auto()
    """The socket is full."""
    DONE = auto()
    FAILED = auto()


class Shaking:
    """A handshake. Only one thread at a time may touch it, and its socket.

    Attributes:
        incoming: of the peer, encrypted; outgoing: for it.
        unsent: bytes for the peer that the socket has not taken.
        reason: why it failed.
    """

    __slots__ = ("_context", "_done", "_socket", "_tls", "incoming", "outgoing", "reason", "unsent")

    def __init__(self, arriving: socket.socket) -> None:
        self._socket = arriving
        self._context: ssl.SSLContext | None = None
        self._done = False
        self.incoming = ssl.MemoryBIO()
        self.outgoing = ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None
        self.unsent = b""
        self.reason = ""

    def begin(self, context: ssl.SSLContext) -> None:
        """Steps may be taken from now on."""
        self._context = context

    def tls(self) -> ssl.SSLObject:
        """What encrypts, between `incoming` and `outgoing`.

        Raises:
            RuntimeError: before `begin`.
        """
        if self._tls is None:
            if self._context is None:
                raise RuntimeError("a handshake that was not begun")
            self._tls = self._context.wrap_bio(self.incoming, self.outgoing, server_side=True)
        return self._tls

    def step(self) -> Step:
        """Go as far as what has come allows. Raises nothing.

        The dear part, keys and our signature, is done without Python's lock: 0.2 ms.
        """
        try:
            return self._step()
        except ssl.SSLError as error:
            self.reason = (error.reason or "unknown").lower().replace("_", " ")
            with contextlib.suppress(OSError):  # the alert that says so
                self._socket.send(self.outgoing.read())
        except OSError:
            self.reason = "closed"
        except Exception as error:  # noqa: BLE001 - the thread serves all others too
            self.reason = type(error).__name__
        return Step.FAILED

    def _step(self) -> Step:
        if not self._send():
            return Step.WRITE
        if self._done:
            return Step.DONE
        try:
            said = self._socket.recv(_READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return Step.READ
        if not said:
            self.reason = "closed"
            return Step.FAILED
        self.incoming.write(said)
        try:
            self.tls().do_handshake()
            self._done = True
        except ssl.SSLWantReadError:
            pass
        if not self._send():
            return Step.WRITE
        return Step.DONE if self._done else Step.READ

    def _send(self) -> bool:
        """Whether the socket has taken all that there is to say."""
        data = self.unsent + self.outgoing.read()
        if data:
            try:
                sent = self._socket.send(data)
            except (BlockingIOError, InterruptedError):
                sent = 0
            self.unsent = data[sent:]
        return not self.unsent
