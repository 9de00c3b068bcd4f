"""The coordinator's HTTP listener."""

import asyncio

from aiohttp import web
from prometheus_client import CollectorRegistry

from coordinator.view import View
from coordinator.web.commands import Commands
from coordinator.web.errors import MAX_BODY_BYTES, errors_as_json
from coordinator.web.reads import Reads
from fleet.errors import FleetError, SettingsError

MAX_LINE_BYTES = 8190
"""Request line, and each header; aiohttp's own default, stated here because we rely on it."""

KEEPALIVE_SECONDS = 15.0
SHUTDOWN_SECONDS = 1.0
"""Requests that are being answered when the listener closes get this long."""


class Web:
    """A running listener."""

    def __init__(self, runner: web.AppRunner, port: int) -> None:
        self._runner = runner
        self.port = port

    async def close(self) -> None:
        """Stop listening and end all connections; idempotent."""
        await self._runner.cleanup()


def application(view: View, token: str, registry: CollectorRegistry) -> web.Application:
    """The whole HTTP side over `view`."""
    app = web.Application(middlewares=[errors_as_json], client_max_size=MAX_BODY_BYTES)
    app.add_routes([*Reads(view, registry).routes(), *Commands(view, token).routes()])
    return app


async def start_web(
    view: View, *, host: str, port: int, token: str, registry: CollectorRegistry
) -> Web:
    """Listen.

    Args:
        port: 0 = any free one; see `Web.port`.
        token: what mutating calls must bear; not empty.

    Raises:
        SettingsError: the token is empty.
        FleetError: the port cannot be had; names it.
    """
    if not token:
        raise SettingsError(["security.token_file: the token is empty; put one into the file"])
    runner = web.AppRunner(
        application(view, token, registry),
        access_log=None,
        handle_signals=False,
        keepalive_timeout=KEEPALIVE_SECONDS,
        shutdown_timeout=SHUTDOWN_SECONDS,
        max_line_size=MAX_LINE_BYTES,
        max_field_size=MAX_LINE_BYTES,
    )
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as error:
        await runner.cleanup()
        reason = error.strerror or str(error)
        raise FleetError(f"coordinator HTTP: cannot listen on {host}:{port}: {reason}") from None
    except asyncio.CancelledError:
        await runner.cleanup()
        raise
    return Web(runner, runner.addresses[0][1])
