"""Small answers leave at once."""

import asyncio
import socket

from epp_worker.http2 import Http2Limits, Http2Server
from epp_worker.http2.connection import Connection
from tests.http2_peer import ECHO, Client, Recording


async def test_accepted_sockets_do_not_wait_for_acknowledgements() -> None:
    """TCP_NODELAY is set: with Nagle's algorithm every other answer of a stream came 40 ms late."""
    service = Recording()
    server = Http2Server({ECHO: service}, limits=Http2Limits())
    await server.start("127.0.0.1", 0)
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(Client().out())
        await reader.readexactly(9)
        (connection,) = server.connections
        assert isinstance(connection, Connection)
        accepted = connection._transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        writer.close()
    finally:
        await server.close(0)
