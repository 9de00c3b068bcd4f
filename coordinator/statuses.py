"""Workers as people see them: the verdict, and how much of the map each one holds."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from coordinator.verdicts import Judged
from fleet.model import MemberStatus, ShardMap


class Holdings:
    """How many groups each worker owns and stands by for; counted once per map."""

    def __init__(self) -> None:
        self._map: ShardMap | None = None
        self._owned: Counter[str] = Counter()
        self._standby: Counter[str] = Counter()

    def of(self, shard_map: ShardMap | None) -> tuple[Mapping[str, int], Mapping[str, int]]:
        """Owned and stood-by groups by worker id."""
        if shard_map is not self._map:
            self._map = shard_map
            placements = () if shard_map is None else shard_map.placements.values()
            self._owned = Counter(owner for p in placements for owner in p.owners)
            self._standby = Counter(p.standby for p in placements if p.standby is not None)
        return self._owned, self._standby


def statuses(
    judged: Iterable[Judged], owned: Mapping[str, int], standby: Mapping[str, int]
) -> tuple[MemberStatus, ...]:
    """One status per worker, ordered by id; what each holds in detail is left out."""
    return tuple(
        MemberStatus(
            replace(each.member, holds={}),
            each.state,
            each.signal,
            owned.get(each.member.id, 0),
            standby.get(each.member.id, 0),
            each.why,
        )
        for each in sorted(judged, key=lambda each: each.member.id)
    )
