"""The coordinator's internal port: the leader pushes the map and the workers' statuses.

Each subscriber has a task of its own that sends the newest state and skips what it missed: a slow
follower costs one message, never a queue.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

import grpc
import grpc.aio

from coordinator.knowledge import Knowledge
from coordinator.mapping import MapShortening
from fleet.bearer import FleetToken
from fleet.certificates import Certificates, Role
from fleet.clock import Clock, SystemClock
from fleet.control.codec import MAX_MESSAGE_BYTES, decode_watch_map, encode
from fleet.control.messages import WATCH_MAP_METHOD, MapUpdate
from fleet.control.transport import listen, stranger
from fleet.errors import FormatError, SettingsError
from fleet.telemetry import RateLimited

log = logging.getLogger(__name__)

GAP_SECONDS = 0.1
"""Between two pushes to one follower."""

SIGN_OF_LIFE_SECONDS = 1.0
"""A follower hears something at least this often."""

MAX_FOLLOWERS = 64

Context = grpc.aio.ServicerContext[Any, Any]


class MapFeed:
    """The WatchMap method. Only a leader serves it."""

    def __init__(
        self,
        knowledge: Knowledge,
        leading: Callable[[], bool],
        certificates: Certificates | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Args:
        certificates: where there are any, only a coordinator of the fleet is served.
        """
        self._knowledge = knowledge
        self._leading = leading
        self.certificates = certificates
        self._loud = RateLimited(log, clock or SystemClock())
        self._followers = 0

    async def updates(self, *, parts: bool) -> AsyncGenerator[MapUpdate, None]:
        """Now, after each change, and every second; ends when this coordinator does not lead.

        Args:
            parts: after the first map, only what changed in it.
        """
        shortening = MapShortening(parts=parts)
        while self._leading():
            revision = self._knowledge.revision
            yield shortening.next(self._knowledge.shard_map, self._knowledge.members)
            await asyncio.sleep(GAP_SECONDS)
            await self._change(revision)

    async def watch(self, request: bytes, context: Context) -> AsyncIterator[bytes]:
        """One call of the WatchMap method, from its beginning to its end."""
        why = stranger(context, self.certificates, Role.COORDINATOR)
        if why is not None:
            await self.refuse(context, grpc.StatusCode.PERMISSION_DENIED, why)
        try:
            asked = decode_watch_map(request)
        except FormatError as error:
            await self.refuse(context, grpc.StatusCode.INVALID_ARGUMENT, str(error))
        if self._followers >= MAX_FOLLOWERS:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many followers")
        self._followers += 1
        try:
            async with contextlib.aclosing(self.updates(parts=asked.parts)) as updates:
                async for update in updates:
                    yield encode(update)
        finally:
            self._followers -= 1
        await context.abort(grpc.StatusCode.UNAVAILABLE, "this coordinator does not lead")

    async def refuse(self, context: Context, code: grpc.StatusCode, why: str) -> None:
        """End a call of somebody who may not make it."""
        extra = {"peer": context.peer(), "why": why}
        self._loud.warning("call refused on the internal port", key=why, extra=extra)
        await context.abort(code, why)

    async def _change(self, revision: int) -> None:
        try:
            async with asyncio.timeout(SIGN_OF_LIFE_SECONDS):
                await self._knowledge.after(revision)
        except TimeoutError:
            pass  # a sign of life is due


class _Handlers(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # generic in the stubs only
    """Compares the token before anything is read from a call."""

    def __init__(self, feed: MapFeed, token: str) -> None:
        self._feed = feed
        self._token = FleetToken(token)

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> "grpc.RpcMethodHandler[Any, Any] | None":
        if handler_call_details.method != WATCH_MAP_METHOD:
            return None
        metadata = dict(handler_call_details.invocation_metadata or ())
        if self._token.shown_by(str(metadata.get("authorization", ""))):
            return grpc.unary_stream_rpc_method_handler(self._feed.watch)
        return grpc.unary_stream_rpc_method_handler(self._refuse)

    async def _refuse(self, _: bytes, context: Context) -> None:
        why = "wrong or missing bearer token"
        await self._feed.refuse(context, grpc.StatusCode.UNAUTHENTICATED, why)


async def start_internal(
    feed: MapFeed, *, token: str, host: str, port: int
) -> tuple[grpc.aio.Server, int]:
    """Serve the internal port; returns the server and the port that was bound.

    Raises:
        SettingsError: the port is taken.
    """
    server = grpc.aio.server(
        options=(
            ("grpc.so_reuseport", 0),
            ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
            ("grpc.max_metadata_size", 16 * 1024),
            ("grpc.http2.min_ping_interval_without_data_ms", 500),
        ),
        maximum_concurrent_rpcs=2 * MAX_FOLLOWERS,
    )
    server.add_generic_rpc_handlers((_Handlers(feed, token),))
    problem = f"coordinator.internal_port: cannot listen on {host}:{port}; another process may"
    try:
        bound = listen(server, host, port, feed.certificates)
    except RuntimeError:
        raise SettingsError([f"{problem} have it"]) from None
    if bound == 0:
        raise SettingsError([f"{problem} have it"])
    await server.start()
    return server, bound
