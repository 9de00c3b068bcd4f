"""A worker's neighbours for tests: streams, connections, a source and a scraper that only note."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from epp_worker.datalayer.counts import ScrapeCounts
from epp_worker.scheduling.pool import PoolState
from fleet.model import EpochVersion, GroupKey, Hold, Pod, PoolId, PoolRef, Share, ShareEntry
from fleet.model.pools import Pool
from fleet.sources.contract import Change, Kind, Listener, Object, ObjectKey, Problem


class FakeConnection:
    """Counts how often it was sent away."""

    def __init__(self, peer: str = "10.1.1.1:40000") -> None:
        self.peer = peer
        self.goaways = 0

    def go_away(self) -> None:
        self.goaways += 1


class FakeStream:
    """Keeps what was sent, and how it was ended."""

    def __init__(self, authority: str, connection: FakeConnection | None = None) -> None:
        self.authority = authority
        self.path = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"
        self.headers: Mapping[str, str] = {}
        self.connection = connection or FakeConnection()
        self.sent: list[bytes] = []
        self.ended: tuple[int, str] | None = None
        self.full = False
        self.on_sent: Callable[[], None] | None = None
        self.held_back = False

    def send(self, *messages: bytes) -> None:
        assert self.ended is None, "sent after the end"
        self.sent.extend(messages)

    def end(self, status: int = 0, message: str = "") -> None:
        assert self.ended is None, "ended twice"
        self.ended = (status, message)

    def fits(self, size: int) -> bool:
        return not self.full

    def when_sent(self, callback: Callable[[], None]) -> None:
        if self.full:
            self.on_sent = callback
        else:
            callback()

    def hold_back(self, *, on: bool) -> None:
        self.held_back = on

    def drain(self) -> None:
        """The peer takes what was sent."""
        self.full = False
        callback, self.on_sent = self.on_sent, None
        if callback is not None:
            callback()


class FakeWatch:
    """A subscription of `FakeSource`."""

    def __init__(
        self, source: "FakeSource", listener: Listener, kind: Kind, namespace: str | None
    ) -> None:
        self.source = source
        self.listener = listener
        self.kind = kind
        self.namespace = namespace
        self.listed = asyncio.Event()

    def wants(self, kind: Kind, key: ObjectKey) -> bool:
        return kind is self.kind and self.namespace in (None, key.namespace)

    def synced(self) -> bool:
        return self.listed.is_set()

    async def wait_synced(self) -> None:
        await self.listed.wait()

    def close(self) -> None:
        self.source.watches.remove(self)


class FakeSource:
    """A source whose objects and list times the test decides.

    Attributes:
        lists: kinds whose first list is given as soon as it is asked for.
    """

    def __init__(self) -> None:
        self.things: dict[Kind, dict[ObjectKey, Object]] = {kind: {} for kind in Kind}
        self.watches: list[FakeWatch] = []
        self.lists = set(Kind)

    async def start(self) -> None:
        """Nothing to begin."""

    def watch(self, kind: Kind, listener: Listener, *, namespace: str | None = None) -> FakeWatch:
        watch = FakeWatch(self, listener, kind, namespace)
        self.watches.append(watch)
        if kind in self.lists:
            self.list(watch)
        return watch

    def list(self, watch: FakeWatch) -> None:
        """Give a watch its first list."""
        for key, thing in self.things[watch.kind].items():
            if watch.wants(watch.kind, key):
                watch.listener(Change(watch.kind, key, None, thing))
        watch.listed.set()

    def put(self, thing: Pool | Pod) -> None:
        """An object came or changed."""
        if isinstance(thing, Pool):
            kind, key = Kind.POOL, ObjectKey(*thing.ref)
        else:
            kind, key = Kind.POD, ObjectKey(thing.namespace, thing.name)
        self._change(kind, key, thing)

    def remove(self, kind: Kind, namespace: str, name: str) -> None:
        """An object went."""
        self._change(kind, ObjectKey(namespace, name), None)

    def _change(self, kind: Kind, key: ObjectKey, new: Object | None) -> None:
        old = self.things[kind].pop(key, None)
        if new is not None:
            self.things[kind][key] = new
        for watch in list(self.watches):
            if watch.wants(kind, key) and watch.synced():
                watch.listener(Change(kind, key, old, new))

    def objects(self, kind: Kind, *, namespace: str | None = None) -> Mapping[ObjectKey, Object]:
        return {
            key: thing
            for key, thing in self.things[kind].items()
            if namespace in (None, key.namespace)
        }

    def problems(self) -> tuple[Problem, ...]:
        return ()

    def age(self) -> float:
        return 0.0

    async def close(self) -> None:
        """Nothing to end."""


class FakeScraper:
    """Notes which pools are scraped; first scrapes end when the test lets them."""

    def __init__(self) -> None:
        self.scraped: list[str] = []
        self.firsts: list[str] = []
        self.refreshed: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()

    def add(self, pool: PoolState) -> None:
        self.scraped.append(_life(pool))

    def remove(self, pool: PoolState) -> None:
        self.scraped.remove(_life(pool))

    def refresh(self, pool: PoolState) -> None:
        self.refreshed.append(_life(pool))

    async def run(self) -> None:
        await asyncio.Event().wait()

    def counts(self) -> ScrapeCounts:
        return ScrapeCounts()

    async def first(self, pool: PoolState) -> None:
        self.firsts.append(_life(pool))
        await self.gate.wait()


def _life(state: PoolState) -> str:
    return f"{state.pool.ref.name}/{state.pool.uid}"


class Tasks:
    """Spawns tasks and keeps them; a test awaits `settle` to let the loop catch up."""

    def __init__(self) -> None:
        self.tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task


async def settle(turns: int = 10) -> None:
    """Let everything that is ready run."""
    for _ in range(turns):
        await asyncio.sleep(0)


def group_of(name: str, namespace: str = "ns", port: int = 9002) -> GroupKey:
    """The route group of the Service `name`."""
    return GroupKey(namespace, name, port)


def pool_of(name: str, *, uid: str = "1", group: GroupKey | None = None, port: int = 8000) -> Pool:
    """A pool that selects `app: <name>`."""
    key = group or group_of(name)
    return Pool(PoolRef(key.namespace, name), uid, {"app": name}, (port,), key)


def pod_of(name: str, app: str, ip: str, namespace: str = "ns") -> Pod:
    """A ready pod of the pool `app`."""
    return Pod(namespace, name, f"uid-{name}", {"app": app}, ip, ready=True)


def entry_of(pool: Pool, hold: Hold, owner: str | None = "w") -> ShareEntry:
    """A share's entry for the pool's group."""
    assert pool.group is not None
    return ShareEntry(pool.group, hold, (PoolId(pool.ref, pool.uid),), owner)


def share_with(version: int, *entries: ShareEntry, epoch: int = 1, incarnation: str = "") -> Share:
    """A share of worker `w` in fleet `f`."""
    return Share("f", "w", incarnation, EpochVersion(epoch, version), entries)
