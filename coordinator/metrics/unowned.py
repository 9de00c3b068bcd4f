"""For how long groups had no owner, by the map that the leader has published. Pure."""

from collections.abc import Iterable

from fleet.model import ShardMap


class UnownedTime:
    """Group-seconds without an owner while this process led.

    Attributes:
        total: group-seconds so far.
        groups: without an owner at the last look.
    """

    def __init__(self) -> None:
        self.total = 0.0
        self.groups = 0
        self._map: ShardMap | None = None
        self._looked: float | None = None

    def look(self, shard_map: ShardMap | None, now: float) -> None:
        """The map as it is at monotonic `now`; what passed since the last look was under the map of
        that look."""
        if self._looked is not None:
            self.total += self.groups * max(0.0, now - self._looked)
        self._looked = now
        if shard_map is not self._map:
            self._map = shard_map
            self.groups = sum(1 for _ in unowned_since(shard_map))

    def rest(self) -> None:
        """The term is over: until the next look nobody counts."""
        self._looked = self._map = None
        self.groups = 0


def unowned_since(shard_map: ShardMap | None) -> Iterable[float]:
    """Since when each group without an owner has had none, in wall-clock seconds."""
    placements = () if shard_map is None else shard_map.placements.values()
    return (placement.since for placement in placements if not placement.owners)


def longest_unowned(shard_map: ShardMap | None, wall: float) -> float:
    """For how long the group that has lacked an owner longest has had none; 0 if all have one."""
    return max((max(0.0, wall - since) for since in unowned_since(shard_map)), default=0.0)
