"""One collection's list, then watch, for as long as the process lives (a reflector).

Promises:
1. `values` is the last good state. It is only ever changed by what the server said of an object, or
   by a complete list that does not name it; no failure empties it.
2. After every failure there is a spread, growing wait. A watch that broke off, in whatever way, is
   followed by a full list; one that ended in good order is resumed at the last version seen. ERROR
   events give no version. The version of a bookmark is used.
3. A peer that falls silent is noticed: the watch is cut `grace_seconds` after the server should
   have ended it, and a full list comes on a timer of its own.
4. A kind that does not exist is an empty collection, looked for again within seconds. Objects that
   were there are not believed gone with it until discovery said so three times.
5. The loop never ends by an exception: faults of our own are counted in `restarts` and logged.

Lists are consistent reads (no resourceVersion is given): a list never shows an older state than one
seen before, also from another API server of the cluster.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Generic, TypeVar, cast

import msgspec

from fleet.clock import Clock
from fleet.errors import KubeError, KubeForbidden, KubeGone, KubeNotFound, KubeUnavailable
from fleet.kube.contract import KubeApi, Raw
from fleet.kube.listwatch_cache import Cache, Delta, Key, key_of
from fleet.kube.listwatch_condition import Complaints, Condition, Counters
from fleet.kube.listwatch_events import (
    Collection,
    EventType,
    decode_object,
    read_event,
)
from fleet.kube.listwatch_pace import Failures, Pace, Step
from fleet.kube.listwatch_pages import Pages

log = logging.getLogger(__name__)

T = TypeVar("T")

SLICE = 64
"""Objects handled in one turn of the event loop: about 2 ms of pods."""

MAX_OBJECTS = 500_000
"""A list that goes on for longer is no list of Kubernetes objects."""

_MISSING_LOOKS = 3


class ListWatch(Generic[T]):
    """See the module. `start` it, `close` it; all on one event loop.

    Args:
        keep: what to hold of a raw object (`trimmed` is the least); raises ManifestError to refuse.
        decode: reads one object of a list; may leave out what `keep` does not look at.
        told: called on the loop with each batch of changes, after `values` has changed. It must not
            block or raise.
        synced: called once, after the changes of the first full list.
        selectors: `labelSelector` and `fieldSelector`, where wanted.
        counters: to count in, where several share them.
    """

    def __init__(
        self,
        api: KubeApi,
        collection: Collection,
        *,
        keep: Callable[[Raw], T],
        told: Callable[[Sequence[Delta[T]]], None],
        pace: Pace,
        clock: Clock,
        rng: random.Random,
        decode: Callable[[msgspec.Raw], Raw] = decode_object,
        synced: Callable[[], None] = lambda: None,
        selectors: Mapping[str, str] | None = None,
        counters: Counters | None = None,
    ) -> None:
        self._api = api
        self._collection = collection
        self._cache = Cache(keep)
        self._told = told
        self._decode = decode
        self._tell_synced = synced
        self._pace = pace
        self._pages = Pages(api, collection, dict(selectors or {}), pace)
        self._clock = clock
        self._selectors = dict(selectors or {})
        self._failures = Failures(pace, rng)
        self._counters = counters if counters is not None else Counters()
        self._version = ""
        self._must_list = True
        self._relist_at = 0.0
        self._synced = False
        self._missing = False
        self._failing: str | None = None
        self._complaints = Complaints(clock, pace.complaint_seconds)
        self._good_at = self._listed_at = clock.monotonic()
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    # --- for its owner

    def start(self) -> None:
        """Begin; needs a running loop."""
        self._good_at = self._listed_at = self._clock.monotonic()
        self._begin()

    def stop(self) -> None:
        """Call `told` no more, and begin to end; `close` waits for it."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()

    async def close(self) -> None:
        """Stop; idempotent."""
        self.stop()
        task, self._task = self._task, None
        if task is not None:
            with contextlib.suppress(asyncio.CancelledError):
                await task

    @property
    def values(self) -> Mapping[Key, T]:
        """The last good state; a view that changes."""
        return self._cache.values

    @property
    def faults(self) -> Mapping[Key, str]:
        """Objects that are skipped as they are now, and why; a view that changes."""
        return self._cache.faults

    @property
    def synced(self) -> bool:
        """See `Condition`."""
        return self._synced

    def version(self, key: Key) -> str | None:
        """The resourceVersion at which an object was last seen; None if it does not exist."""
        return self._cache.version(key)

    def age(self) -> float:
        """See `Condition.age_seconds`."""
        return self._clock.monotonic() - self._good_at

    def condition(self) -> Condition:
        """How it is doing."""
        return Condition(
            path=self._collection.path,
            resource=self._collection.resource,
            version=self._version,
            synced=self._synced,
            missing=self._missing,
            failing=self._failing,
            age_seconds=self.age(),
            list_age_seconds=self._clock.monotonic() - self._listed_at,
            objects=len(self._cache.values),
            skipped=len(self._cache.faults),
            counters=self._counters,
        )

    # --- supervision

    def _begin(self) -> None:
        self._task = asyncio.create_task(self._run(), name=f"watch {self._collection.path}")
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """The loop catches all exceptions but those of its own error handling and its clock."""
        if self._closed or task.cancelled():
            return
        log.critical(
            "list+watch died; started again",
            extra={"path": self._collection.path},
            exc_info=task.exception(),
        )
        self._counters.restarts += 1
        self._must_list = True
        self._begin()

    async def _run(self) -> None:
        while True:
            try:
                step = await self._cycle()
            except KubeError as error:
                step = self._failed(error)
            except Exception as error:
                self._counters.restarts += 1
                log.exception("list+watch broke; begun anew", extra={"path": self._collection.path})
                step = self._failed(error)
            self._must_list |= step.list_anew
            await self._clock.sleep(step.wait_seconds)

    async def _cycle(self) -> Step:
        if self._missing and not await self._pages.discovered():
            return self._none()
        if self._must_list:
            try:
                await self._list()
            except (KubeNotFound, KubeForbidden) as error:
                return await self._not_there(error)
        return await self._watch()

    def _failed(self, error: Exception) -> Step:
        self._counters.failures += 1
        step = self._failures.failed(error)
        if isinstance(error, KubeGone):
            self._counters.expired += 1
            if self._failures.in_a_row == 1:
                log.info("watch expired; listing anew", extra={"path": self._collection.path})
                return step
        self._failing = str(error)
        self._complaints.failed(
            error, path=self._collection.path, age=self.age(), in_a_row=self._failures.in_a_row
        )
        return step

    # --- list

    async def _list(self) -> None:
        began = self._clock.monotonic()
        listed: set[Key] = set()
        version = ""
        self._cache.begin_list()
        async with contextlib.aclosing(self._pages.read()) as pages:
            async for page in pages:
                await self._take_page(page.items, listed)
                if len(listed) > MAX_OBJECTS:
                    raise KubeUnavailable(f"a list of more than {MAX_OBJECTS} objects")
                version = page.version
        await self._drop(self._cache.absent(listed))
        self._version = version
        self._must_list = False
        self._relist_at = self._clock.monotonic() + self._failures.relist_seconds()
        self._counters.lists += 1
        self._missing = False
        self._failures.found()
        self._listed(began)

    def _listed(self, began: float) -> None:
        self._good_at = self._listed_at = began
        self._failing = None
        if not self._synced and not self._closed:
            self._synced = True
            self._tell_synced()

    async def _take_page(self, items: Sequence[msgspec.Raw], listed: set[Key]) -> None:
        for begin in range(0, len(items), SLICE):
            deltas = []
            for item in items[begin : begin + SLICE]:
                raw = self._decoded(item)
                key = key_of(raw)
                if key is not None:
                    listed.add(key)
                deltas.append(self._cache.take(raw))
            self._tell(deltas)
            await asyncio.sleep(0)

    def _decoded(self, item: msgspec.Raw) -> Raw:
        """One object of a list, as `decode` reads it, else whole: the cache says what is wrong."""
        for decode in (self._decode, decode_object):
            with contextlib.suppress(msgspec.MsgspecError, ValueError, RecursionError):
                return decode(item)
        return {}

    async def _drop(self, keys: list[Key]) -> None:
        for begin in range(0, len(keys), SLICE):
            self._tell([self._cache.drop(key) for key in keys[begin : begin + SLICE]])
            await asyncio.sleep(0)

    def _tell(self, deltas: Sequence[Delta[T] | None]) -> None:
        real = [each for each in deltas if each is not None]
        if real and not self._closed:
            self._told(real)

    async def _not_there(self, error: KubeNotFound | KubeForbidden) -> Step:
        """The list answered 404 (or 403, which is decided before): is there no such kind?"""
        if await self._pages.discovered():
            raise error
        if self._cache.values and self._failures.missing_looks < _MISSING_LOOKS - 1:
            self._failing = str(error)
            return self._failures.missing()
        await self._drop(self._cache.absent(()))
        log.info("no such kind; looking again", extra={"path": self._collection.path})
        self._missing = True
        self._failures.good()
        return self._none()

    def _none(self) -> Step:
        """There is no such kind, and so no object: that is all that can be known."""
        self._listed(self._clock.monotonic())
        return self._failures.missing()

    # --- watch

    async def _watch(self) -> Step:
        began = self._clock.monotonic()
        self._counters.watches += 1
        try:
            async with asyncio.timeout(max(0.0, self._relist_at - began)) as relist:
                await self._follow(began)
        except TimeoutError:
            if not relist.expired():
                raise
            return Step(0.0, list_anew=True)
        except Exception:
            if self._clock.monotonic() - began >= self._pace.longest_wait_seconds:
                self._failures.good()
            raise
        now = self._clock.monotonic()
        if now - began < self._pace.short_seconds:
            return self._failures.ended_early()
        self._good_at = now
        self._failing = None
        self._failures.good()
        return Step(0.0, list_anew=False)

    async def _follow(self, began: float) -> None:
        params = {
            **self._selectors,
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(max(1, round(self._pace.watch_seconds))),
        }
        stream = self._api.watch(
            self._collection.path,
            params=params,
            read_timeout_seconds=self._pace.watch_seconds + self._pace.grace_seconds,
        )
        handled = 0
        async with contextlib.aclosing(cast("AsyncGenerator[Raw, None]", stream)) as events:
            async for raw in events:
                self._handle(raw)
                if self._clock.monotonic() - began >= self._pace.short_seconds:
                    self._failures.good()
                handled += 1
                if handled % SLICE == 0:
                    # What is buffered already comes without a turn of the loop.
                    await asyncio.sleep(0)

    def _handle(self, raw: Raw) -> None:
        event = read_event(raw)
        if event.type is EventType.BOOKMARK:
            self._counters.bookmarks += 1
        else:
            self._counters.events += 1
            self._apply(event.type, event.object)
        # Only after it was applied: a version is a promise that all up to it is known.
        self._version = event.version or self._version
        self._good_at = self._clock.monotonic()
        self._failing = None

    def _apply(self, kind: EventType, raw: Raw) -> None:
        key = key_of(raw)
        if key is None:
            raise KubeUnavailable(f"an event {kind} of the watch names no object")
        deleted = kind is EventType.DELETED
        self._tell([self._cache.drop(key) if deleted else self._cache.take(raw)])
