"""The route groups that there are: those through which a claimed pool is served; and their pins."""

from collections.abc import Callable, Mapping

from coordinator.claims import Claims, Touched
from fleet.model import GroupKey, Pool, PoolId, PoolRef
from fleet.model.pins import Pin, agreed, pin_of

Groups = Mapping[GroupKey, tuple[PoolId, ...]]


class PoolGroups:
    """All claimed pools as route groups, ordered; the same object until they change."""

    def __init__(self, claims: Claims) -> None:
        self._claims = claims
        self._groups: Groups = {}
        self._of_pool: dict[PoolRef, tuple[PoolId, tuple[GroupKey, ...], Pin | None]] = {}
        self._members: dict[GroupKey, dict[PoolRef, PoolId]] = {}
        self._changed: set[GroupKey] = set()
        self._pins: Mapping[GroupKey, Pin] = {}
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
        if self._changed:
            found = dict(self._groups)
            self._follow_pins()
            for group in self._changed:
                members = self._members.get(group)
                if members is None:
                    found.pop(group, None)
                else:
                    found[group] = tuple(sorted(members.values()))
            self._changed.clear()
            # Nearly in order already: 10,000 groups take 10 ms, a rebuild from pools takes 70.
            new = len(found.keys() - self._groups.keys())
            self._groups = {group: found[group] for group in sorted(found)} if new else found
        return self._groups

    def pins(self) -> Mapping[GroupKey, Pin]:
        """Groups all of whose pools say the same pin; the same object until one changes."""
        self.groups()
        return self._pins

    def objects(self, group: GroupKey) -> tuple[Pool | None, ...]:
        """The pools of a group as they are written now."""
        return tuple(self._claims.pool(pool.ref) for pool in self.groups().get(group, ()))

    def _follow_pins(self) -> None:
        pins = dict(self._pins)
        for group in self._changed:
            members = self._members.get(group, {})
            pin = agreed([self._of_pool[ref][2] for ref in members]).pin
            if pin is None:
                pins.pop(group, None)
            else:
                pins[group] = pin
        if pins != self._pins:
            self._pins = pins

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` after each change; returns what ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _decided(self, touched: Touched) -> None:
        changes = sum(self._follow(ref) for ref in touched)
        if changes:
            for listener in tuple(self._listeners):
                listener()

    def _follow(self, ref: PoolRef) -> bool:
        """Take over one decision; whether groups change by it."""
        pool, decision = self._claims.pool(ref), self._claims.decisions().get(ref)
        now = None
        if pool is not None and decision is not None and decision.served:
            served = tuple(each.group for each in decision.served)
            now = (pool.id, served, pin_of(pool.annotations).pin)
        before = self._of_pool.get(ref)
        if now == before:
            return False
        if before is not None:
            self._leave(ref, before[1])
            del self._of_pool[ref]
        if now is not None:
            self._of_pool[ref] = now
            for group in now[1]:
                self._members.setdefault(group, {})[ref] = now[0]
                self._changed.add(group)
        return True

    def _leave(self, ref: PoolRef, groups: tuple[GroupKey, ...]) -> None:
        for group in groups:
            self._changed.add(group)
            members = self._members[group]
            del members[ref]
            if not members:
                del self._members[group]
