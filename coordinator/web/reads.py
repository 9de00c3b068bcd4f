"""GET: the map, the workers, pools, metrics and health. Any replica answers."""

import asyncio
import gzip
import hashlib
from typing import NamedTuple

import msgspec
from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from coordinator.metrics.exposition import frozen
from coordinator.view import EndpointsUnknown, UnknownPool, View
from coordinator.web.documents import FORMAT, map_document, workers_document
from coordinator.web.endpoints import endpoints_document
from coordinator.web.errors import error_response, not_now
from coordinator.web.explaining import explain_document
from coordinator.web.history import asked_of, groups_of, history_document, to_read
from coordinator.web.planning import plan_document, question_of
from coordinator.whatif import NoSuchWorker, Question, what_if
from fleet.errors import FormatError, StoreUnavailable
from fleet.model import LeaderInfo, PoolRef, ShardMap

_JSON = "application/json"
SMALL_BYTES = 64 * 1024
"""A map up to this size is not compressed."""

PLAN_REST = 3.0
"""For so many times as long as a plan took, none is made: its thread takes turns with the leader's
loop, and whoever may read may ask without end."""

MAX_WAITING = 16
"""Plans, and likewise histories, that are asked for at once; who comes then is turned away. The
work of a client that has gone is done all the same: whoever asks and leaves would keep others out
for minutes."""


class _Rendered(NamedTuple):
    """A map as it is sent; built once for each map and leader."""

    shard_map: ShardMap
    leader: LeaderInfo | None
    body: bytes
    etag: str


def _etag(shard_map: ShardMap, leader: LeaderInfo | None) -> str:
    """The version, and a mark for who leads: the document shows both."""
    who = b"" if leader is None else f"{leader.id} {leader.http}".encode()
    return f'"{shard_map.version}-{hashlib.blake2s(who, digest_size=4).hexdigest()}"'


def _render(shard_map: ShardMap, leader: LeaderInfo | None) -> _Rendered:
    body = msgspec.json.encode(map_document(shard_map, leader))
    return _Rendered(shard_map, leader, body, _etag(shard_map, leader))


def _busy() -> web.Response:
    return not_now("busy", f"{MAX_WAITING} such questions wait here; ask again")


def _takes_gzip(request: web.Request) -> bool:
    accepted = request.headers.get("Accept-Encoding", "").replace(" ", "").lower().split(",")
    return "gzip" in accepted


class Reads:
    """The handlers; holds the last rendered map."""

    def __init__(self, view: View, registry: CollectorRegistry) -> None:
        self._view = view
        self._registry = registry
        self._rendered: _Rendered | None = None
        self._zipped: tuple[_Rendered, bytes] | None = None
        self._rendering = asyncio.Lock()
        self._asking = asyncio.Lock()
        self._scraping = asyncio.Lock()
        self._planning = asyncio.Lock()
        self._rested = 0.0
        self._scrapers = 0
        self._pages: dict[str, tuple[int, bytes]] = {}
        """By content type: the last page's number, while anybody waits; `_pages_begun` counts."""
        self._pages_begun = 0
        self._plans = 0
        self._histories = 0

    def routes(self) -> list[web.AbstractRouteDef]:
        """For the application's router."""
        return [
            web.get("/api/v1/map", self.map),
            web.get("/api/v1/workers", self.workers),
            web.get("/api/v1/pools/{namespace}/{name}", self.explain),
            web.get("/api/v1/pools/{namespace}/{name}/endpoints", self.endpoints),
            web.get("/api/v1/plan", self.plan),
            web.get("/api/v1/history", self.history),
            web.get("/metrics", self.metrics),
            web.get("/healthz", self.healthz),
            web.get("/readyz", self.readyz),
        ]

    async def _current(self) -> _Rendered | None:
        """The present map, rendered; in a thread, since 10,000 pools take some 50 ms."""
        async with self._rendering:
            shard_map, leader = self._view.shard_map(), self._view.leader()
            if shard_map is None:
                return None
            last = self._rendered
            if last is None or last.shard_map is not shard_map or last.leader != leader:
                last = await asyncio.to_thread(_render, shard_map, leader)
                self._rendered = last
            return last

    async def map(self, request: web.Request) -> web.Response:
        """The shard map; 304 for a client that has this version."""
        rendered = await self._current()
        if rendered is None:
            return not_now("no_map", "this coordinator has not seen a shard map yet")
        zipped = len(rendered.body) > SMALL_BYTES and _takes_gzip(request)
        etag = f'{rendered.etag[:-1]}-gzip"' if zipped else rendered.etag
        headers = {"ETag": etag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
        known = {tag.value for tag in request.if_none_match or ()}
        if known & {etag.strip('"'), "*"}:
            return web.Response(status=304, headers=headers)
        body = rendered.body
        if zipped:
            body = await self._zip(rendered)
            headers["Content-Encoding"] = "gzip"
        return web.Response(body=body, content_type=_JSON, headers=headers)

    async def _zip(self, rendered: _Rendered) -> bytes:
        """Compressed once for all: a page on the far side of a port-forward asks for 3 MB."""
        async with self._rendering:
            if self._zipped is None or self._zipped[0] is not rendered:
                body = await asyncio.to_thread(gzip.compress, rendered.body, 1)
                self._zipped = rendered, body
            return self._zipped[1]

    async def workers(self, request: web.Request) -> web.Response:
        """The workers."""
        body = msgspec.json.encode(workers_document(self._view.members()))
        return web.Response(body=body, content_type=_JSON)

    async def explain(self, request: web.Request) -> web.Response:
        """All about one pool."""
        ref = PoolRef(request.match_info["namespace"], request.match_info["name"])
        explained = self._view.explain(ref)
        if explained is None or explained.decision is None:
            not_ready = self._view.ready()
            if not_ready is not None:
                return not_now("not_ready", f"this coordinator cannot tell yet: {not_ready}")
        if explained is None:
            return self._unknown(ref)
        document = explain_document(
            explained, leader=self._view.leader(), answered_by=self._view.id
        )
        return web.Response(body=msgspec.json.encode(document), content_type=_JSON)

    async def endpoints(self, request: web.Request) -> web.Response:
        """One pool's endpoints and their last metrics, by its owner's word."""
        ref = PoolRef(request.match_info["namespace"], request.match_info["name"])
        try:
            told = await self._view.endpoints(ref)
        except UnknownPool as error:
            if self._view.explain(ref) is None:
                return self._unknown(ref)
            return not_now("no_endpoints", f"{error}, so nobody knows its endpoints")
        except EndpointsUnknown as error:
            return not_now("no_endpoints", str(error))
        document = endpoints_document(told, answered_by=self._view.id)
        return web.Response(body=msgspec.json.encode(document), content_type=_JSON)

    def _unknown(self, ref: PoolRef) -> web.Response:
        shown = f"{ref.namespace[:63]}/{ref.name[:253]}"
        skipped = self._view.skipped(ref)
        if skipped:
            message = f"InferencePool {shown} is skipped: {'; '.join(skipped)}"
            return error_response(404, "skipped_pool", message)
        message = f"there is no InferencePool {shown} among those that this fleet watches"
        return error_response(404, "unknown_pool", message)

    async def plan(self, request: web.Request) -> web.Response:
        """What would move if workers came or went; one question at a time, in a thread: 10,000
        groups on 100 workers take some 150 ms."""
        try:
            question = question_of(request.query)
        except ValueError as error:
            return error_response(400, "bad_request", str(error))
        if self._plans >= MAX_WAITING:
            return _busy()
        self._plans += 1
        try:
            return await self._plan(question)
        finally:
            self._plans -= 1

    async def _plan(self, question: Question) -> web.Response:
        loop = asyncio.get_running_loop()
        async with self._planning:
            await asyncio.sleep(self._rested - loop.time())
            premises = self._view.premises()
            if premises is None:
                return not_now("no_map", "this coordinator has not seen a shard map yet")
            began = loop.time()
            try:
                found = await asyncio.to_thread(what_if, premises, question)
            except NoSuchWorker as error:
                return error_response(404, "unknown_worker", str(error))
            finally:
                self._rested = loop.time() + PLAN_REST * (loop.time() - began)
        document = plan_document(found, leader=self._view.leader(), answered_by=self._view.id)
        return web.Response(body=msgspec.json.encode(document), content_type=_JSON)

    async def history(self, request: web.Request) -> web.Response:
        """Moves under way, by the map, and those that ended, by the store's audit stream; one at a
        time: one pool's are looked for among 10,000."""
        try:
            asked = asked_of(request.query)
        except ValueError as error:
            return error_response(400, "bad_request", str(error))
        shard_map = self._view.shard_map()
        if asked.pool is not None:
            if shard_map is None:
                return not_now("no_map", "this coordinator has not seen a shard map yet")
            if not groups_of(shard_map, asked.pool):
                return self._unknown(asked.pool)
        if self._histories >= MAX_WAITING:
            return _busy()
        self._histories += 1
        try:
            async with self._asking:
                moves = await self._view.moves(to_read(asked))
        except (StoreUnavailable, FormatError) as error:
            return not_now("no_history", f"the moves cannot be read: {error}")
        finally:
            self._histories -= 1
        document = history_document(
            asked, shard_map, moves, leader=self._view.leader(), answered_by=self._view.id
        )
        return web.Response(body=msgspec.json.encode(document), content_type=_JSON)

    async def metrics(self, request: web.Request) -> web.Response:
        """The registry, in the form the scraper asks for. One page at a time is written, for all
        that asked before it was begun: a scraper waits for two pages at most."""
        encoder, content_type = choose_encoder(request.headers.get("Accept", ""))
        self._scrapers += 1
        came = self._pages_begun
        try:
            async with self._scraping:
                begun, body = self._pages.get(content_type, (0, b""))
                if begun <= came:
                    begun = self._pages_begun = self._pages_begun + 1
                    body = await asyncio.to_thread(encoder, frozen(self._registry))
                    self._pages[content_type] = begun, body
        finally:
            self._scrapers -= 1
            if not self._scrapers:
                self._pages.clear()
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def healthz(self, request: web.Request) -> web.Response:
        """Liveness: the loop and every supervised task live."""
        if not self._view.alive():
            return error_response(503, "dead", "a task of this coordinator has ended")
        return self._good()

    async def readyz(self, request: web.Request) -> web.Response:
        """Readiness: reads can be answered; never leadership."""
        reason = self._view.ready()
        if reason is not None:
            return error_response(503, "not_ready", reason)
        return self._good()

    def _good(self) -> web.Response:
        body = msgspec.json.encode({"format": FORMAT, "id": self._view.id, "status": "ok"})
        return web.Response(body=body, content_type=_JSON)
