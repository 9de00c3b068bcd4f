"""The coordinator's HTTP listener."""

from aiohttp import web
from prometheus_client import CollectorRegistry

from coordinator.view import View
from coordinator.web.commands import Commands
from coordinator.web.errors import MAX_BODY_BYTES, errors_as_json
from coordinator.web.events import Events
from coordinator.web.page import Page
from coordinator.web.reads import Reads
from fleet.errors import FleetError, SettingsError
from fleet.http_listener import HttpListener, listen_http
from fleet.kube.read_access import Decides
from fleet.read_guard import read_guard

MAX_LINE_BYTES = 8190
"""Request line, and each header; aiohttp's own default, stated here because we rely on it."""

KEEPALIVE_SECONDS = 15.0
SHUTDOWN_SECONDS = 1.0
"""Requests that are being answered when the listener closes get this long."""


MAX_CONNECTIONS = 512
"""Beyond these the oldest goes."""

Web = HttpListener
"""A running listener."""


def application(
    view: View, token: str, registry: CollectorRegistry, access: Decides | None = None
) -> web.Application:
    """The whole HTTP side over `view`."""
    guards = [] if access is None else [read_guard(access, token)]
    app = web.Application(middlewares=[errors_as_json, *guards], client_max_size=MAX_BODY_BYTES)
    events = Events(view)
    app.on_shutdown.append(events.close)
    app.add_routes([*Page().routes(), *Reads(view, registry).routes(), *events.routes()])
    app.add_routes(Commands(view, token).routes())
    return app


async def start_web(
    view: View,
    *,
    host: str,
    port: int,
    token: str,
    registry: CollectorRegistry,
    access: Decides | None = None,
) -> Web:
    """Listen.

    Args:
        port: 0 = any free one; see `Web.port`.
        token: what mutating calls must bear; not empty.
        access: decides who may read; None = everybody.

    Raises:
        SettingsError: the token is empty.
        FleetError: the port cannot be had; names it.
    """
    if not token:
        raise SettingsError(["security.token_file: the token is empty; put one into the file"])
    try:
        return await listen_http(
            application(view, token, registry, access),
            host,
            port,
            shutdown_seconds=SHUTDOWN_SECONDS,
            max_connections=MAX_CONNECTIONS,
            keepalive_timeout=KEEPALIVE_SECONDS,
            max_line_size=MAX_LINE_BYTES,
            max_field_size=MAX_LINE_BYTES,
        )
    except OSError as error:
        reason = error.strerror or str(error)
        raise FleetError(f"coordinator HTTP: cannot listen on {host}:{port}: {reason}") from None
