"""What we know of our slices: fed by a list and watch, and by the answers to our own writes.

Both come in any order, so what is known never goes back: an older resourceVersion of the same
object is passed over (they are decimal numbers that grow, as Kubernetes promises since 1.35), and
so is what is heard of an object after we deleted it.
"""

from collections.abc import Callable, Iterable, Sequence

from coordinator.routes.contract import Route
from coordinator.routes.slice_format import Slice
from coordinator.routes.slice_plan import said
from fleet.kube.listwatch_cache import Delta, Key
from fleet.model import GroupKey

_MAX_DELETED = 16_384
"""Uids of slices that we deleted, the latest: a watch is never that far behind."""


class SliceCopy:
    """The slices of one fleet by group."""

    def __init__(self) -> None:
        self._groups: dict[GroupKey, dict[str, Slice]] = {}
        self._of_key: dict[Key, Slice] = {}
        self._deleted: dict[str, None] = {}
        self._unconfirmed: dict[Key, float] = {}
        self._changed: set[GroupKey] = set()

    def of(self, group: GroupKey) -> tuple[Slice, ...]:
        """The group's slices, by name."""
        return tuple(each for _, each in sorted(self._groups.get(group, {}).items()))

    def groups(self) -> Iterable[GroupKey]:
        """All groups that have slices; a view that changes."""
        return self._groups.keys()

    def route(self, group: GroupKey) -> tuple[Route, str] | None:
        """What the group's slices say, and their port name; None if they say nothing."""
        route = said(self.of(group))
        names = {each.port_name for each in self._groups.get(group, {}).values()}
        return None if route is None or len(names) != 1 else (route, names.pop())

    def take_changed(self) -> set[GroupKey]:
        """Groups whose slices changed since this was last asked."""
        changed, self._changed = self._changed, set()
        return changed

    def told(self, deltas: Sequence[Delta[Slice | None]]) -> None:
        """The watch heard of these."""
        for key, old, new in deltas:
            self._unconfirmed.pop(key, None)
            known = self._of_key.get(key)
            if new is not None:
                self._put(key, new)
            elif known is not None and old is not None and known.uid == old.uid:
                self._forget(key)

    def seen(self, key: Key, new: Slice | None, now: float) -> None:
        """An answer of the API server showed this: to a write, or to a look at one object.

        Args:
            new: None = it is not there, or not ours.
        """
        known = self._of_key.get(key)
        if new is not None:
            self._put(key, new)
            self._unconfirmed[key] = now
        elif known is not None:
            self._forget(key)
            self._deleted[known.uid] = None
            if len(self._deleted) > _MAX_DELETED:
                del self._deleted[next(iter(self._deleted))]

    def listed(self, named: Callable[[Key], bool], began: float) -> None:
        """A list that began then named these: what we saw before and is not among them is gone."""
        for key, at in list(self._unconfirmed.items()):
            if at < began:
                del self._unconfirmed[key]
                if not named(key):
                    self._forget(key)

    def _put(self, key: Key, new: Slice) -> None:
        known = self._of_key.get(key)
        if known is not None and known.uid == new.uid and _older(new, known):
            return
        if new.uid in self._deleted:
            return
        self._forget(key)
        self._of_key[key] = new
        self._groups.setdefault(new.group, {})[new.name] = new
        self._changed.add(new.group)

    def _forget(self, key: Key) -> None:
        known = self._of_key.pop(key, None)
        self._unconfirmed.pop(key, None)
        if known is None:
            return
        slices = self._groups[known.group]
        del slices[known.name]
        self._changed.add(known.group)
        if not slices:
            del self._groups[known.group]


def _older(new: Slice, known: Slice) -> bool:
    versions = (new.resource_version, known.resource_version)
    if not all(each.isascii() and each.isdigit() for each in versions):
        return False
    return int(new.resource_version) < int(known.resource_version)
