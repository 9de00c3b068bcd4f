"""Ports: what listens where, and a clear word when a port is taken."""

import logging

import grpc
from aiohttp import web

from fleet.errors import SettingsError

log = logging.getLogger(__name__)


def port_taken(name: str, host: str, port: int, error: Exception | None = None) -> SettingsError:
    """The error for a listener that cannot be bound."""
    reason = getattr(error, "strerror", None) or "it is taken, or not ours to bind"
    return SettingsError([f"worker.{name}_port: cannot listen on {host}:{port}: {reason}"])


def bind_grpc(server: grpc.aio.Server, name: str, host: str, port: int) -> int:
    """Bind a grpcio server; returns the port that was bound.

    Raises:
        SettingsError: the port is taken.
    """
    shown = f"[{host}]" if ":" in host else host
    try:
        bound = server.add_insecure_port(f"{shown}:{port}")
    except RuntimeError as error:
        raise port_taken(name, host, port) from error
    if bound == 0:
        raise port_taken(name, host, port)
    return bound


async def serve_http(app: web.Application, host: str, port: int) -> tuple[web.AppRunner, int]:
    """Serve an application; returns its runner and the port that was bound.

    Raises:
        SettingsError: the port is taken.
    """
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
    except OSError as error:
        await runner.cleanup()
        raise port_taken("http", host, port, error) from error
    bound: int = runner.addresses[0][1]
    return runner, bound
