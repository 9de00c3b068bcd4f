"""Answers coordinators that ask for the endpoints of a pool: people are looking at it."""

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio

from fleet.certificates import Certificates, Role
from fleet.control.endpoint_messages import (
    ENDPOINTS_METHOD,
    PoolEndpoints,
    decode_ask_endpoints,
    encode_endpoints,
)
from fleet.control.transport import stranger
from fleet.errors import FormatError
from fleet.model import PoolRef
from fleet.telemetry import RateLimited

QUESTION_SECONDS = 2.0
"""For the question to come, and likewise for the answer to be taken: 150 kB at most."""
MAX_ASKING = 16
"""Questions at once; who is turned away asks again."""
MAX_A_SECOND = 20
"""Answered; one of 1,000 endpoints takes the serving loop a few milliseconds."""

Context = grpc.aio.ServicerContext[Any, Any]


class EndpointsService:
    """The Endpoints method; see `PeerService`."""

    method = ENDPOINTS_METHOD

    def __init__(
        self,
        fleet: str,
        known: Callable[[PoolRef], PoolEndpoints],
        limited: RateLimited,
        certificates: Certificates | None,
    ) -> None:
        """Args:
        known: what this worker can say of a pool.
        """
        self._fleet = fleet
        self._known = known
        self._limited = limited
        self._certificates = certificates
        self._asking = 0
        self._left = float(MAX_A_SECOND)
        self._refilled = 0.0

    def handler(self) -> "grpc.RpcMethodHandler[Any, Any]":
        """See `PeerService.handler`."""
        return grpc.stream_stream_rpc_method_handler(self.answer)

    async def answer(self, _: Any, context: Context) -> None:
        """One question, one answer."""
        why = stranger(context, self._certificates, Role.COORDINATOR)
        if why is not None:
            extra = {"peer": context.peer(), "why": why}
            self._limited.warning("call refused on the internal port", key=why, extra=extra)
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, why)
        if self._asking >= MAX_ASKING or not self._in_pace():
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many ask this worker")
        self._asking += 1
        try:
            await self._answer(context)
        finally:
            self._asking -= 1

    def _in_pace(self) -> bool:
        now = asyncio.get_running_loop().time()
        self._left = min(MAX_A_SECOND, self._left + (now - self._refilled) * MAX_A_SECOND)
        self._refilled = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True

    async def _answer(self, context: Context) -> None:
        try:
            async with asyncio.timeout(QUESTION_SECONDS):
                question = await context.read()
            ask = decode_ask_endpoints(question if isinstance(question, bytes) else b"")
        except TimeoutError:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "no question came")
            raise
        except FormatError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error)[:200])
            raise
        if ask.fleet != self._fleet:
            reason = f"this worker is of fleet {self._fleet!r}"
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, reason)
        known = self._known(PoolRef(ask.namespace, ask.name))
        try:
            async with asyncio.timeout(QUESTION_SECONDS):
                await context.write(encode_endpoints(known))
        except TimeoutError:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "the answer was not taken")
