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
from pathlib import Path

from aiohttp import web

from tests.fake_api_answers import Answers, Seen, Target
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
)
from tests.fake_api_replies import abort, cut_short, failed, opened, status_of
from tests.fake_api_store import (
    BUILT_IN,
    CORE_EVENTS,
    CUSTOM,
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
)
from tests.fake_api_watches import CLOSE, OpenWatch, line_of

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
        self._answers = Answers(self.store)
        self.requests: list[Seen] = []
        self.tokens: set[str] | None = None
        self.watch_seconds: float | None = None
        self.port = 0
        self._rules: list[Rule] = []
        self._watches: list[OpenWatch] = []
        self._activity = asyncio.Event()
        self.store.listen(self._tell_watches)

    @classmethod
    @asynccontextmanager
    async def running(
        cls, *resources: Resource, built_in: bool = True
    ) -> AsyncIterator["FakeApiServer"]:
        """A server on a free loopback port until the context ends.

        Args:
            resources: kinds that exist besides the built-in ones; none given = all of `CUSTOM`.
        """
        server = cls()
        for resource in (*(BUILT_IN if built_in else ()), *(resources or CUSTOM)):
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
            watch.lines.put_nowait(CLOSE)

    def cut_watches(self, pattern: str = "", *, half: bytes = b'{"type": "ADDED", "obj') -> None:
        """Send half a line, then reset the connections."""
        for watch in self._matching(pattern):
            watch.cut = True
            watch.lines.put_nowait(half)
            watch.lines.put_nowait(CLOSE)

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

    def _matching(self, pattern: str) -> Iterator[OpenWatch]:
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
                return await failed(request, seen, fault)
        if seen.watch and seen.method == "GET":
            return await self._watch(request, seen, fault)
        body, code = self._answers.answer(seen)
        answer = web.json_response(body, status=code)
        if isinstance(fault, Garbage):
            return web.Response(body=fault.line, content_type="application/json")
        if isinstance(fault, CutMidJson):
            return await cut_short(request, answer)
        return answer

    async def _watch(
        self, request: web.Request, seen: Seen, fault: Fault | None
    ) -> web.StreamResponse:
        target = self._answers.target(seen.path)
        select = self._answers.selection(target, seen.query)
        watch = OpenWatch(seen.path, target.resource, select)
        watch.bookmarks = seen.query.get("allowWatchBookmarks", "").lower() in ("1", "true")
        seconds = float(int(seen.query.get("timeoutSeconds") or 1800))
        if self.watch_seconds is not None:
            seconds = min(seconds, self.watch_seconds)
        if self._begin(watch, target, seen.query):
            response = await opened(request)
            await response.write(line_of({"type": "ERROR", "object": status_of(410, "Expired")}))
            return response
        self._watches.append(watch)
        self._activity.set()
        try:
            response = await opened(request)
            if isinstance(fault, BadEvent | Garbage):
                await response.write(fault.line)
            elif isinstance(fault, CutMidJson):
                await response.write(b'{"type": "ADDED", "object": {"metad')
                abort(request)
                return response
            await self._send(request, response, watch, seconds)
        finally:
            self._watches.remove(watch)
            self._activity.set()
        return response

    def _begin(self, watch: OpenWatch, target: Target, query: dict[str, str]) -> bool:
        """Queue what the watch missed; whether its version has expired."""
        text = query.get("resourceVersion") or "0"
        if not text.isdigit():
            raise Refusal(400, "BadRequest", f"Invalid value: {text!r}: resourceVersion")
        version = int(text)
        if version == 0:
            for each in self._answers.selected(target, query):
                watch.lines.put_nowait(line_of({"type": "ADDED", "object": each}))
            return False
        if version < self.store.oldest:
            return True
        for event in self.store.history:
            if event.version > version:
                watch.tell(event)
        return False

    async def _send(
        self, request: web.Request, response: web.StreamResponse, watch: OpenWatch, seconds: float
    ) -> None:
        try:
            async with asyncio.timeout(seconds):
                while (line := await watch.lines.get()) is not CLOSE:
                    await watch.flowing.wait()
                    await response.write(line)
                    self._activity.set()
        except TimeoutError:
            await watch.flowing.wait()
            if watch.bookmarks:
                await response.write(watch.bookmark(self.store.version))
        if watch.cut:
            abort(request)
