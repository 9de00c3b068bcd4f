"""The pools and pods this worker knows of, straight from the source.

Nothing here waits for a coordinator or the store: a pod that becomes ready reaches the next pick
through the source alone. Pools are watched everywhere, with what objectives and rewrites say of
them; pods only in namespaces in which a group is held. Bursts of changes (a first list, a roll-out)
are collected and told once per loop turn.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any

from epp_worker.intents import IntentIndex
from epp_worker.pods import PodIndex
from fleet.authority import AuthorityIndex
from fleet.model import Endpoint, GroupKey, Pod, Pool, PoolRef, PoolReference
from fleet.model.rewrites import Intents
from fleet.sources.contract import Change, Kind, Source, Watch

log = logging.getLogger(__name__)

Spawn = Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]]


@dataclass(slots=True)
class _Namespace:
    """One namespace whose pods are watched, and for how many groups."""

    index: PodIndex = field(default_factory=PodIndex)
    watch: Watch | None = None
    listing: asyncio.Task[None] | None = None
    groups: int = 0

    def close(self) -> None:
        """End the watch, and the wait for its first list."""
        if self.watch is not None:
            self.watch.close()
        if self.listing is not None:
            self.listing.cancel()


class Catalogue:
    """What the source says, by route group.

    `changed` is called on the loop with the groups whose pools or endpoints may have changed.
    """

    def __init__(self, source: Source, spawn: Spawn) -> None:
        self._source = source
        self._spawn = spawn
        self._pools: dict[PoolRef, Pool] = {}
        self._groups: dict[GroupKey, tuple[Pool, ...]] = {}
        self._namespaces: dict[str, _Namespace] = {}
        self._dirty: set[GroupKey] = set()
        self._flushing = False
        self._pool_watch: Watch | None = None
        self._changed: Callable[[frozenset[GroupKey]], None] = lambda _: None
        self._regrouped = False
        self.authorities = AuthorityIndex(self._groups)
        self._intents = IntentIndex(source, self._on_intents)

    async def start(self, changed: Callable[[frozenset[GroupKey]], None]) -> None:
        """Watch the pools and what is said of them; returns when the first lists are here."""
        self._changed = changed
        self._pool_watch = self._source.watch(Kind.POOL, self._on_pool)
        await self._intents.start()
        await self._pool_watch.wait_synced()

    def pools_of(self, group: GroupKey) -> tuple[Pool, ...]:
        """The pools of `group` as of now, ordered by name."""
        return self._groups.get(group, ())

    def endpoints(self, pool: Pool) -> tuple[Endpoint, ...]:
        """The ready endpoints of `pool`; its namespace is one that is held."""
        namespace = self._namespaces.get(pool.ref.namespace)
        return namespace.index.endpoints(pool) if namespace is not None else ()

    def unready(self, ref: PoolRef) -> tuple[Pod, ...]:
        """The pods of a pool that are no endpoints now; its namespace is one that is held."""
        pool, namespace = self._pools.get(ref), self._namespaces.get(ref.namespace)
        return () if pool is None or namespace is None else namespace.index.unready(pool)

    def intents(self, pool: Pool) -> Intents:
        """What is said of requests to `pool`."""
        return self._intents.of(pool)

    def listed(self, namespace: str) -> bool:
        """Whether the first full list of the namespace's pods is here."""
        held = self._namespaces.get(namespace)
        return held is not None and held.watch is not None and held.watch.synced()

    def hold(self, namespace: str) -> None:
        """Watch the namespace's pods for one more group."""
        held = self._namespaces.get(namespace)
        if held is not None:
            held.groups += 1
            return
        held = self._namespaces[namespace] = _Namespace(groups=1)
        for pool in self._pools.values():
            if pool.ref.namespace == namespace:
                held.index.put_pool(pool)
        watch = self._source.watch(Kind.POD, self._on_pod, namespace=namespace)
        held.watch = watch
        held.listing = self._spawn(self._tell_listed(namespace, watch), f"pods of {namespace}")

    def release(self, namespace: str) -> None:
        """One group less; the last one ends the watch."""
        held = self._namespaces[namespace]
        held.groups -= 1
        if held.groups == 0:
            del self._namespaces[namespace]
            held.close()

    async def _tell_listed(self, namespace: str, watch: Watch) -> None:
        await watch.wait_synced()
        held = self._namespaces.get(namespace)
        if held is not None and held.watch is watch:
            self._touch(group for group in self._groups if group.namespace == namespace)

    def _on_intents(self, reference: PoolReference) -> None:
        pool = self._pools.get(PoolRef(reference.namespace, reference.name))
        if pool is not None and pool.reference == reference:
            self._touch(pool.groups)

    def _on_pool(self, change: Change) -> None:
        old, new = change.old, change.new
        ref = PoolRef(change.key.namespace, change.key.name)
        known = self._pools.pop(ref, None)
        self._regroup(known, None)
        held = self._namespaces.get(ref.namespace)
        if isinstance(new, Pool):
            self._pools[ref] = new
            self._regroup(None, new)
            if held is not None:
                held.index.put_pool(new)
        elif held is not None:
            held.index.drop_pool(ref)
        if known is not None:
            self._intents.forget(known)
        pools = (pool for pool in (known, old, new) if isinstance(pool, Pool))
        self._touch(group for pool in pools for group in pool.groups)

    def _regroup(self, old: Pool | None, new: Pool | None) -> None:
        """Take `old` out of its groups, put `new` into its own."""
        for pool, gain in ((old, False), (new, True)):
            if pool is None:
                continue
            for group in pool.groups:
                others = [one for one in self._groups.get(group, ()) if one.ref != pool.ref]
                members = sorted([*others, pool] if gain else others, key=lambda one: one.ref)
                if members:
                    self._groups[group] = tuple(members)
                else:
                    self._groups.pop(group, None)
        self._regrouped = True

    def _on_pod(self, change: Change) -> None:
        held = self._namespaces.get(change.key.namespace)
        if held is None:
            return
        old = change.old if isinstance(change.old, Pod) else None
        new = change.new if isinstance(change.new, Pod) else None
        touched = (self._pools[ref] for ref in held.index.change(old, new))
        self._touch(group for pool in touched for group in pool.groups)

    def _touch(self, groups: Iterable[GroupKey]) -> None:
        self._dirty.update(groups)
        if self._dirty and not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        dirty = frozenset(self._dirty)
        self._dirty.clear()
        if self._regrouped:
            self._regrouped = False
            self.authorities = AuthorityIndex(self._groups)
        self._changed(dirty)

    def close(self) -> None:
        """End every watch."""
        for held in self._namespaces.values():
            held.close()
        self._namespaces.clear()
        self._intents.close()
        if self._pool_watch is not None:
            self._pool_watch.close()
