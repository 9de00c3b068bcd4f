"""Workers as people see them: the verdict, and how much of the map each one holds."""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from coordinator.planning.differences import differing
from coordinator.verdicts import Judged
from fleet.model import GroupKey, MemberState, MemberStatus, Placement, ShardMap

log = logging.getLogger(__name__)


class Holdings:
    """How many groups each worker owns and stands by for; of each map, what differs is counted."""

    def __init__(self) -> None:
        self._placements: Mapping[GroupKey, Placement] = {}
        self._owned: Counter[str] = Counter()
        self._standby: Counter[str] = Counter()

    def of(self, shard_map: ShardMap | None) -> tuple[Mapping[str, int], Mapping[str, int]]:
        """Owned and stood-by groups by worker id."""
        before = self._placements
        after = {} if shard_map is None else shard_map.placements
        if before is not after:
            self._placements = after
            changed, gone = differing(before, after)
            for group in (*changed, *gone):
                self._count(before.get(group), -1)
            for group in changed:
                self._count(after[group], 1)
        return self._owned, self._standby

    def _count(self, placement: Placement | None, by: int) -> None:
        if placement is None:
            return
        for owner in placement.owners:
            self._owned[owner] += by
        if placement.standby is not None:
            self._standby[placement.standby] += by


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


class Statuses:
    """The workers of one term, and a log line for each that others doubt, or no longer.

    Deaths are said where they are declared.
    """

    def __init__(self) -> None:
        self._holdings = Holdings()
        self._doubted: frozenset[str] = frozenset()
        self._draining: frozenset[str] = frozenset()

    def of(self, judged: Iterable[Judged], shard_map: ShardMap | None) -> tuple[MemberStatus, ...]:
        """See `statuses`."""
        owned, standby = self._holdings.of(shard_map)
        found = statuses(judged, owned, standby)
        self._tell(found)
        return found

    def _tell(self, found: tuple[MemberStatus, ...]) -> None:
        doubted = {e.member.id: e for e in found if e.state is MemberState.SUSPECT}
        draining = frozenset(e.member.id for e in found if e.state is MemberState.DRAINING)
        if doubted.keys() == self._doubted and draining == self._draining:
            return
        for name in sorted(doubted.keys() - self._doubted):
            log.warning("worker suspect", extra={"worker": name, "why": doubted[name].why})
        well = {e.member.id for e in found if e.state is not MemberState.DEAD}
        for name in sorted((self._doubted - doubted.keys()) & well):
            log.info("worker well again", extra={"worker": name})
        for name in sorted(draining - self._draining):
            log.info("worker draining", extra={"worker": name})
        for name in sorted((self._draining - draining) & well - doubted.keys()):
            log.info("worker takes groups again", extra={"worker": name})
        self._doubted, self._draining = frozenset(doubted), draining
