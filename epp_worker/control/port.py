"""The internal port as a whole: the leader's control method, and what other workers call.

The token is compared before anything is read from a call.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import grpc

from epp_worker.control.server import Context, Control
from epp_worker.listeners import GRPC_OPTIONS, INTERNAL_CONNECTIONS
from fleet.control.codec import MAX_MESSAGE_BYTES
from fleet.control.messages import CONTROL_METHOD

MAX_CALLS = 4608
"""Calls at once: a leader needs one, each forwarded stream, follower and question is one. More than
all that those may have together, so that no peer can take the leader's."""


class PeerService(Protocol):
    """A method of the internal port that other workers call."""

    method: str

    def handler(self) -> "grpc.RpcMethodHandler[Any, Any]":
        """What serves a call that has shown the token; it sees to the caller's role itself."""
        ...


class _Handlers(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # generic in the stubs only
    """Chooses what serves a call, by its method and its token, before anything is read."""

    def __init__(self, control: Control, services: Sequence[PeerService]) -> None:
        self._control = control
        self._handlers = {service.method: service.handler() for service in services}
        self._handlers[CONTROL_METHOD] = grpc.stream_stream_rpc_method_handler(control.serve)

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> "grpc.RpcMethodHandler[Any, Any] | None":
        handler = self._handlers.get(handler_call_details.method)
        if handler is None:
            return None
        metadata = dict(handler_call_details.invocation_metadata or ())
        if self._control.authenticated(str(metadata.get("authorization", ""))):
            return handler
        return grpc.stream_stream_rpc_method_handler(self._refuse_token)

    async def _refuse_token(self, _: Any, context: Context) -> None:
        why = "wrong or missing bearer token"
        extra = {"peer": context.peer(), "why": why}
        self._control.limited.warning("call refused on the internal port", key=why, extra=extra)
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, why)


def internal_server(
    control: Control,
    services: Sequence[PeerService] = (),
    max_message_bytes: int = MAX_MESSAGE_BYTES,
) -> grpc.aio.Server:
    """The server of the internal port, without its listener.

    Args:
        services: what other workers call; each bounds what it takes at once by itself.
    """
    server = grpc.aio.server(
        options=(
            *GRPC_OPTIONS,
            ("grpc.max_allowed_incoming_connections", INTERNAL_CONNECTIONS),
            ("grpc.max_receive_message_length", max_message_bytes),
            ("grpc.max_send_message_length", max_message_bytes),
            ("grpc.max_metadata_size", 16 * 1024),
            ("grpc.keepalive_time_ms", 5_000),
            ("grpc.keepalive_timeout_ms", 5_000),
            ("grpc.http2.min_ping_interval_without_data_ms", 500),
            ("grpc.keepalive_permit_without_calls", 1),
        ),
        maximum_concurrent_rpcs=MAX_CALLS,
    )
    server.add_generic_rpc_handlers((_Handlers(control, services),))
    return server
