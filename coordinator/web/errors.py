"""Every error of the HTTP side in one form: `{"error": {"code", "message"}}`."""

import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus

import msgspec
from aiohttp import web

log = logging.getLogger(__name__)

MAX_BODY_BYTES = 64 * 1024
"""No request here needs a body."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def error_response(
    status: int, code: str, message: str, headers: dict[str, str] | None = None
) -> web.Response:
    """An error as every client gets it."""
    body = msgspec.json.encode({"error": {"code": code, "message": message}})
    return web.Response(status=status, body=body, content_type="application/json", headers=headers)


def not_now(code: str, message: str) -> web.Response:
    """503: try again in a second."""
    return error_response(503, code, message, {"Retry-After": "1"})


@web.middleware
async def errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn whatever goes wrong into `error_response`, and bound what a client may send."""
    try:
        if (request.content_length or 0) > MAX_BODY_BYTES:
            return error_response(
                413, "content_too_large", f"a request body may have {MAX_BODY_BYTES} bytes"
            )
        response = await handler(request)
    except web.HTTPException as error:
        response = _of_exception(request, error)
    except Exception:
        log.exception("request failed", extra={"method": request.method, "path": request.path})
        response = error_response(500, "internal", "the coordinator failed; see its log")
    if response.prepared:
        return response
    response.headers.setdefault("X-Content-Type-Options", "nosniff")
    return response


def _of_exception(request: web.Request, error: web.HTTPException) -> web.Response:
    code = HTTPStatus(error.status).name.lower()
    message = {
        404: f"there is nothing at {request.path[:200]}",
        405: f"{request.method} is not allowed at {request.path[:200]}",
    }.get(error.status, error.reason)
    kept = {name: error.headers[name] for name in ("Allow",) if name in error.headers}
    return error_response(error.status, code, message, kept)
