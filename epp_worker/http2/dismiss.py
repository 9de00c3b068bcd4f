"""Sending somebody away who has not become a connection."""

import contextlib
import socket
from typing import Final

_TAKEN: Final = 64 * 1024


def dismiss(arriving: socket.socket, words: bytes) -> None:
    """Say something, as far as the socket's buffer takes it, and close.

    What the peer sent is taken first: closing over unread bytes resets the connection, and the
    words might never be seen.
    """
    with contextlib.suppress(OSError):
        arriving.recv(_TAKEN)
        arriving.send(words)
    arriving.close()
