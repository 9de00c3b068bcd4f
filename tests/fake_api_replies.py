"""How the fake API server answers wrongly."""

import asyncio

from aiohttp import web

from tests.fake_api_answers import Seen
from tests.fake_api_faults import ErrorEvent, Fault, HalfOpen, Status, StatusInside
from tests.fake_api_store import Raw, Refusal, status_body
from tests.fake_api_watches import line_of


async def failed(request: web.Request, seen: Seen, fault: Fault) -> web.StreamResponse:
    """What a request gets that meets a fault in the place of an answer."""
    match fault:
        case ErrorEvent() if seen.watch:
            event = {"type": "ERROR", "object": status_of(fault.code, fault.reason)}
            response = await opened(request)
            await response.write(line_of(event))
            return response
        case StatusInside():
            return web.json_response(status_of(fault.code, fault.reason))
        case Status():
            headers = {"Retry-After": fault.retry_after} if fault.retry_after else None
            body = status_body(fault.code, fault.reason, fault.message)
            return web.json_response(body, status=fault.code, headers=headers)
        case ErrorEvent():
            raise Refusal(fault.code, fault.reason, "made up by the test")
        case HalfOpen():
            await asyncio.Event().wait()
        case _:
            pass
    abort(request)
    return web.Response()


async def opened(request: web.Request) -> web.StreamResponse:
    """An answer whose lines come one by one."""
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    response.enable_chunked_encoding()
    await response.prepare(request)
    return response


async def cut_short(request: web.Request, answer: web.Response) -> web.StreamResponse:
    """The first half of an answer, and a reset."""
    body = answer.body
    assert isinstance(body, bytes)
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    response.content_length = len(body)
    await response.prepare(request)
    await response.write(body[: len(body) // 2])
    abort(request)
    return response


def status_of(code: int, reason: str) -> Raw:
    """The Status of an error event."""
    return status_body(code, reason, "too old resource version: 1 (2)" if code == 410 else reason)


def abort(request: web.Request) -> None:
    """Reset the connection."""
    if request.transport is not None:
        request.transport.abort()
