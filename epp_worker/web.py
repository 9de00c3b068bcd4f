"""The worker's HTTP port: metrics, probes for people, and what it holds."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import msgspec
from aiohttp import web

from epp_worker.metrics import Figures, MetricsPage
from fleet.bearer import FleetToken
from fleet.kube.read_access import Decides
from fleet.read_guard import read_guard
from fleet.settings.metrics import MetricsSettings

_PIECE_BYTES = 256 * 1024
_READ_SECONDS = 30.0
"""A page of 28 MB (a thousand pools) takes a second at 250 Mbit/s."""
_MOST_PAGES = 8
_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class _Latest:
    """Pages are made one at a time, each for all that asked before it was begun: however many ask,
    nobody waits for more than two.

    Args:
        make: the page of this moment.
    """

    def __init__(self, make: Callable[[], Awaitable[bytes]]) -> None:
        self._make = make
        self._making = asyncio.Lock()
        self._begun = 0
        self._made = 0
        self._body = b""
        self._waiting = 0

    async def body(self) -> bytes:
        """A page that was begun after this call."""
        came = self._begun
        self._waiting += 1
        try:
            async with self._making:
                if self._made <= came:
                    self._begun += 1
                    self._body = await self._make()
                    self._made = self._begun
                return self._body
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._body = b""


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


class _Pages:
    """Sends pages in pieces: all of a large one at once would be copied before anything else goes
    on. Who does not read makes us hold its page: not for ever, and not more than a few."""

    def __init__(self) -> None:
        self._open: list[web.Request] = []

    async def send(self, request: web.Request, body: bytes) -> web.StreamResponse:
        """Answer with a page; when too many are on their way, the oldest reader goes."""
        headers = {"Content-Type": _METRICS_TYPE}
        if len(body) <= _PIECE_BYTES or request.method == "HEAD":
            return web.Response(body=body, headers=headers)
        if len(self._open) >= _MOST_PAGES:
            _abort(self._open[0])
        response = web.StreamResponse(headers=headers)
        response.content_length = len(body)
        self._open.append(request)
        try:
            async with asyncio.timeout(_READ_SECONDS):
                await response.prepare(request)
                for begin in range(0, len(body), _PIECE_BYTES):
                    await response.write(body[begin : begin + _PIECE_BYTES])
                await response.write_eof()
        except (ConnectionError, TimeoutError):
            _abort(request)
        finally:
            self._open.remove(request)
        return response


def _abort(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()


def web_app(
    inside: Inside,
    token: str,
    access: Decides | None = None,
    metrics_settings: MetricsSettings | None = None,
) -> web.Application:
    """The application, without its listener.

    Args:
        access: decides who may read the metrics; None = everybody.
    """
    page = MetricsPage(metrics_settings)
    pages = _Pages()
    latest = _Latest(lambda: asyncio.to_thread(page.render, inside.figures()))
    own = FleetToken(token)

    async def metrics(request: web.Request) -> web.StreamResponse:
        return await pages.send(request, await latest.body())

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
