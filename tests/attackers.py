"""Peers that speak HTTP/2 by hand: whatever frames they like, at whatever pace."""

import asyncio

from epp_worker.http2 import frames
from epp_worker.process import PATH
from tests.http2_peer import raw, request_headers

HELLO = frames.PREFACE + frames.settings({}) + frames.SETTINGS_ACK


def literals(fields: list[tuple[str, str]]) -> bytes:
    """A header block that touches no table."""
    return b"".join(
        b"\0" + bytes((len(name),)) + name.encode() + bytes((len(value),)) + value.encode()
        for name, value in fields
    )


def headers(stream_id: int, authority: str, extra: list[tuple[str, str]] | None = None) -> bytes:
    """HEADERS of an ext_proc call."""
    fields = request_headers(path=PATH, authority=authority, extra=extra or ())
    return raw(frames.HEADERS, frames.FLAG_END_HEADERS, stream_id, literals(fields))


def data(stream_id: int, content: bytes) -> bytes:
    """DATA frames."""
    parts = [content[at : at + 16_384] for at in range(0, len(content), 16_384)]
    return b"".join(raw(frames.DATA, 0, stream_id, part) for part in parts)


class Attacker:
    """Raw frames on a connection of its own."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, address: str) -> "Attacker":
        """Connect to `host:port`, without a word."""
        host, _, port = address.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    async def send(self, content: bytes) -> None:
        """Send."""
        self._writer.write(content)
        await self._writer.drain()

    async def goaway(self) -> int | None:
        """Read to the end; the code of the last GOAWAY, None without one."""
        code: int | None = None
        rest = b""
        try:
            while piece := await self.reader.read(65_536):
                rest += piece
                while len(rest) >= 9 and len(rest) >= (end := 9 + int.from_bytes(rest[:3], "big")):
                    if rest[3] == frames.GOAWAY:
                        code = int.from_bytes(rest[13:17], "big")
                    rest = rest[end:]
        except ConnectionError:
            pass  # cut off in the middle of it
        return code

    def close(self) -> None:
        """Cut the connection."""
        self._writer.transport.abort()
