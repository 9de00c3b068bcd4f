"""Ports: what listens where, and a clear word when a port is taken."""

import logging

import grpc
from aiohttp import web

from fleet.certificates import Certificates
from fleet.control.transport import listen
from fleet.errors import SettingsError
from fleet.http_listener import MAX_CONNECTIONS, HttpListener, listen_http

log = logging.getLogger(__name__)

OWN_FILES = 192
"""Files that are no connections of peers: listeners, store, scrapes, logs."""

HEALTH_CONNECTIONS = 512
INTERNAL_CONNECTIONS = 512
"""More are turned away, so that nobody can take the gateways' files by way of another port. Each
other worker has one on the internal port, the leader has one."""

_OTHERS = HEALTH_CONNECTIONS + INTERNAL_CONNECTIONS + MAX_CONNECTIONS

GRPC_OPTIONS = (
    ("grpc.so_reuseport", 0),
    ("grpc.server_handshake_timeout_ms", 5_000),
    ("grpc.max_connection_idle_ms", 60_000),
)
"""Of every grpcio server here. A connection on which nothing is called is closed."""


def gateway_connections(files: int) -> int:
    """How many connections of gateways fit into `files` open files."""
    rest = files - OWN_FILES
    return rest - min(_OTHERS, rest // 4)


def port_taken(name: str, host: str, port: int, error: Exception | None = None) -> SettingsError:
    """The error for a listener that cannot be bound."""
    reason = getattr(error, "strerror", None) or "it is taken, or not ours to bind"
    return SettingsError([f"worker.{name}_port: cannot listen on {host}:{port}: {reason}"])


def bind_grpc(
    server: grpc.aio.Server,
    name: str,
    host: str,
    port: int,
    certificates: Certificates | None = None,
) -> int:
    """Bind a grpcio server, with mutual TLS if there are certificates; returns the port.

    Raises:
        SettingsError: the port is taken.
    """
    try:
        bound = listen(server, host, port, certificates)
    except RuntimeError as error:
        raise port_taken(name, host, port) from error
    if bound == 0:
        raise port_taken(name, host, port)
    return bound


async def serve_http(app: web.Application, host: str, port: int) -> HttpListener:
    """Serve an application.

    Raises:
        SettingsError: the port is taken.
    """
    try:
        return await listen_http(app, host, port)
    except OSError as error:
        raise port_taken("http", host, port, error) from error
