"""POST: what changes the fleet. A bearer token, and only the leader; followers show the way."""

import asyncio
import hmac
import logging

import msgspec
from aiohttp import web

from coordinator.view import DrainConflict, NotLeading, UnknownWorker, View
from coordinator.web.documents import FORMAT
from coordinator.web.errors import error_response, not_now
from fleet.errors import FleetError

log = logging.getLogger(__name__)

COMMAND_SECONDS = 5.0
"""A command that was not handed over by then is answered 503; it may still take effect."""

_SCHEME = "bearer "


class Commands:
    """The handlers."""

    def __init__(self, view: View, token: str) -> None:
        self._view = view
        self._token = token.encode()

    def routes(self) -> list[web.AbstractRouteDef]:
        """For the application's router."""
        return [
            web.post("/api/v1/workers/{id}/drain", self.drain),
            web.post("/api/v1/workers/{id}/undrain", self.undrain),
        ]

    async def drain(self, request: web.Request) -> web.Response:
        """Hand all groups of a worker away; it takes none until undrain."""
        return await self._set_drain(request, on=True)

    async def undrain(self, request: web.Request) -> web.Response:
        """Let a worker take groups again."""
        return await self._set_drain(request, on=False)

    async def _set_drain(self, request: web.Request, *, on: bool) -> web.Response:
        if not self._authorized(request):
            return error_response(
                401,
                "unauthorized",
                "this needs the fleet's bearer token",
                {"WWW-Authenticate": 'Bearer realm="epp-fleet"'},
            )
        worker = request.match_info["id"]
        try:
            async with asyncio.timeout(COMMAND_SECONDS):
                await self._view.set_drain(worker, on)
        except NotLeading as error:
            return self._elsewhere(request, error)
        except UnknownWorker:
            return error_response(404, "unknown_worker", f"no live worker {worker[:100]!r}")
        except DrainConflict as error:
            return error_response(409, "conflict", str(error) or "the worker is in that state")
        except TimeoutError:
            return not_now("timeout", f"not handed over within {COMMAND_SECONDS:g} s")
        except FleetError as error:
            log.warning("command failed", extra={"worker": worker, "error": str(error)})
            return not_now("unavailable", "the command could not be handed over")
        log.info("drain mark commanded", extra={"worker": worker, "on": on})
        body = msgspec.json.encode({"format": FORMAT, "worker": worker, "drain": on})
        return web.Response(status=202, body=body, content_type="application/json")

    def _authorized(self, request: web.Request) -> bool:
        given = request.headers.get("Authorization", "")
        if given[: len(_SCHEME)].lower() != _SCHEME:
            return False
        secret = given[len(_SCHEME) :].strip().encode(errors="surrogateescape")
        return hmac.compare_digest(secret, self._token)

    def _elsewhere(self, request: web.Request, error: NotLeading) -> web.Response:
        leader = error.leader
        if leader is None or leader.id == self._view.id:
            return not_now("no_leader", "nobody leads at the moment")
        location = f"http://{leader.http}{request.rel_url.raw_path_qs}"
        return error_response(307, "not_leading", f"{leader.id} leads", {"Location": location})
