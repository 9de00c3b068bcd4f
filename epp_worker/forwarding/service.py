"""Takes streams that other workers forward, and serves them like a gateway's own."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio

from epp_worker.forwarding.calls import GROUP_KEY, SAID_KEY
from epp_worker.forwarding.peer_stream import PeerGone, PeerStream
from epp_worker.http2.contract import StreamHandler
from epp_worker.http2.counters import Counters
from fleet.certificates import Certificates, Role
from fleet.control.messages import FORWARD_METHOD
from fleet.control.transport import stranger
from fleet.model import GroupKey
from fleet.telemetry import RateLimited

log = logging.getLogger(__name__)

MAX_TAKEN = 3072
"""Forwarded streams served at once; more are the forwarder's to hold. Leaves calls of the internal
port for the leader."""
CANCELLED = 1
INTERNAL = 13

Context = grpc.aio.ServicerContext[Any, Any]
Begin = Callable[[PeerStream], StreamHandler]
"""Serves a stream, or holds it; never passes it on."""

_STATUS = {code.value[0]: code for code in grpc.StatusCode}


class ForwardService:
    """The Forward method; see `PeerService`.

    Args:
        counters: of the gateways' streams; these count among them.
    """

    method = FORWARD_METHOD

    def __init__(
        self,
        begin: Begin,
        counters: Counters,
        limited: RateLimited,
        certificates: Certificates | None,
        most: int = MAX_TAKEN,
    ) -> None:
        self._begin = begin
        self._counters = counters
        self._limited = limited
        self._certificates = certificates
        self._most = most
        self.open = 0
        """Streams that are served, or held, now."""

    def handler(self) -> "grpc.RpcMethodHandler[Any, Any]":
        """See `PeerService.handler`: messages are passed as they are."""
        return grpc.stream_stream_rpc_method_handler(self.serve)

    async def serve(self, _: Any, context: Context) -> None:
        """One forwarded stream."""
        group = await self._admitted(context)
        self.open += 1
        self._counters.streams_open += 1
        code = CANCELLED
        try:
            code = await self._serve(context, PeerStream(group, context.peer()))
        finally:
            self.open -= 1
            self._counters.streams_open -= 1
            self._counters.streams_total[code] += 1

    async def _admitted(self, context: Context) -> GroupKey:
        """Send away whoever is no worker of this fleet, before anything of the call is read."""
        why = stranger(context, self._certificates, Role.WORKER)
        if why is not None:
            extra = {"peer": context.peer(), "why": why}
            self._limited.warning("call refused on the internal port", key=why, extra=extra)
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, why)
        if self.open >= self._most:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many forwarded streams")
        metadata = dict(context.invocation_metadata() or ())
        try:
            return GroupKey.parse(str(metadata.get(GROUP_KEY, "")))
        except ValueError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            raise

    async def _serve(self, context: Context, stream: PeerStream) -> int:
        handler = self._begin(stream)
        reading = asyncio.create_task(
            self._read(context, stream, handler), name="forwarded: requests"
        )
        try:
            code, message = await stream.write(context)
        except PeerGone:
            return CANCELLED
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            if stream.ended is None:
                stream.end(CANCELLED)
                handler.aborted()
        context.set_code(_STATUS[code])
        context.set_details(message)
        context.set_trailing_metadata(((SAID_KEY, "1"),))
        return code

    async def _read(self, context: Context, stream: PeerStream, handler: StreamHandler) -> None:
        try:
            await stream.read(context, handler)
        except Exception as error:  # noqa: BLE001 - one stream's fault must not spread
            # Not the error's text: it may quote a prompt.
            extra = {"error": type(error).__name__}
            self._limited.warning("forwarded stream failed", key="failed", extra=extra)
            self._counters.handler_errors += 1
            stream.end(INTERNAL, "internal error")
            handler.aborted()
