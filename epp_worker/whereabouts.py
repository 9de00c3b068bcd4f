"""Who owns groups that are not held here, as far as streams came for them.

What a share once said, and what the leader or a peer answered. Bounded: the longest unused goes.
"""

from collections.abc import Callable, Iterable

from epp_worker.forwarding.rules import ANSWER_SECONDS, FRESH_SECONDS, Known
from fleet.control.messages import MAX_ASKED, OwnerOf
from fleet.model import GroupKey

MAX_REMEMBERED = 16_384
"""Groups whose owner is remembered."""


class Whereabouts:
    """Owners of groups by id of the worker, and the groups that are still to be asked for.

    Args:
        now: seconds of a monotonic clock.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._owners: dict[GroupKey, tuple[str | None, float]] = {}
        self._asked: dict[GroupKey, float] = {}
        self._wanted: dict[GroupKey, None] = {}
        self._learned: list[Callable[[], None]] = []

    def on_learned(self, listener: Callable[[], None]) -> None:
        """Call `listener` on the loop after every answer."""
        self._learned.append(listener)

    def known(self, group: GroupKey) -> Known | None:
        """Who is thought to own the group, and since when; None if nothing was ever said."""
        said = self._owners.pop(group, None)
        if said is None:
            return None
        self._owners[group] = said
        return Known(said[0], self._now() - said[1])

    def asked(self, group: GroupKey) -> float | None:
        """Seconds since the leader was asked about the group; None if no answer is due."""
        at = self._asked.get(group)
        return None if at is None else self._now() - at

    def want(self, group: GroupKey) -> bool:
        """Have the leader asked for this group; False if it is asked for already, or too many."""
        asked = self.asked(group)
        if group in self._wanted or (asked is not None and asked < ANSWER_SECONDS):
            return False
        if len(self._wanted) >= MAX_ASKED:
            return False
        self._wanted[group] = None
        return True

    def asking(self) -> tuple[GroupKey, ...]:
        """Take what is to be asked for."""
        wanted, self._wanted = tuple(self._wanted), {}
        for group in wanted:
            self._asked.pop(group, None)
            self._asked[group] = self._now()
        while len(self._asked) > MAX_REMEMBERED:
            del self._asked[next(iter(self._asked))]
        return wanted

    def learn(self, owners: Iterable[OwnerOf]) -> None:
        """Note who owns what, or that nobody does."""
        now = self._now()
        for each in owners:
            self._asked.pop(each.group, None)
            self._owners.pop(each.group, None)
            self._owners[each.group] = (each.owner, now)
        while len(self._owners) > MAX_REMEMBERED:
            del self._owners[next(iter(self._owners))]
        for listener in self._learned:
            listener()

    def doubt(self, group: GroupKey) -> None:
        """Whoever is thought to own the group did not answer: ask soon."""
        said = self._owners.get(group)
        if said is not None:
            self._owners[group] = (said[0], min(said[1], self._now() - FRESH_SECONDS))

    def remember(self, group: GroupKey, owner: str) -> None:
        """A group goes from here, and was said to belong to another worker."""
        self._owners.pop(group, None)
        self._owners[group] = (owner, self._now())
