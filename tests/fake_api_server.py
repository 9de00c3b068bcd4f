"""An API server over real HTTP, in the test's own process and loop, that fails on demand.

    async with FakeApiServer.running() as server:
        server.put(texts.pool("a"))
        client = ...(server.url)
        rule = server.fail("/pods", Status(503), times=1)
        await server.until(lambda: rule.hits == 1)

It serves list (limit/continue, label and field selectors), watch (resourceVersion, bookmarks,
timeoutSeconds), get, create (generateName), PUT (resourceVersion), merge patch, apply (as a merge
patch that may create), delete (preconditions), `/status` of any object, and discovery. Namespaces
need not exist. What it cannot do, compared with a real one: validation, defaulting, admission,
finalizers, and status kept apart from spec.

No test needs to sleep: `until` waits for a condition on what the server has seen and done.
"""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.fake_api_faults import (
    BadEvent,
    CutMidJson,
    Delay,
    ErrorEvent,
    Fault,
    Garbage,
    HalfOpen,
    Hold,
    Reset,
    Rule,
    Status,
    StatusInside,
    is_watch,
)
from tests.fake_api_store import (
    BUILT_IN,
    CORE_EVENTS,
    EVENTS,
    LEASES,
    NAMESPACES,
    OLD_POOLS,
    PODS,
    POOLS,
    SECRETS,
    SERVICES,
    SLICES,
    Event,
    Raw,
    Refusal,
    Resource,
    Store,
    selection,
    status_body,
)

__all__ = [
    "BUILT_IN",
    "CORE_EVENTS",
    "EVENTS",
    "LEASES",
    "NAMESPACES",
    "OLD_POOLS",
    "PODS",
    "POOLS",
    "SECRETS",
    "SERVICES",
    "SLICES",
    "BadEvent",
    "CutMidJson",
    "Delay",
    "ErrorEvent",
    "FakeApiServer",
    "Fault",
    "Garbage",
    "HalfOpen",
    "Hold",
    "Raw",
    "Refusal",
    "Reset",
    "Resource",
    "Rule",
    "Seen",
    "Status",
    "StatusInside",
    "Store",
]

_OBJECT = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/(?P<version>[^/]+)"
    r"(?:/namespaces/(?P<namespace>[^/]+))?"
    r"/(?P<plural>[^/]+)(?:/(?P<name>[^/]+)(?:/(?P<sub>status))?)?"
)
_GROUP = re.compile(r"/(?:api|apis/(?P<group>[^/]+))/(?P<version>[^/]+)")
_CLOSE = None
"""In a watch's queue: end it."""


@dataclass(frozen=True)
class Seen:
    """One request that arrived."""

    method: str
    path: str
    query: dict[str, str]
    body: Any
    token: str

    @property
    def watch(self) -> bool:
        return is_watch(self.query)


@dataclass(frozen=True)
class Target:
    """What a path names."""

    resource: Resource
    namespace: str | None
    name: str | None
    status: bool


class _Watch:
    """One open watch: lines to send."""

    def __init__(self, path: str, resource: Resource, select: Callable[[Raw], bool]) -> None:
        self.path = path
        self.lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.flowing = asyncio.Event()
        self.flowing.set()
        self.cut = False
        self.bookmarks = False
        self._resource = resource
        self._select = select

    def tell(self, event: Event) -> None:
        """Queue the event if it concerns this watch."""
        if event.resource == self._resource:
            seen = event.seen_through(self._select)
            if seen is not None:
                self.lines.put_nowait(_line(seen))

    def bookmark(self, version: int) -> bytes:
        """A bookmark's line."""
        metadata = {"resourceVersion": str(version), "creationTimestamp": None}
        body = {"kind": self._resource.kind, "apiVersion": self._resource.api_version}
        return _line({"type": "BOOKMARK", "object": {**body, "metadata": metadata}})


def _line(value: Raw) -> bytes:
    return json.dumps(value).encode() + b"\n"


class FakeApiServer:
    """See the module. Everything but `running` and `until` is synchronous.

    Attributes:
        store: the objects.
        requests: every request that came, in order.
        tokens: the bearer tokens that are accepted; None = any, also none. Others get 401.
        watch_seconds: ends watches earlier than they asked for; None = as they asked.
    """

    def __init__(self) -> None:
        self.store = Store()
        self.requests: list[Seen] = []
        self.tokens: set[str] | None = None
        self.watch_seconds: float | None = None
        self.port = 0
        self._rules: list[Rule] = []
        self._watches: list[_Watch] = []
        self._activity = asyncio.Event()
        self.store.listen(self._tell_watches)

    @classmethod
    @asynccontextmanager
    async def running(
        cls, *resources: Resource, built_in: bool = True
    ) -> AsyncIterator["FakeApiServer"]:
        """A server on a free loopback port until the context ends.

        Args:
            resources: kinds that exist besides the built-in ones; none given = both InferencePools.
        """
        server = cls()
        for resource in (*(BUILT_IN if built_in else ()), *(resources or (POOLS, OLD_POOLS))):
            server.store.install(resource)
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_route("*", "/{tail:.*}", server._answer)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        server.port = runner.addresses[0][1]
        try:
            yield server
        finally:
            for rule in server._rules:
                rule.remove()
            server.end_watches()
            await runner.cleanup()

    # --- what tests do

    @property
    def url(self) -> str:
        """`http://127.0.0.1:port`."""
        return f"http://127.0.0.1:{self.port}"

    def kubeconfig(self, folder: Path, *, token_file: Path | None = None) -> Path:
        """Write a kubeconfig for this server and return its path."""
        user: Raw = {"tokenFile": str(token_file)} if token_file else {"token": "test"}
        text = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "fake", "cluster": {"server": self.url}}],
            "users": [{"name": "fake", "user": user}],
            "contexts": [
                {"name": "fake", "context": {"cluster": "fake", "user": "fake", "namespace": "epp"}}
            ],
            "current-context": "fake",
        }
        path = folder / "kubeconfig.yaml"
        path.write_text(json.dumps(text))
        return path

    def put(self, raw: Raw) -> Raw:
        """Create or replace an object."""
        return self.store.put(raw)

    def remove(self, raw: Raw) -> Raw:
        """Delete an object."""
        return self.store.remove(raw)

    def losing_events(self) -> contextlib.AbstractContextManager[None]:
        """Changes made inside are never told to any watch."""
        return self.store.losing_events()

    def expire_history(self) -> None:
        """Watches that resume at an earlier version, and pages of earlier lists, are told 410."""
        self.store.expire_history()

    def fail(
        self,
        pattern: str,
        fault: Fault,
        *,
        times: int | None = None,
        method: str | None = None,
        watch: bool | None = None,
        later_pages: bool | None = None,
    ) -> Rule:
        """Let requests fail whose path matches `pattern` (a regular expression, searched).

        Args:
            times: only so many; None = until the rule is removed.
            watch: only watches, or only what is no watch.
            later_pages: only pages of a list after the first, or only the rest.
        """
        rule = Rule(
            pattern, fault, times=times, method=method, watch=watch, later_pages=later_pages
        )
        self._rules.append(rule)
        return rule

    def watches(self, pattern: str = "") -> int:
        """How many watches are open whose path matches."""
        return len(list(self._matching(pattern)))

    def end_watches(self, pattern: str = "") -> None:
        """End them in good order, as after timeoutSeconds."""
        for watch in self._matching(pattern):
            watch.flowing.set()
            watch.lines.put_nowait(_CLOSE)

    def cut_watches(self, pattern: str = "", *, half: bytes = b'{"type": "ADDED", "obj') -> None:
        """Send half a line, then reset the connections."""
        for watch in self._matching(pattern):
            watch.cut = True
            watch.lines.put_nowait(half)
            watch.lines.put_nowait(_CLOSE)

    def freeze_watches(self, pattern: str = "") -> None:
        """Send nothing more on them, and do not close them: half-open sockets."""
        for watch in self._matching(pattern):
            watch.flowing.clear()

    def send_to_watches(self, line: bytes, pattern: str = "") -> None:
        """Send this line, whatever it is."""
        for watch in self._matching(pattern):
            watch.lines.put_nowait(line)

    def send_bookmarks(self, pattern: str = "") -> None:
        """Send a bookmark with the present version to those that asked for bookmarks."""
        for watch in self._matching(pattern):
            if watch.bookmarks:
                watch.lines.put_nowait(watch.bookmark(self.store.version))

    def uninstall(self, resource: Resource) -> None:
        """Remove a kind with all its objects, as deleting its CRD does."""
        self.store.uninstall(resource)
        self.end_watches(f"{resource.api_version}/.*{resource.plural}")

    def count(self, method: str, pattern: str, *, watch: bool | None = None) -> int:
        """How many such requests came."""
        return sum(
            each.method == method
            and re.search(pattern, each.path) is not None
            and watch in (None, each.watch)
            for each in self.requests
        )

    async def until(self, condition: Callable[[], bool], *, seconds: float = 10) -> None:
        """Return once the condition holds; it is looked at whenever the server did something."""
        async with asyncio.timeout(seconds):
            while not condition():
                self._activity.clear()
                await self._activity.wait()

    # --- how it answers

    def _matching(self, pattern: str) -> Iterator[_Watch]:
        return (each for each in list(self._watches) if re.search(pattern, each.path))

    def _tell_watches(self, event: Event) -> None:
        for watch in self._watches:
            watch.tell(event)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        seen = await self._look(request)
        self.requests.append(seen)
        self._activity.set()
        try:
            return await self._serve(request, seen)
        except Refusal as refusal:
            return web.json_response(refusal.body(), status=refusal.code)
        finally:
            self._activity.set()

    async def _look(self, request: web.Request) -> Seen:
        text = await request.text() if request.can_read_body else ""
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        body = json.loads(text) if text else None
        return Seen(request.method, request.path, dict(request.query), body, token)

    async def _serve(self, request: web.Request, seen: Seen) -> web.StreamResponse:
        if self.tokens is not None and seen.token not in self.tokens:
            raise Refusal(401, "Unauthorized", "Unauthorized")
        fault = next(
            (r.fault for r in self._rules if r.takes(seen.method, seen.path, seen.query)), None
        )
        self._activity.set()
        match fault:
            case None | BadEvent() | CutMidJson() | Garbage():
                pass
            case Hold():
                await fault.released.wait()
                fault = None
            case Delay():
                await asyncio.sleep(fault.seconds)
                fault = None
            case _:
                return await self._fail(request, seen, fault)
        if seen.watch and seen.method == "GET":
            return await self._watch(request, seen, fault)
        answer = await self._normal(seen)
        if isinstance(fault, Garbage):
            return web.Response(body=fault.line, content_type="application/json")
        if isinstance(fault, CutMidJson):
            return await self._cut(request, answer)
        return answer

    async def _fail(self, request: web.Request, seen: Seen, fault: Fault) -> web.StreamResponse:
        match fault:
            case ErrorEvent() if seen.watch:
                event = {"type": "ERROR", "object": _status_of(fault.code, fault.reason)}
                response = await self._stream(request)
                await response.write(_line(event))
                return response
            case StatusInside():
                return web.json_response(_status_of(fault.code, fault.reason))
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
        _abort(request)
        return web.Response()

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        return response

    async def _cut(self, request: web.Request, answer: web.Response) -> web.StreamResponse:
        body = answer.body
        assert isinstance(body, bytes)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.content_length = len(body)
        await response.prepare(request)
        await response.write(body[: len(body) // 2])
        _abort(request)
        return response

    def _target(self, path: str) -> Target:
        found = _OBJECT.fullmatch(path)
        parts = found.groupdict() if found else {}
        namespace, name = parts.get("namespace"), parts.get("name")
        resources = self.store.resources
        if found is None and (own := re.fullmatch(r"/api/v1/namespaces/([^/]+)", path)):
            parts = {"version": "v1", "plural": "namespaces"}
            name = own[1]
        for each in resources:
            if (each.group, each.version, each.plural) == (
                parts.get("group") or "",
                parts.get("version"),
                parts.get("plural"),
            ):
                return Target(each, namespace, name, parts.get("sub") is not None)
        raise Refusal(404, "NotFound", "the server could not find the requested resource")

    async def _normal(self, seen: Seen) -> web.Response:
        if seen.method == "GET" and (found := self._discovery(seen.path)) is not None:
            return web.json_response(found)
        target = self._target(seen.path)
        namespace = target.namespace or ""
        code = 200
        match seen.method:
            case "GET" if target.name is None:
                answer = self._list(target, seen.query)
            case "GET":
                answer = self.store.find(target.resource, namespace, target.name or "")
            case "POST" if target.name is None:
                answer, code = self.store.create(target.resource, namespace, seen.body), 201
            case "PUT" if target.name is not None:
                body = self._with_status(target, seen.body) if target.status else seen.body
                answer = self.store.replace(target.resource, namespace, target.name, body)
            case "PATCH" if target.name is not None:
                answer = self._patch(target, namespace, target.name, seen)
            case "DELETE" if target.name is not None:
                wanted = (seen.body or {}).get("preconditions")
                answer = self.store.delete(target.resource, namespace, target.name, wanted)
            case _:
                raise Refusal(405, "MethodNotAllowed", f"{seen.method} is not supported here")
        return web.json_response(answer, status=code)

    def _with_status(self, target: Target, body: Raw) -> Raw:
        old = self.store.find(target.resource, target.namespace or "", target.name or "")
        metadata = {**old["metadata"]}
        metadata.pop("resourceVersion")
        wanted = (body.get("metadata") or {}).get("resourceVersion")
        if wanted:
            metadata["resourceVersion"] = wanted
        return {**old, "metadata": metadata, "status": body.get("status")}

    def _patch(self, target: Target, namespace: str, name: str, seen: Seen) -> Raw:
        body: Raw = seen.body
        if target.status:
            body = {key: body[key] for key in ("status", "metadata") if key in body}
        try:
            return self.store.patch(target.resource, namespace, name, body)
        except Refusal as refusal:
            if refusal.code != 404 or "fieldManager" not in seen.query:
                raise
        body = {**body, "metadata": {**body.get("metadata", {}), "name": name}}
        return self.store.create(target.resource, namespace, body)

    def _list(self, target: Target, query: dict[str, str]) -> Raw:
        limit = int(query.get("limit") or 0)
        if query.get("continue"):
            items, version, token, left = self.store.next_page(query["continue"], limit)
        else:
            items, version, token, left = self.store.page(self._selected(target, query), limit)
        metadata: Raw = {"resourceVersion": str(version)}
        if token:
            metadata |= {"continue": token, "remainingItemCount": left}
        resource = target.resource
        if not resource.custom:
            left_out = ("apiVersion", "kind")
            items = [{k: v for k, v in each.items() if k not in left_out} for each in items]
        head = {"kind": f"{resource.kind}List", "apiVersion": resource.api_version}
        return {**head, "metadata": metadata, "items": items}

    def _selected(self, target: Target, query: dict[str, str]) -> list[Raw]:
        return self.store.all(target.resource, self._selection(target, query))

    def _selection(self, target: Target, query: dict[str, str]) -> Callable[[Raw], bool]:
        return selection(
            target.namespace, query.get("labelSelector", ""), query.get("fieldSelector", "")
        )

    def _discovery(self, path: str) -> Raw | None:
        resources = sorted(self.store.resources, key=lambda each: each.plural)
        if path == "/version":
            return {"major": "1", "minor": "37", "gitVersion": "v1.37.2"}
        if path == "/apis":
            groups: dict[str, list[Raw]] = {}
            for each in resources:
                version = {"groupVersion": each.api_version, "version": each.version}
                if each.group and version not in groups.setdefault(each.group, []):
                    groups[each.group].append(version)
            named = [
                {"name": name, "versions": versions, "preferredVersion": versions[0]}
                for name, versions in groups.items()
            ]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": named}
        found = _GROUP.fullmatch(path)
        if found is None:
            return None
        group, number = found["group"] or "", found["version"]
        kinds = [each for each in resources if (each.group, each.version) == (group, number)]
        if not kinds:
            raise Refusal(404, "NotFound", "the server could not find the requested resource")
        listed = [
            {"name": each.plural, "kind": each.kind, "namespaced": each.namespaced}
            for each in kinds
        ]
        head = {"kind": "APIResourceList", "groupVersion": kinds[0].api_version}
        return {**head, "resources": listed}

    async def _watch(
        self, request: web.Request, seen: Seen, fault: Fault | None
    ) -> web.StreamResponse:
        target = self._target(seen.path)
        select = self._selection(target, seen.query)
        watch = _Watch(seen.path, target.resource, select)
        watch.bookmarks = seen.query.get("allowWatchBookmarks", "").lower() in ("1", "true")
        seconds = float(int(seen.query.get("timeoutSeconds") or 1800))
        if self.watch_seconds is not None:
            seconds = min(seconds, self.watch_seconds)
        if self._begin(watch, target, seen.query):
            response = await self._stream(request)
            await response.write(_line({"type": "ERROR", "object": _status_of(410, "Expired")}))
            return response
        self._watches.append(watch)
        self._activity.set()
        try:
            response = await self._stream(request)
            if isinstance(fault, BadEvent | Garbage):
                await response.write(fault.line)
            elif isinstance(fault, CutMidJson):
                await response.write(b'{"type": "ADDED", "object": {"metad')
                _abort(request)
                return response
            await self._send(request, response, watch, seconds)
        finally:
            self._watches.remove(watch)
            self._activity.set()
        return response

    def _begin(self, watch: _Watch, target: Target, query: dict[str, str]) -> bool:
        """Queue what the watch missed; whether its version has expired."""
        text = query.get("resourceVersion") or "0"
        if not text.isdigit():
            raise Refusal(400, "BadRequest", f"Invalid value: {text!r}: resourceVersion")
        version = int(text)
        if version == 0:
            for each in self._selected(target, query):
                watch.lines.put_nowait(_line({"type": "ADDED", "object": each}))
            return False
        if version < self.store.oldest:
            return True
        for event in self.store.history:
            if event.version > version:
                watch.tell(event)
        return False

    async def _send(
        self, request: web.Request, response: web.StreamResponse, watch: _Watch, seconds: float
    ) -> None:
        try:
            async with asyncio.timeout(seconds):
                while (line := await watch.lines.get()) is not _CLOSE:
                    await watch.flowing.wait()
                    await response.write(line)
                    self._activity.set()
        except TimeoutError:
            await watch.flowing.wait()
            if watch.bookmarks:
                await response.write(watch.bookmark(self.store.version))
        if watch.cut:
            _abort(request)


def _status_of(code: int, reason: str) -> Raw:
    return status_body(code, reason, "too old resource version: 1 (2)" if code == 410 else reason)


def _abort(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()
