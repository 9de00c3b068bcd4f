"""The middleware that lets only authorized readers through to an HTTP port.

Probes stay open. Who bears the fleet's own token reads everything: the fleet's own tools do.
"""

import hmac
import math
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import quote

import msgspec
from aiohttp import web
from aiohttp.typedefs import Middleware

from fleet.kube.read_access import Allowed, Decides, Forbidden, Stranger

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

READS: Final = frozenset({"GET", "HEAD"})
UNGUARDED: Final = frozenset({"/healthz", "/readyz", "/debug/holds", "/", "/page/{file}"})
"""Routes that anybody may GET: probes, one that takes the fleet's token alone and looks itself, and
the files of the coordinators' page, which hold nothing of the fleet."""

METRICS: Final = "/metrics"
PREFIX: Final = "/epp-fleet"
"""Before all paths but the metrics', which scrapers may have a right to already: every account of a
cluster may get `/api/*` (the cluster role system:discovery), which means the API server's own."""

_SCHEME: Final = "bearer "
_MAX_NAME: Final = 300


def bearer_token(authorization: str) -> str:
    """The token of the header's value; "" if it has none of printable ASCII."""
    if authorization[: len(_SCHEME)].lower() != _SCHEME:
        return ""
    token = authorization[len(_SCHEME) :].strip()
    return token if token.isascii() and token.isprintable() and " " not in token else ""


def non_resource_url(path: str) -> str:
    """What a reader of this path needs verb `get` on."""
    return path if path == METRICS else PREFIX + path


def read_guard(access: Decides, fleet_token: str) -> Middleware:
    """The middleware.

    Args:
        fleet_token: accepted for every read, without asking anybody.
    """
    own = fleet_token.encode()

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        path = guarded_path(request)
        if path is None:
            return await handler(request)
        token = bearer_token(request.headers.get("Authorization", ""))
        if not token:
            return _unauthorized("this needs a bearer token", "")
        if hmac.compare_digest(token.encode(), own):
            return await handler(request)
        url = non_resource_url(path)
        decision = await access.decide(token, url)
        if isinstance(decision, Allowed):
            return await handler(request)
        if isinstance(decision, Stranger):
            return _unauthorized("the bearer token is not accepted", ', error="invalid_token"')
        if isinstance(decision, Forbidden):
            return _forbidden(decision.user, url)
        return _error(
            503,
            "no_authorizer",
            "the API server cannot be asked who may read this",
            {"Retry-After": str(math.ceil(decision.retry_seconds))},
        )

    return guard


def guarded_path(request: web.Request) -> str | None:
    """The one form of the path that is read; None if it is open, or has no route (a 404 or 405 to
    everybody).

    Variable parts are quoted: `acme%2F..%2Fother` is one name, no way out of a rule for `acme/*`.
    """
    match = request.match_info
    if request.method not in READS or match.http_exception is not None:
        return None
    resource = match.route.resource
    if resource is None:
        return request.path
    if resource.canonical in UNGUARDED:
        return None
    parts = resource.canonical.split("/")
    return "/".join(quote(match[p[1:-1]], safe="") if p.startswith("{") else p for p in parts)


def _unauthorized(message: str, why: str) -> web.Response:
    challenge = {"WWW-Authenticate": f'Bearer realm="epp-fleet"{why}'}
    return _error(401, "unauthorized", message, challenge)


def _forbidden(user: str, url: str) -> web.Response:
    message = (
        f'user "{user[:_MAX_NAME]}" may not read this: RBAC lacks verb "get" on nonResourceURL '
        f'"{url[:_MAX_NAME]}"'
    )
    return _error(403, "forbidden", message, {})


def _error(status: int, code: str, message: str, headers: dict[str, str]) -> web.Response:
    body = msgspec.json.encode({"error": {"code": code, "message": message}})
    return web.Response(status=status, body=body, content_type="application/json", headers=headers)
