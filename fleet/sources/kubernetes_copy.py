"""The local copy of what an API server holds: readings in two ranks, and who listens to them.

One object may be read twice: an InferencePool, an objective or a rewrite under two API groups, a
Pod by the watch of its namespace and by that of the cluster. The reading of rank 0 is what
everybody sees; that of rank 1 where there is no other.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from fleet.sources.contract import Change, Kind, Listener, Object, ObjectKey
from fleet.sources.local_copy import Subscription

RANKS = 2


class Reading(NamedTuple):
    """One object as one watch has it; None = it does not."""

    key: ObjectKey
    value: Object | None


class RankedCopy:
    """See the module; lives on the event loop."""

    def __init__(self) -> None:
        self._readings: dict[Kind, tuple[dict[ObjectKey, Object], ...]] = {
            kind: tuple({} for _ in range(RANKS)) for kind in Kind
        }
        self._seen: dict[tuple[Kind, str], dict[ObjectKey, Object]] = {}
        self._snapshots: dict[tuple[Kind, str | None], Mapping[ObjectKey, Object]] = {}
        self._subscriptions: dict[tuple[Kind, str | None], list[Subscription]] = {}

    def objects(self, kind: Kind, namespace: str | None) -> Mapping[ObjectKey, Object]:
        """Those of `kind`, of one namespace or all; the mapping does not change afterwards."""
        known = self._snapshots.get((kind, namespace))
        if known is None:
            if namespace is not None:
                known = dict(self._seen.get((kind, namespace), {}))
            else:
                known = {
                    key: value
                    for (one, _), objects in self._seen.items()
                    if one is kind
                    for key, value in objects.items()
                }
            self._snapshots[kind, namespace] = known
        return known

    def subscribe(
        self,
        kind: Kind,
        listener: Listener,
        namespace: str | None,
        *,
        synced: Callable[[], bool],
        on_close: Callable[[], None],
    ) -> Subscription:
        """Register a listener; needs a running loop.

        Args:
            synced: whether the first list is here, when the listener has been told all there is.
            on_close: called when the subscription is closed.
        """

        def closed() -> None:
            listeners = self._subscriptions[kind, namespace]
            listeners.remove(subscription)
            if not listeners:
                del self._subscriptions[kind, namespace]
            on_close()

        def list_all() -> None:
            subscription.listed = True
            for key, value in self.objects(kind, namespace).items():
                subscription.tell(Change(kind, key, None, value))
            if synced():
                subscription.mark_synced()

        subscription = Subscription(kind, listener, namespace, closed)
        self._subscriptions.setdefault((kind, namespace), []).append(subscription)
        asyncio.get_running_loop().call_soon(list_all)
        return subscription

    def mark_synced(self, kind: Kind, synced: Callable[[str | None], bool]) -> None:
        """Some list has come: tell those for whose namespace it was the last one missing."""
        for (one, namespace), subscriptions in self._subscriptions.items():
            if one is kind and synced(namespace):
                for each in subscriptions:
                    if each.listed:
                        each.mark_synced()

    def read(self, kind: Kind, rank: int, readings: Iterable[Reading]) -> None:
        """Take what one watch has now, and tell what that changes of what is seen."""
        for key, value in readings:
            ranks = self._readings[kind]
            old = _first(ranks, key)
            if value is None:
                ranks[rank].pop(key, None)
            else:
                ranks[rank][key] = value
            new = _first(ranks, key)
            if new != old:
                self._change(Change(kind, key, old, new))

    def close(self) -> None:
        """Stop calling anybody."""
        for subscriptions in list(self._subscriptions.values()):
            for each in list(subscriptions):
                each.close()

    def _change(self, change: Change) -> None:
        kind, key, _, new = change
        where = (kind, key.namespace)
        if new is None:
            self._seen[where].pop(key)
            if not self._seen[where]:
                del self._seen[where]
        else:
            self._seen.setdefault(where, {})[key] = new
        self._snapshots.pop(where, None)
        self._snapshots.pop((kind, None), None)
        for namespace in (key.namespace, None):
            for subscription in list(self._subscriptions.get((kind, namespace), ())):
                if subscription.listed:
                    subscription.tell(change)


def _first(ranks: tuple[dict[ObjectKey, Object], ...], key: ObjectKey) -> Object | None:
    return next((rank[key] for rank in ranks if key in rank), None)
