"""Answers peers that ask what this worker holds."""

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio

from fleet.certificates import Certificates, Role
from fleet.control.messages import HOLDS_METHOD
from fleet.control.peer_messages import Holds, decode_ask, encode_peer
from fleet.control.transport import stranger
from fleet.errors import FormatError
from fleet.telemetry import RateLimited

QUESTION_SECONDS = 5.0
"""For the question to come, and likewise for the answer to be taken: 2 MB for 10,000 groups."""
MAX_ASKING = 128
"""Peers that may ask at once; who is turned away asks again. Leaves calls for the leader."""

Context = grpc.aio.ServicerContext[Any, Any]


class HoldsService:
    """The Holds method; see `PeerService`."""

    method = HOLDS_METHOD

    def __init__(
        self, holds: Callable[[], Holds], limited: RateLimited, certificates: Certificates | None
    ) -> None:
        self._holds = holds
        self._limited = limited
        self._certificates = certificates
        self._asking = 0

    def handler(self) -> "grpc.RpcMethodHandler[Any, Any]":
        """See `PeerService.handler`."""
        return grpc.stream_stream_rpc_method_handler(self.answer)

    async def answer(self, _: Any, context: Context) -> None:
        """One question, one answer."""
        why = stranger(context, self._certificates, Role.WORKER)
        if why is not None:
            extra = {"peer": context.peer(), "why": why}
            self._limited.warning("call refused on the internal port", key=why, extra=extra)
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, why)
        if self._asking >= MAX_ASKING:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many ask this worker")
        self._asking += 1
        try:
            await self._answer(context)
        finally:
            self._asking -= 1

    async def _answer(self, context: Context) -> None:
        try:
            async with asyncio.timeout(QUESTION_SECONDS):
                question = await context.read()
            ask = decode_ask(question if isinstance(question, bytes) else b"")
        except TimeoutError:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "no question came")
            raise
        except FormatError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error)[:200])
            raise
        holds = self._holds()
        if ask.fleet != holds.fleet:
            reason = f"this worker is of fleet {holds.fleet!r}"
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, reason)
        try:
            async with asyncio.timeout(QUESTION_SECONDS):
                await context.write(encode_peer(holds))
        except TimeoutError:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "the answer was not taken")
