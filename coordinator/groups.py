"""The route groups that there are, from the source's pools."""

from collections.abc import Callable, Mapping

from fleet.model import GroupKey, Pool, PoolId, group_pools
from fleet.sources.contract import Change, Kind, Source

Groups = Mapping[GroupKey, tuple[PoolId, ...]]


class PoolGroups:
    """All pools of the source as route groups, ordered; the same object until pools change."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._groups: Groups | None = None
        self._listeners: list[Callable[[], None]] = []
        self._watch = source.watch(Kind.POOL, self._changed)

    def synced(self) -> bool:
        """Whether the first full list of pools is known."""
        return self._watch.synced()

    async def wait_synced(self) -> None:
        """Return once `synced()`."""
        await self._watch.wait_synced()

    def groups(self) -> Groups:
        """Every route group with its pools."""
        if self._groups is None:
            pools = [
                pool for pool in self._source.objects(Kind.POOL).values() if isinstance(pool, Pool)
            ]
            by_group = sorted(group_pools(pools).items())
            self._groups = {
                group: tuple(pool.id for pool in members) for group, members in by_group
            }
        return self._groups

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` after each change; returns what ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _changed(self, change: Change) -> None:
        old, new = change.old, change.new
        if isinstance(old, Pool) and isinstance(new, Pool):
            same = old.group == new.group and old.id == new.id
            if same:
                return
        self._groups = None
        for listener in tuple(self._listeners):
            listener()
