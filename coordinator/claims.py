"""The decisions about all pools, kept fresh as pools, Services and foreign slices change.

One change decides only the pools anew that it concerns: 10,000 pools are decided in 0.1 s,
one in 40 us. Changes of one turn of the loop are told together, on the next turn.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol

from coordinator.ownership import (
    Claimed,
    Decision,
    Ownership,
    ServiceKey,
    SliceWriter,
    World,
)
from fleet.model import Pool, PoolRef, Service
from fleet.model.pins import PIN
from fleet.sources.contract import Change, Kind, Source

Touched = frozenset[PoolRef]
Listener = Callable[[Touched], None]


class ForeignSlices(Protocol):
    """Who else has EndpointSlices in which Service."""

    @property
    def writers(self) -> Mapping[ServiceKey, frozenset[SliceWriter]]:
        """By Service, as of now."""
        ...

    def on_change(self, listener: Callable[[ServiceKey], None]) -> None:
        """Call `listener` on the loop after each change."""
        ...

    def synced(self) -> bool:
        """Whether the first full list is known."""
        ...

    async def wait_synced(self) -> None:
        """Return once `synced()`."""
        ...


class Claims:
    """What is decided about every pool of the source.

    Args:
        slices: None = Services are nobody's concern, as with a folder of manifests: every pool is
            ours and none of its Services is looked at.
    """

    def __init__(
        self, source: Source, ownership: Ownership, slices: ForeignSlices | None = None
    ) -> None:
        self.ownership = ownership
        self._slices = slices
        self._decisions: dict[PoolRef, Decision] = {}
        self._pools: dict[PoolRef, Pool] = {}
        self._services: dict[ServiceKey, Service] = {}
        self._naming: dict[ServiceKey, set[PoolRef]] = {}
        self._dirty: set[PoolRef] = set()
        self._untold: set[PoolRef] = set()
        self._flushing = False
        self._listeners: list[Listener] = []
        self._watches = [source.watch(Kind.POOL, self._on_pool)]
        if slices is not None:
            self._watches.append(source.watch(Kind.SERVICE, self._on_service))
            slices.on_change(self._touch_service)

    def synced(self) -> bool:
        """Whether every decision rests on full lists."""
        listed = all(watch.synced() for watch in self._watches)
        return listed and (self._slices is None or self._slices.synced())

    def unlisted(self) -> str:
        """What has no full list yet, for people; "" once `synced()`."""
        kinds = ("pools", "Services")
        missing = [
            kind for kind, watch in zip(kinds, self._watches, strict=False) if not watch.synced()
        ]
        if self._slices is not None and not self._slices.synced():
            missing.append("EndpointSlices")
        return ", ".join(missing)

    async def wait_synced(self) -> None:
        """Return once `synced()`."""
        for watch in self._watches:
            await watch.wait_synced()
        if self._slices is not None:
            await self._slices.wait_synced()

    def on_change(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with the pools that were decided anew, even if to the same end; returns
        what ends that."""
        self._listeners.append(listener)

        def forget() -> None:
            with contextlib.suppress(ValueError):
                self._listeners.remove(listener)

        return forget

    @property
    def checks_services(self) -> bool:
        """Whether Services matter at all."""
        return self._slices is not None

    def decisions(self) -> Mapping[PoolRef, Decision]:
        """What is decided about each pool there is."""
        self._decide()
        return self._decisions

    def pool(self, ref: PoolRef) -> Pool | None:
        """The pool of this name, if there is one."""
        self._decide()
        return self._pools.get(ref)

    def naming(self, key: ServiceKey) -> tuple[PoolRef, ...]:
        """The pools with a route group of this Service, by name."""
        return tuple(sorted(self._naming.get(key, ())))

    def service(self, key: ServiceKey) -> Service | None:
        """The Service as it stands; None also where Services do not matter."""
        return self._services.get(key)

    def tally(self) -> tuple[int, Counter[str]]:
        """How many pools are claimed and served, and how many refusals there are by reason."""
        decisions = self.decisions().values()
        reasons = Counter(refusal.reason.value for each in decisions for refusal in each.refusals)
        return sum(isinstance(each, Claimed) for each in decisions), reasons

    # -- what changes ---------------------------------------------------------------------------

    def _on_pool(self, change: Change) -> None:
        ref = PoolRef(*change.key)
        before = self._pools.pop(ref, None)
        keys: set[ServiceKey] = set()
        if before is not None:
            for key in _services_of(before):
                keys.add(key)
                self._forget_naming(key, ref)
        if isinstance(change.new, Pool):
            self._pools[ref] = change.new
            for key in _services_of(change.new):
                keys.add(key)
                self._naming.setdefault(key, set()).add(ref)
        self._touch([ref])
        pinned = _pin(before) != _pin(change.new)
        for key in keys:
            service = self.service(key)
            foreign = service is not None and self.ownership.is_another_fleets(service)
            if foreign or pinned:
                # All pools that name it decide whether it is taken over, and whether pins agree.
                self._touch_service(key)

    def _forget_naming(self, key: ServiceKey, ref: PoolRef) -> None:
        refs = self._naming.get(key)
        if refs is not None:
            refs.discard(ref)
            if not refs:
                del self._naming[key]

    def _on_service(self, change: Change) -> None:
        key = ServiceKey(*change.key)
        if isinstance(change.new, Service):
            self._services[key] = change.new
        else:
            self._services.pop(key, None)
        self._touch_service(key)

    def _touch_service(self, key: ServiceKey) -> None:
        self._touch(self._naming.get(key, ()))

    def _touch(self, refs: Collection[PoolRef]) -> None:
        if not refs:
            return
        self._dirty.update(refs)
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._flushing = False
        self.flush()

    def flush(self) -> None:
        """Tell listeners now of what has changed in this turn of the loop."""
        self._decide()
        if not self._untold:
            return
        touched = frozenset(self._untold)
        self._untold.clear()
        for listener in tuple(self._listeners):
            listener(touched)

    def _decide(self) -> None:
        """Decide what is dirty; whoever reads in between finds it decided."""
        if not self._dirty:
            return
        world = World(
            None if self._slices is None else self._services.get,
            {} if self._slices is None else self._slices.writers,
            self._pools_naming,
        )
        for ref in self._dirty:
            pool = self._pools.get(ref)
            if pool is None:
                self._decisions.pop(ref, None)
            else:
                self._decisions[ref] = self.ownership.decide(pool, world)
        self._untold |= self._dirty
        self._dirty.clear()

    def _pools_naming(self, key: ServiceKey) -> Iterable[Pool]:
        return (self._pools[ref] for ref in self._naming.get(key, ()))


def _services_of(pool: Pool) -> set[ServiceKey]:
    return {ServiceKey(group.namespace, group.service) for group in pool.groups}


def _pin(pool: object) -> str | None:
    return pool.annotations.get(PIN) if isinstance(pool, Pool) else None
