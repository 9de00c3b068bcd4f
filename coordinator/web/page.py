"""The shard-map page: files that are the same for everybody, and say nothing of any fleet.

So they need no token where reads do: the page asks its reader for one. All that it shows it reads
from the API; nothing is loaded from anywhere else, and markup in a name stays text.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from aiohttp import web

from coordinator.web.errors import error_response

SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)

FOLDER = Path(__file__).parent / "static"
INDEX = "index.html"

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


class Asset(NamedTuple):
    """One file as it is sent."""

    body: bytes
    content_type: str
    etag: str


def read_assets(folder: Path = FOLDER) -> dict[str, Asset]:
    """The page's files by name; read once."""
    return {
        path.name: _asset(path.read_bytes(), path.suffix)
        for path in sorted(folder.iterdir())
        if path.suffix in _TYPES
    }


def _asset(body: bytes, suffix: str) -> Asset:
    return Asset(body, _TYPES[suffix], hashlib.blake2s(body, digest_size=12).hexdigest())


class Page:
    """The handlers."""

    def __init__(self, assets: Mapping[str, Asset] | None = None) -> None:
        self._assets = read_assets() if assets is None else assets

    def routes(self) -> list[web.AbstractRouteDef]:
        """For the application's router."""
        return [web.get("/", self.index), web.get("/page/{file}", self.file)]

    async def index(self, request: web.Request) -> web.Response:
        """The page."""
        return self._send(request, INDEX)

    async def file(self, request: web.Request) -> web.Response:
        """Its style, its modules, its icon."""
        return self._send(request, request.match_info["file"])

    def _send(self, request: web.Request, name: str) -> web.Response:
        asset = self._assets.get(name)
        if asset is None:
            return error_response(404, "not_found", f"the page has no file {name[:100]!r}")
        headers = {
            # Asked for every time, answered 304: a newer replica's page never mixes with an older.
            "Cache-Control": "no-cache",
            "ETag": f'"{asset.etag}"',
            "Content-Security-Policy": SECURITY_POLICY,
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
        }
        known = {tag.value for tag in request.if_none_match or ()}
        if known & {asset.etag, "*"}:
            return web.Response(status=304, headers=headers)
        headers["Content-Type"] = asset.content_type
        return web.Response(body=asset.body, headers=headers)
