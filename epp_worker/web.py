"""The worker's HTTP port: metrics, probes for people, and what it holds."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec
from aiohttp import web

from epp_worker.metrics import Figures, MetricsPage
from fleet.bearer import FleetToken
from fleet.kube.read_access import Decides
from fleet.read_guard import read_guard

_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Inside(Protocol):
    """What the HTTP side may see of a worker."""

    def figures(self) -> Figures:
        """All numbers of this moment."""
        ...

    def unready(self) -> str | None:
        """Why this worker is not ready; None if it is."""
        ...

    def unwell(self) -> str | None:
        """Why this process should be restarted; None if it is fine."""
        ...

    def describe(self) -> Mapping[str, Any]:
        """What it holds, for `/debug/holds`."""
        ...


def web_app(inside: Inside, token: str, access: Decides | None = None) -> web.Application:
    """The application, without its listener.

    Args:
        access: decides who may read the metrics; None = everybody.
    """
    page = MetricsPage()
    rendering = asyncio.Lock()
    own = FleetToken(token)

    async def metrics(_: web.Request) -> web.Response:
        async with rendering:
            body = await asyncio.to_thread(page.render, inside.figures())
        return web.Response(body=body, headers={"Content-Type": _METRICS_TYPE})

    def probe(reason: Callable[[], str | None]) -> Callable[[web.Request], Any]:
        async def answer(_: web.Request) -> web.Response:
            why = reason()
            return web.Response(text=f"{why or 'ok'}\n", status=503 if why else 200)

        return answer

    async def holds(request: web.Request) -> web.Response:
        if not own.shown_by(request.headers.get("Authorization", "")):
            error = {"error": {"code": "unauthorized", "message": "bearer token needed"}}
            return web.json_response(error, status=401)
        body = msgspec.json.encode(inside.describe())
        return web.Response(body=body, content_type="application/json")

    guards = [] if access is None else [read_guard(access, token)]
    app = web.Application(middlewares=guards, client_max_size=16 * 1024)
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/healthz", probe(inside.unwell))
    app.router.add_get("/readyz", probe(inside.unready))
    app.router.add_get("/debug/holds", holds)
    return app
