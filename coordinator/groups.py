"""The route groups that there are: those through which a claimed pool is served."""

from collections.abc import Callable, Mapping

from coordinator.claims import Claims, Touched
from fleet.model import GroupKey, PoolId, PoolRef

Groups = Mapping[GroupKey, tuple[PoolId, ...]]


class PoolGroups:
    """All claimed pools as route groups, ordered; the same object until they change."""

    def __init__(self, claims: Claims) -> None:
        self._claims = claims
        self._groups: Groups | None = None
        self._members: dict[PoolRef, tuple[PoolId, tuple[GroupKey, ...]]] = {}
        self._listeners: list[Callable[[], None]] = []
        claims.on_change(self._decided)

    def synced(self) -> bool:
        """Whether everything that groups follow from is known."""
        return self._claims.synced()

    async def wait_synced(self) -> None:
        """Return once `synced()`."""
        await self._claims.wait_synced()

    def groups(self) -> Groups:
        """Every route group with its pools."""
        self._claims.flush()  # whoever has seen `synced` must see what was listed
        if self._groups is None:
            members: dict[GroupKey, list[PoolId]] = {}
            for pool, groups in self._members.values():
                for group in groups:
                    members.setdefault(group, []).append(pool)
            self._groups = {group: tuple(sorted(members[group])) for group in sorted(members)}
        return self._groups

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` after each change; returns what ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _decided(self, touched: Touched) -> None:
        # Not a list: every pool must be followed, whatever the others did.
        if sum([self._follow(ref) for ref in touched]) == 0:
            return
        self._groups = None
        for listener in tuple(self._listeners):
            listener()

    def _follow(self, ref: PoolRef) -> bool:
        """Take over one decision; whether groups change by it."""
        before = self._members.pop(ref, None)
        pool, decision = self._claims.pool(ref), self._claims.decisions().get(ref)
        if pool is None or decision is None or not decision.served:
            return before is not None
        now = (pool.id, tuple(each.group for each in decision.served))
        self._members[ref] = now
        return now != before
