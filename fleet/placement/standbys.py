"""Who stands by for a group: warm, and as far from the owner as there is anybody."""

from collections.abc import Mapping, Sequence
from enum import Enum
from itertools import islice

from fleet.model import GroupKey
from fleet.placement.facts import Candidate
from fleet.ring import Ring

_CHOICES = 3
"""Ring candidates of which the one that stands by for the fewest is taken: loads stay even."""


class _Apart(Enum):
    """How far two workers are from each other; an unknown zone or node is no other one."""

    SAME = 0
    NODE = 1
    ZONE = 2


class Standbys:
    """Chooses stand-bys and keeps those that are as far away as can be had.

    Args:
        workers: those that may own groups.
        spare: those that stand by only if there is nobody else.
    """

    def __init__(
        self, ring: Ring, workers: Sequence[Candidate], spare: Sequence[Candidate]
    ) -> None:
        self._ring = ring
        self._by_id = {worker.id: worker for worker in workers}
        self._spare = sorted(worker.id for worker in spare)
        self._many_zones = len({worker.zone for worker in workers if worker.zone}) > 1
        self._many_nodes = len({worker.node for worker in workers if worker.node}) > 1
        self._counts = dict.fromkeys(self._by_id, 0.0)

    def _best(self, owner: str) -> _Apart:
        """How far from `owner` a stand-by can be."""
        if self._many_zones and self._by_id[owner].zone:
            return _Apart.ZONE
        if self._many_nodes and self._by_id[owner].node:
            return _Apart.NODE
        return _Apart.SAME

    def _far(self, owner: str, other: str, wanted: _Apart) -> bool:
        """Whether `other` is a worker as far from `owner` as `wanted`."""
        if wanted is _Apart.SAME:
            return owner != other
        one, two = self._by_id[owner], self._by_id[other]
        if wanted is _Apart.ZONE:
            return bool(two.zone) and one.zone != two.zone
        return bool(two.node) and one.node != two.node

    def keeps(self, owner: str, standby: str) -> bool:
        """Whether `standby` may stay for a group of `owner`: nobody is further away."""
        if len(self._by_id) == 1:
            return standby in self._spare
        return standby in self._by_id and self._far(owner, standby, self._best(owner))

    def count(self, standbys: Mapping[str | None, int]) -> None:
        """Tell how many groups each worker stands by for already."""
        for worker, number in standbys.items():
            if worker in self._by_id:
                self._counts[worker] += number / self._by_id[worker].weight

    def choose(self, group: GroupKey, owner: str) -> str | None:
        """Of the ring's next few that are far enough from `owner`, the least used one."""
        if len(self._by_id) == 1:
            return self._spare[0] if self._spare else None
        wanted = self._best(owner)
        far = (name for name in self._ring.walk(group) if self._far(owner, name, wanted))
        chosen = min(islice(far, _CHOICES), key=self._counts.__getitem__)
        self._counts[chosen] += 1 / self._by_id[chosen].weight
        return chosen
