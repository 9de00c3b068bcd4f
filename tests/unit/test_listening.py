"""A listener takes connections in small bites and still has a deep backlog."""

import asyncio
import socket

from fleet.listening import ACCEPTED_PER_TURN, listen_tcp


async def test_a_crowd_is_let_in_a_few_at_a_time() -> None:
    """100 that wait are not all taken in the same turn of the loop, and none is lost."""
    made: list[asyncio.Protocol] = []

    def make() -> asyncio.Protocol:
        made.append(asyncio.Protocol())
        return made[-1]

    server = await listen_tcp(make, "127.0.0.1", 0, backlog=100)
    address = server.sockets[0].getsockname()
    peers = [socket.create_connection(address, timeout=5) for _ in range(100)]
    bites: list[int] = []
    while len(made) < 100:
        before = len(made)
        await asyncio.sleep(0)
        bites.append(len(made) - before)
    assert max(bites) == ACCEPTED_PER_TURN
    for peer in peers:
        peer.close()
    server.close()
    await asyncio.sleep(0)
