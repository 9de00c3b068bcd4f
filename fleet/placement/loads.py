"""How busy each group is, as its owners say. Pure; monotonic seconds are handed in."""

from collections.abc import Container

from fleet.model import GroupKey

LEARNING_SECONDS = 30.0
"""A worker smooths a group's rate over 10 s from the moment that it owns it: after three of these
it has seen 95 % of it."""


class GroupLoads:
    """Streams per second of each group.

    A new owner begins to count at zero. Taken at its word, each group that moves would weigh
    nothing for half a minute: its new worker would look empty, be given more, and have to give it
    back. So until it has counted for `LEARNING_SECONDS`, the higher of its own and its
    predecessor's last word counts.

    Attributes:
        rates: by group; only of groups that an owner has spoken of.
    """

    def __init__(self) -> None:
        self.rates: dict[GroupKey, float] = {}
        self._owners: dict[GroupKey, tuple[str, float | None]] = {}

    def reported(self, group: GroupKey, worker: str, rate: float, now: float) -> None:
        """`worker`, which owns `group`, counts `rate`."""
        known = self._owners.get(group)
        if known is None:
            self._owners[group] = (worker, None)  # nothing to be compared with: believed at once
        elif known[0] != worker:
            self._owners[group] = (worker, now)
        _, since = self._owners[group]
        if since is not None and now - since < LEARNING_SECONDS:
            rate = max(rate, self.rates.get(group, 0.0))
        self.rates[group] = rate

    def keep(self, groups: Container[GroupKey]) -> None:
        """Forget all but these."""
        for group in [group for group in self._owners if group not in groups]:
            del self._owners[group]
            self.rates.pop(group, None)
