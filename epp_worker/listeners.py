"""Ports: what listens where, and a clear word when a port is taken."""

import logging
import resource

import grpc
from aiohttp import web

from fleet.errors import SettingsError

log = logging.getLogger(__name__)

LEAST_FILES = 256
"""Below this many open files a worker cannot even hold its own listeners and scrapes."""
OWN_FILES = 192
"""Files that are no gateway connections: listeners, store, scrapes, control, logs."""


def raise_file_limit() -> int:
    """Raise NOFILE to the hard limit.

    Returns:
        How many connections of gateways fit.

    Raises:
        SettingsError: the hard limit is too low to serve at all.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard == resource.RLIM_INFINITY:
        hard = 2**31 - 1
    if hard < LEAST_FILES:
        raise SettingsError([f"NOFILE: hard limit is {hard}, at least {LEAST_FILES} are needed"])
    return hard - OWN_FILES


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
