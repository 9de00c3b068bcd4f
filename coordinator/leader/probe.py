"""Looking at a worker from outside: plain TCP connects, and the gRPC health check.

A refused connection proves that nobody listens there; nothing else here proves a death.
"""

import asyncio
import contextlib

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2

from coordinator.verdicts import Connect
from fleet.model import Addresses

CONNECT_SECONDS = 0.25
"""An attempt that takes longer proves nothing."""

CHECK_SECONDS = 0.5
"""A health check that takes longer is unanswered."""

_CHECK_METHOD = "/grpc.health.v1.Health/Check"
_NO_ANSWER = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})


def split_address(address: str) -> tuple[str, int]:
    """`host:port` or `[v6]:port` as a pair.

    Raises:
        ValueError: another shape.
    """
    host, colon, port = address.rpartition(":")
    if not (host and colon):
        raise ValueError(f"not host:port: {address[:200]!r}")
    return host.strip("[]"), int(port)


async def connect(address: str) -> Connect:
    """One TCP connection attempt, closed at once."""
    try:
        host, port = split_address(address)
        async with asyncio.timeout(CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(host, port)
    except ConnectionRefusedError:
        return Connect.REFUSED
    except (OSError, ValueError, OverflowError):
        return Connect.UNKNOWN
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return Connect.ACCEPTED


async def connect_both(addresses: Addresses) -> tuple[Connect, Connect]:
    """The ext_proc and the health port, at the same time."""
    ext_proc, health = await asyncio.gather(connect(addresses.ext_proc), connect(addresses.health))
    return ext_proc, health


async def answers(addresses: Addresses) -> bool:
    """Whether the health port answers a check, with whatever status.

    Of a worker that we know from an old map alone, only the ext_proc address is known: there an
    accepted connection counts as an answer.
    """
    if not addresses.health:
        return await connect(addresses.ext_proc) is Connect.ACCEPTED
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
    async with grpc.aio.insecure_channel(addresses.health, options=options) as channel:
        check = channel.unary_unary(
            _CHECK_METHOD,
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        try:
            await check(health_pb2.HealthCheckRequest(), timeout=CHECK_SECONDS)
        except grpc.aio.AioRpcError as error:
            return error.code() not in _NO_ANSWER
        return True
