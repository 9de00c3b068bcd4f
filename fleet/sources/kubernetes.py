"""Pools, pods and what belongs to them from a Kubernetes API server.

A kind is listed and watched from the moment somebody watches it here, so that a process needs no
permission for what it does not use. It then stays watched; but pods are watched per namespace
while somebody asks for that namespace, or for the whole cluster when many do
(`fleet.sources.kubernetes_scopes`). Changing between the two, the new watch has its first list
before the old one ends, so no pod is lost from sight.

What a list+watch promises for itself is in `fleet.kube.listwatch`.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from fleet.clock import Clock
from fleet.kube.client import KubeClient
from fleet.kube.contract import KubeApi
from fleet.kube.listwatch import ListWatch
from fleet.kube.listwatch_cache import Delta, Key
from fleet.kube.listwatch_condition import Condition, Counters
from fleet.kube.listwatch_events import Collection
from fleet.kube.listwatch_pace import Pace
from fleet.model import Pod
from fleet.settings.model import KubernetesSettings
from fleet.sources.contract import Kind, Listener, Object, ObjectKey, Problem, Watch
from fleet.sources.kubernetes_copy import RankedCopy, Reading
from fleet.sources.kubernetes_facts import COLLECTIONS, decoder, keeper
from fleet.sources.kubernetes_scopes import names_of, pod_scopes

_CLUSTER, _NAMESPACE = 0, 1
"""Ranks of a pod's readings."""


class _Feed(NamedTuple):
    """One list+watch: its kind, the rank of its readings, its namespace (None = all)."""

    kind: Kind
    rank: int
    namespace: str | None


class KubeSource:
    """`fleet.sources.contract.Source` over an API server.

    Args:
        pace: instead of what the settings say, for tests.
    """

    def __init__(
        self,
        api: KubeApi,
        settings: KubernetesSettings,
        clock: Clock,
        rng: random.Random,
        *,
        pace: Pace | None = None,
    ) -> None:
        self._api = api
        self._clock = clock
        self._rng = rng
        self._pace = pace or Pace.of(settings)
        self._allowed = names_of(settings.watch_namespaces)
        self._copy = RankedCopy()
        self._feeds: dict[_Feed, ListWatch[Object]] = {}
        self._counters: dict[str, Counters] = {}
        self._marred: dict[tuple[_Feed, ObjectKey], str] = {}
        self._kinds: set[Kind] = set()
        self._pods_wanted: Counter[str | None] = Counter()
        self._closing: set[asyncio.Task[None]] = set()
        self._started = False
        self._closed = False

    # --- fleet.sources.contract.Source

    async def start(self) -> None:
        """See `Source.start`. Never raises: an API server that is away may come."""
        self._started = True
        for kind in self._kinds:
            self._begin_kind(kind)
        self._match_pods()
        # A namespace that may not be watched holds nothing, and no list will ever say so.
        self._copy.mark_synced(Kind.POD, partial(self._is_synced, Kind.POD))

    def watch(self, kind: Kind, listener: Listener, *, namespace: str | None = None) -> Watch:
        """See `Source.watch`; the first list comes with the server's answer."""
        if kind is Kind.POD:
            self._pods_wanted[namespace] += 1
            self._match_pods()
        elif kind not in self._kinds:
            self._kinds.add(kind)
            self._begin_kind(kind)
        return self._copy.subscribe(
            kind,
            listener,
            namespace,
            synced=lambda: self._is_synced(kind, namespace),
            on_close=partial(self._release, kind, namespace),
        )

    def objects(self, kind: Kind, *, namespace: str | None = None) -> Mapping[ObjectKey, Object]:
        """See `Source.objects`."""
        return self._copy.objects(kind, namespace)

    def problems(self) -> tuple[Problem, ...]:
        """See `Source.problems`: lists and watches that fail, objects that are skipped, and pods
        of which something is left out."""
        failing = [
            Problem(condition.path, condition.failing)
            for condition in self.conditions()
            if condition.failing is not None
        ]
        skipped = [
            Problem(f"{_collection(feed, key.namespace).path}/{key.name}", fault)
            for feed, loop in self._feeds.items()
            for key, fault in loop.faults.items()
        ]
        marred = {
            Problem(f"{_collection(feed, key.namespace).path}/{key.name}", fault): None
            for (feed, key), fault in self._marred.items()
        }
        return (*failing, *skipped, *marred)

    def age(self) -> float:
        """See `Source.age`: of the watch that is furthest behind; 0 if nothing is watched."""
        return max((loop.age() for loop in self._feeds.values()), default=0.0)

    async def close(self) -> None:
        """See `Source.close`."""
        self._closed = True
        self._copy.close()
        loops, self._feeds = list(self._feeds.values()), {}
        await asyncio.gather(*(loop.close() for loop in loops), *self._closing)

    # --- for metrics and tests

    def conditions(self) -> tuple[Condition, ...]:
        """How each list+watch is doing."""
        return tuple(loop.condition() for loop in tuple(self._feeds.values()))

    def counters(self) -> Mapping[str, Counters]:
        """Totals since the start by resource, also of watches that have ended since."""
        return dict(self._counters)

    def call_errors(self) -> Mapping[str, int]:
        """Calls of the API server that failed, by kind, of all that share its client."""
        return self._api.failed.counts if isinstance(self._api, KubeClient) else {}

    def seen(self, kind: Kind, key: ObjectKey, *, rank: int = 0) -> str | None:
        """The resourceVersion at which an object was last seen, good or not.

        Args:
            rank: which of the kind's collections; see `COLLECTIONS`.
        """
        for feed, loop in self._feeds.items():
            if feed.kind is kind and (kind is Kind.POD or feed.rank == rank):
                version = loop.version(Key(*key))
                if version is not None:
                    return version
        return None

    # --- list+watches

    def _begin_kind(self, kind: Kind) -> None:
        namespaces: Sequence[str | None] = sorted(self._allowed) or (None,)
        for rank in range(len(COLLECTIONS[kind])):
            for namespace in namespaces:
                self._begin(_Feed(kind, rank, namespace))

    def _begin(self, feed: _Feed) -> None:
        if not self._started or self._closed or feed in self._feeds:
            return
        collection = _collection(feed, feed.namespace)
        loop = ListWatch(
            self._api,
            collection,
            keep=keeper(feed.kind, collection),
            decode=decoder(feed.kind),
            told=partial(self._read, feed),
            synced=partial(self._list_came, feed.kind),
            pace=self._pace,
            clock=self._clock,
            rng=self._rng,
            counters=self._counters.setdefault(collection.resource, Counters()),
        )
        self._feeds[feed] = loop
        loop.start()

    def _end(self, feed: _Feed) -> None:
        loop = self._feeds.pop(feed)
        loop.stop()
        gone = [Reading(ObjectKey(*key), None) for key in list(loop.values)]
        self._take(feed, gone)
        task = asyncio.create_task(loop.close(), name=f"end of {feed}")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def _read(self, feed: _Feed, deltas: Sequence[Delta[Object]]) -> None:
        self._take(feed, [Reading(ObjectKey(*delta.key), delta.new) for delta in deltas])

    def _take(self, feed: _Feed, readings: Sequence[Reading]) -> None:
        for key, value in readings:
            if isinstance(value, Pod) and value.fault:
                self._marred[feed, key] = value.fault
            elif self._marred:
                self._marred.pop((feed, key), None)
        self._copy.read(feed.kind, feed.rank, readings)

    def _list_came(self, kind: Kind) -> None:
        self._copy.mark_synced(kind, partial(self._is_synced, kind))
        if kind is Kind.POD:
            self._match_pods()

    def _is_synced(self, kind: Kind, namespace: str | None) -> bool:
        if not self._started:
            return False
        if kind is not Kind.POD:
            return all(loop.synced for feed, loop in self._feeds.items() if feed.kind is kind)
        if self._has_list(_Feed(kind, _CLUSTER, None)):
            return True
        if self._allowed:
            names = self._allowed if namespace is None else self._allowed & {namespace}
        elif namespace is None:
            return False
        else:
            names = frozenset({namespace})
        return all(self._has_list(_Feed(kind, _NAMESPACE, name)) for name in names)

    def _has_list(self, feed: _Feed) -> bool:
        loop = self._feeds.get(feed)
        return loop is not None and loop.synced

    # --- pods

    def _release(self, kind: Kind, namespace: str | None) -> None:
        if kind is not Kind.POD or self._closed:
            return
        self._pods_wanted[namespace] -= 1
        if not self._pods_wanted[namespace]:
            del self._pods_wanted[namespace]
        self._match_pods()

    def _match_pods(self) -> None:
        """Begin and end watches until they are what is wanted; the old end after the new's list."""
        whole = _Feed(Kind.POD, _CLUSTER, None)
        scopes = pod_scopes(self._pods_wanted, self._allowed, whole_now=whole in self._feeds)
        wanted = {_Feed(Kind.POD, _NAMESPACE, name) for name in scopes.namespaces}
        if scopes.whole:
            self._begin(whole)
        if not (scopes.whole and self._has_list(whole)):
            for feed in sorted(wanted - self._feeds.keys()):
                self._begin(feed)
        elif scopes.whole:
            wanted = set()
        current = {feed for feed in self._feeds if feed.kind is Kind.POD and feed != whole}
        for feed in current - wanted:
            self._end(feed)
        complete = all(self._has_list(feed) for feed in wanted)
        if whole in self._feeds and not scopes.whole and complete:
            self._end(whole)


def _collection(feed: _Feed, namespace: str | None) -> Collection:
    collections = COLLECTIONS[feed.kind]
    return replace(collections[min(feed.rank, len(collections) - 1)], namespace=namespace)
