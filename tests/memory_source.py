"""A source whose objects a test puts and removes; what it says is listed at once."""

from collections.abc import Mapping

from fleet.model import Objective, Pod, Pool, Rewrite
from fleet.sources.contract import Change, Kind, Listener, Object, ObjectKey, Problem, Watch
from fleet.sources.local_copy import LocalCopy


def _kind_and_key(value: Object) -> tuple[Kind, ObjectKey]:
    if isinstance(value, Pool):
        return Kind.POOL, ObjectKey(*value.ref)
    if isinstance(value, Objective | Rewrite):
        kind = Kind.OBJECTIVE if isinstance(value, Objective) else Kind.REWRITE
        return kind, ObjectKey(*value.ref)
    kind = Kind.POD if isinstance(value, Pod) else Kind.SERVICE
    return kind, ObjectKey(value.namespace, value.name)


class MemorySource:
    """`fleet.sources.contract.Source`.

    Attributes:
        listed: False = nothing is synced yet.
        skipped: what `problems` answers.
    """

    def __init__(self, *objects: Object, listed: bool = True) -> None:
        self.listed = listed
        self.skipped: tuple[Problem, ...] = ()
        self._copy = LocalCopy()
        self._objects: dict[Kind, dict[ObjectKey, Object]] = {kind: {} for kind in Kind}
        self.put(*objects)

    def put(self, *objects: Object) -> None:
        """Create or replace; listeners are called before this returns."""
        changes = []
        for value in objects:
            kind, key = _kind_and_key(value)
            changes.append(Change(kind, key, self._objects[kind].get(key), value))
            self._objects[kind] = {**self._objects[kind], key: value}
        self._copy.replace(dict(self._objects), changes, complete=self.listed)

    def remove(self, *objects: Object) -> None:
        """Delete."""
        changes = []
        for value in objects:
            kind, key = _kind_and_key(value)
            changes.append(Change(kind, key, self._objects[kind].get(key), None))
            self._objects[kind] = {k: v for k, v in self._objects[kind].items() if k != key}
        self._copy.replace(dict(self._objects), changes, complete=self.listed)

    def list_all(self) -> None:
        """The first full list is here."""
        self.listed = True
        self.put()

    async def start(self) -> None:
        """See `Source.start`."""

    def watch(self, kind: Kind, listener: Listener, *, namespace: str | None = None) -> Watch:
        """See `Source.watch`."""
        return self._copy.subscribe(kind, listener, namespace)

    def objects(self, kind: Kind, *, namespace: str | None = None) -> Mapping[ObjectKey, Object]:
        """See `Source.objects`."""
        return self._copy.objects(kind, namespace)

    def problems(self) -> tuple[Problem, ...]:
        """See `Source.problems`."""
        return self.skipped

    def age(self) -> float:
        """See `Source.age`."""
        return 0.0

    async def close(self) -> None:
        """See `Source.close`."""
        self._copy.close()
