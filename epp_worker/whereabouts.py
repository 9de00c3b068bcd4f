"""Who owns groups that are not held here, as far as streams came for them.

What a share once said, and what the leader or a peer answered. Bounded: the longest unused goes.
"""

from collections.abc import Iterable

from fleet.control.messages import MAX_ASKED, OwnerOf
from fleet.model import GroupKey

MAX_REMEMBERED = 16_384
"""Groups whose owner is remembered."""


class Whereabouts:
    """Owners of groups by id of the worker, and the groups that are still to be asked for."""

    def __init__(self) -> None:
        self._owners: dict[GroupKey, str] = {}
        self._wanted: dict[GroupKey, None] = {}

    def owner_of(self, group: GroupKey) -> str | None:
        """Who is thought to own the group."""
        owner = self._owners.pop(group, None)
        if owner is not None:
            self._owners[group] = owner
        return owner

    def want(self, group: GroupKey) -> bool:
        """Have the leader asked for this group; False if it is asked for already, or too many."""
        if group in self._wanted or len(self._wanted) >= MAX_ASKED:
            return False
        self._wanted[group] = None
        return True

    def asking(self) -> tuple[GroupKey, ...]:
        """Take what is to be asked for."""
        wanted, self._wanted = tuple(self._wanted), {}
        return wanted

    def learn(self, owners: Iterable[OwnerOf]) -> None:
        """Note who owns what; a group that nobody owns is forgotten."""
        for each in owners:
            self._owners.pop(each.group, None)
            if each.owner is not None:
                self._owners[each.group] = each.owner
        while len(self._owners) > MAX_REMEMBERED:
            del self._owners[next(iter(self._owners))]
