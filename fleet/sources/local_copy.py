"""The local copy of a source and those who listen to it; lives on the event loop."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from fleet.sources.contract import Change, Kind, Listener, Object, ObjectKey

log = logging.getLogger(__name__)

_NOTHING: Mapping[ObjectKey, Object] = MappingProxyType({})


class Subscription:
    """One listener's `Watch`. Its first list is delivered on the loop's next turn.

    Args:
        on_close: called once, when it is closed.
    """

    def __init__(
        self,
        kind: Kind,
        listener: Listener,
        namespace: str | None,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        self.kind = kind
        self.listed = False
        self.closed = False
        self._namespace = namespace
        self._listener = listener
        self._on_close = on_close
        self._synced = asyncio.Event()

    def synced(self) -> bool:
        """See `Watch.synced`."""
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        """See `Watch.wait_synced`."""
        await self._synced.wait()

    def close(self) -> None:
        """See `Watch.close`."""
        if not self.closed:
            self.closed = True
            self._on_close()

    def mark_synced(self) -> None:
        """The first full list has been delivered."""
        self._synced.set()

    def tell(self, change: Change) -> None:
        """Call the listener if the change concerns it. One that raises harms no other."""
        if self.closed or change.kind is not self.kind:
            return
        if self._namespace is not None and change.key.namespace != self._namespace:
            return
        try:
            self._listener(change)
        except Exception:
            log.exception(
                "source listener failed",
                extra={"kind": str(change.kind), "object": "/".join(change.key)},
            )


class LocalCopy:
    """Objects by kind, replaced as a whole; tells subscriptions of each change afterwards."""

    def __init__(self) -> None:
        self._objects: Mapping[Kind, Mapping[ObjectKey, Object]] = {kind: {} for kind in Kind}
        self._by_namespace: dict[Kind, dict[str, dict[ObjectKey, Object]]] = {}
        self._subscriptions: list[Subscription] = []
        self._complete = False

    def objects(self, kind: Kind, namespace: str | None) -> Mapping[ObjectKey, Object]:
        """Those of `kind`, of one namespace or all; the mapping does not change afterwards."""
        if namespace is None:
            return self._objects[kind]
        index = self._by_namespace.get(kind)
        if index is None:
            index = self._by_namespace[kind] = {}
            for key, value in self._objects[kind].items():
                index.setdefault(key.namespace, {})[key] = value
        return index.get(namespace, _NOTHING)

    def subscribe(self, kind: Kind, listener: Listener, namespace: str | None) -> Subscription:
        """Register a listener; needs a running loop."""
        subscription = Subscription(kind, listener, namespace)
        self._subscriptions.append(subscription)
        asyncio.get_running_loop().call_soon(self._list, subscription, namespace)
        return subscription

    def _list(self, subscription: Subscription, namespace: str | None) -> None:
        subscription.listed = True
        for key, value in self.objects(subscription.kind, namespace).items():
            subscription.tell(Change(subscription.kind, key, None, value))
        if self._complete:
            subscription.mark_synced()

    def replace(
        self,
        objects: Mapping[Kind, Mapping[ObjectKey, Object]],
        changes: Iterable[Change],
        *,
        complete: bool,
    ) -> None:
        """Put a new state in place, then tell what changed.

        Args:
            complete: everything could be read; from then on subscriptions are synced.
        """
        if objects is not self._objects:
            self._objects = objects
            self._by_namespace = {}
        self._complete = self._complete or complete
        self._subscriptions = [each for each in self._subscriptions if not each.closed]
        listeners = [each for each in self._subscriptions if each.listed]
        for change in changes:
            for subscription in listeners:
                subscription.tell(change)
        if self._complete:
            for subscription in listeners:
                subscription.mark_synced()

    def close(self) -> None:
        """Stop calling anybody."""
        for subscription in self._subscriptions:
            subscription.close()
