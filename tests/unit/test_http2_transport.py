"""What asyncio's transports call is there, though a connection is no heir of `asyncio.Protocol`."""

import asyncio

from epp_worker.http2.connection import Connection


def test_a_connection_has_all_that_a_protocol_has() -> None:
    calls = {name for name in dir(asyncio.Protocol) if not name.startswith("_")}
    assert {"connection_made", "data_received", "eof_received", "connection_lost"} <= calls
    assert calls <= set(dir(Connection))
