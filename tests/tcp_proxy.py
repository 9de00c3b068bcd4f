"""A TCP proxy that a test can cut or turn: what stands between a client and its server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.ports import free_port


class TcpProxy:
    """Listens on a port of loopback and passes bytes, ends and resets on, until it is cut.

    A connection stays with the server that it was opened to.

    Args:
        host: of the server behind.
        port: of the server behind; 0 = none yet, connections are reset.
        address: the loopback address that it listens on.
        own_port: 0 = a free one.
    """

    def __init__(
        self, host: str = "", port: int = 0, *, address: str = "127.0.0.1", own_port: int = 0
    ) -> None:
        self.port = own_port or free_port(address)
        self._address = address
        self._behind = (host, port)
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    @classmethod
    @asynccontextmanager
    async def before(cls, host: str, port: int) -> AsyncIterator["TcpProxy"]:
        """A proxy before `host:port` until the context ends."""
        proxy = cls(host, port)
        await proxy.mend()
        try:
            yield proxy
        finally:
            await proxy.cut()

    def lead_to(self, host: str, port: int) -> None:
        """Where connections go that are opened from now on; port 0 = nowhere."""
        self._behind = (host, port)

    def connections_to(self, host: str, port: int) -> int:
        """How many connections are open to this server."""
        peers = [writer.get_extra_info("peername") for writer in self._writers]
        return sum(peer is not None and peer[:2] == (host, port) for peer in peers)

    async def cut(self) -> None:
        """Reset all connections and refuse new ones."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        if server is not None:
            await server.wait_closed()

    async def mend(self) -> None:
        """Accept connections again, on the same port."""
        self._server = await asyncio.start_server(self._accept, self._address, self.port)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = self._behind
        try:
            if not port:
                raise ConnectionRefusedError
            behind_reader, behind_writer = await asyncio.open_connection(host, port)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, behind_writer}
        try:
            await asyncio.gather(_pass(reader, behind_writer), _pass(behind_reader, writer))
        finally:
            for each in (writer, behind_writer):
                self._writers.discard(each)
                each.close()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except OSError:
        writer.transport.abort()
