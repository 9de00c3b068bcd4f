"""A `KubeApi` without a server: objects of `tests.fake_api_store`, answers in the same turn.

For tests in virtual time. It can be made unavailable, and can lose an answer: the write lands, the
caller hears nothing of it.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

from fleet.errors import (
    KubeConflict,
    KubeError,
    KubeForbidden,
    KubeNotFound,
    KubeRefused,
    KubeUnavailable,
)
from fleet.kube.contract import MERGE_PATCH, Raw
from tests.fake_api_store import BUILT_IN, Event, Refusal, Resource, Store, selection

NAMESPACE = "epp"


class MemoryApiServer:
    """What the clients share.

    Attributes:
        available: False = every call of every client raises KubeUnavailable, watches end.
        forbidden: True = every call is refused with 403.
        requests: `(method, path)` of every call but watches.
        losing: how many further writes land although their caller hears KubeUnavailable.
        dropping: how many further writes do not land, and their caller hears KubeUnavailable.
        before_write: called before each write, for a change that comes in between.
    """

    def __init__(self) -> None:
        self.store = Store()
        for resource in BUILT_IN:
            self.store.install(resource)
        self.available = True
        self.forbidden = False
        self.requests: list[tuple[str, str]] = []
        self.losing = 0
        self.dropping = 0
        self.before_write: Callable[[], None] | None = None
        self.watches: list[asyncio.Queue[Event | None]] = []
        self.store.listen(self._tell)

    def _tell(self, event: Event) -> None:
        for queue in self.watches:
            queue.put_nowait(event)

    def end_watches(self) -> None:
        """As a server does now and then."""
        for queue in self.watches:
            queue.put_nowait(None)

    def answer(self, method: str, path: str, work: Callable[[Resource, str, str], Raw]) -> Raw:
        """Do `work` on what `path` names, with whatever fault is set."""
        self.requests.append((method, path))
        if not self.available:
            raise KubeUnavailable("played: no answer")
        if self.forbidden:
            raise KubeForbidden(f"played: may not {method} {path}", status=403)
        if method == "GET":
            return self._done(path, work)
        if self.before_write is not None:
            before, self.before_write = self.before_write, None
            before()
        if self.dropping:
            self.dropping -= 1
            raise KubeUnavailable("played: no answer, not landed")
        answer = self._done(path, work)
        if self.losing:
            self.losing -= 1
            raise KubeUnavailable("played: no answer, landed")
        return answer

    def _done(self, path: str, work: Callable[[Resource, str, str], Raw]) -> Raw:
        resource, namespace, name = self.named(path)
        try:
            return work(resource, namespace, name)
        except Refusal as refusal:
            raise _error(refusal) from None

    def named(self, path: str) -> tuple[Resource, str, str]:
        """Kind, namespace and name ("" for a collection) of a namespaced path."""
        for resource in self.store.resources:
            prefix, _, plural = resource.path("\n").partition("\n")
            if path.startswith(prefix) and plural in path.removeprefix(prefix):
                namespace, _, rest = path.removeprefix(prefix).partition(plural)
                return resource, namespace, rest.removeprefix("/")
        raise KubeNotFound(f"no such kind: {path}", status=404)


class MemoryKube:
    """One client of a `MemoryApiServer`.

    Attributes:
        cut: True = this client reaches nothing, without knowing that its watches are dead.
        latency: seconds to the server, and seconds back, drawn for each call. A call that takes
            longer than its `timeout_seconds` is not undone: it arrives when it does.
    """

    def __init__(self, server: MemoryApiServer, namespace: str = NAMESPACE) -> None:
        self.server = server
        self.cut = False
        self.latency: Callable[[], tuple[float, float]] | None = None
        self._late: set[asyncio.Task[Raw]] = set()
        self._namespace = namespace

    @property
    def namespace(self) -> str:
        return self._namespace

    async def _answer(
        self,
        method: str,
        path: str,
        work: Callable[[Resource, str, str], Raw],
        timeout_seconds: float | None,
    ) -> Raw:
        if self.cut:
            raise KubeUnavailable("played: cut off")
        if self.latency is None:
            return self.server.answer(method, path, work)
        there, back = self.latency()

        async def call() -> Raw:
            await asyncio.sleep(there)
            answer = self.server.answer(method, path, work)
            await asyncio.sleep(back)
            return answer

        task = asyncio.create_task(call())
        self._late.add(task)
        task.add_done_callback(self._arrived)
        try:
            async with asyncio.timeout(timeout_seconds):
                return await asyncio.shield(task)
        except TimeoutError:
            raise KubeUnavailable("played: no answer in time") from None

    def _arrived(self, task: asyncio.Task[Raw]) -> None:
        self._late.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waited for it has heard, or has gone

    def _deaf(self) -> bool:
        return self.cut

    async def get(
        self,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        timeout_seconds: float | None = None,
    ) -> Raw:
        return await self._answer("GET", path, self.server.store.find, timeout_seconds)

    async def read(
        self,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        timeout_seconds: float | None = None,
    ) -> bytes:
        return json.dumps(await self.get(path)).encode()

    async def create(self, path: str, body: Raw, *, timeout_seconds: float | None = None) -> Raw:
        store = self.server.store
        return await self._answer(
            "POST", path, lambda kind, ns, _: store.create(kind, ns, body), timeout_seconds
        )

    async def replace(self, path: str, body: Raw, *, timeout_seconds: float | None = None) -> Raw:
        store = self.server.store
        return await self._answer(
            "PUT",
            path,
            lambda kind, ns, name: store.replace(kind, ns, name, body),
            timeout_seconds,
        )

    async def patch(
        self,
        path: str,
        body: Raw,
        *,
        content_type: str = MERGE_PATCH,
        params: Mapping[str, str] | None = None,
        timeout_seconds: float | None = None,
    ) -> Raw:
        store = self.server.store
        return await self._answer(
            "PATCH",
            path,
            lambda kind, ns, name: store.patch(kind, ns, name, body),
            timeout_seconds,
        )

    async def delete(
        self, path: str, *, body: Raw | None = None, timeout_seconds: float | None = None
    ) -> Raw:
        return await self._answer("DELETE", path, self.server.store.delete, timeout_seconds)

    async def watch(
        self, path: str, *, params: Mapping[str, str], read_timeout_seconds: float
    ) -> AsyncGenerator[Raw, None]:
        if self.cut or not self.server.available:
            raise KubeUnavailable("played: no answer")
        resource, namespace, _ = self.server.named(path)
        select = selection(namespace, fields=params.get("fieldSelector", ""))
        queue: asyncio.Queue[Event | None] = asyncio.Queue()
        self.server.watches.append(queue)
        try:
            for raw in self.server.store.all(resource, select):
                yield {"type": "ADDED", "object": raw}
            while True:
                try:
                    async with asyncio.timeout(read_timeout_seconds):
                        event = await queue.get()
                except TimeoutError:
                    raise KubeUnavailable("played: the watch is silent") from None
                if event is None:
                    return
                about = event.resource == resource and not self._deaf()
                seen = event.seen_through(select) if about else None
                if seen is not None:
                    yield seen
        finally:
            self.server.watches.remove(queue)

    async def close(self) -> None:
        for task in self._late:
            task.cancel()


def _error(refusal: Refusal) -> KubeError:
    kinds: dict[int, Any] = {404: KubeNotFound, 409: KubeConflict}
    kind = kinds.get(refusal.code, KubeRefused)
    error: KubeError = kind(refusal.message, status=refusal.code, reason=refusal.reason)
    return error
