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
        holds = self._holds()
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
        if ask.fleet != holds.fleet:
            reason = f"this worker is of fleet {holds.fleet!r}"
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, reason)
        await context.write(encode_peer(holds))
