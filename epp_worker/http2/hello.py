"""What a TLS client says first, read without taking it away (RFC 8446, 4.1.2; RFC 7301).

OpenSSL through Python's `ssl` does not tell a client that offers other protocols than ours from one
that offers none. The one must be refused, since it will not speak HTTP/2; the other is served.
"""

from typing import Final

HANDSHAKE: Final = 0x16
"""First byte of every TLS connection; HTTP/2 begins with `P`."""

RECORD_HEAD: Final = 5
LONGEST_RECORD: Final = RECORD_HEAD + 16_384
"""Of plaintext, as the first record is (RFC 8446, 5.1)."""

NO_APPLICATION_PROTOCOL: Final = b"\x15\x03\x03\x00\x02\x02\x78"
"""A fatal alert (RFC 7301, 3.2)."""

_CLIENT_HELLO: Final = 1
_ALPN: Final = 16
_VERSION_AND_RANDOM: Final = 34


def record_bytes(head: bytes) -> int:
    """How long the first record is, all in all; `head` holds its first five bytes.

    Raises:
        ValueError: this is no TLS.
    """
    if head[0] != HANDSHAKE or head[1] != 3:
        raise ValueError("no TLS handshake record")
    size = int.from_bytes(head[3:5], "big")
    if not 0 < size <= LONGEST_RECORD - RECORD_HEAD:
        raise ValueError("TLS record of an impossible length")
    return RECORD_HEAD + size


def offered_protocols(record: bytes) -> tuple[bytes, ...] | None:
    """The ALPN protocols in a ClientHello; None if it has no such list, or cannot be read.

    Whatever cannot be read here, OpenSSL reads next and says what is wrong with it. So it is with
    a hello that does not fit into one record.
    """
    try:
        return _protocols(_Reader(record[RECORD_HEAD:]))
    except _TooShort:
        return None


class _TooShort(Exception):
    """A length points beyond the end."""


class _Reader:
    """Takes pieces off the front."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def more(self) -> bool:
        return self._at < len(self._data)

    def take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise _TooShort
        piece = self._data[self._at : end]
        self._at = end
        return piece

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def vector(self, size: int) -> bytes:
        """What follows a length of `size` bytes."""
        return self.take(self.number(size))


def _protocols(hello: _Reader) -> tuple[bytes, ...] | None:
    if hello.number(1) != _CLIENT_HELLO:
        return None
    body = _Reader(hello.vector(3))
    body.take(_VERSION_AND_RANDOM)
    body.vector(1)  # session id
    body.vector(2)  # cipher suites
    body.vector(1)  # compression methods
    if not body.more():
        return None
    extensions = _Reader(body.vector(2))
    while extensions.more():
        kind, content = extensions.number(2), extensions.vector(2)
        if kind == _ALPN:
            names = _Reader(_Reader(content).vector(2))
            found = []
            while names.more():
                found.append(names.vector(1))
            return tuple(found)
    return None
