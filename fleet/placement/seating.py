"""The plan in the making: which worker each group sits on, and why it left another."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from itertools import islice

from fleet.model import GroupKey, Reason
from fleet.placement.facts import Current
from fleet.placement.ledger import Ledger
from fleet.ring import Ring, group_hash

_PROBES = 8
"""Ring candidates that are tried before the emptiest worker takes an orphan."""

_NEWCOMER = 0.6
"""A worker with less than this of its share of the groups, and of the load, is a newcomer. A ring
of 160 points per worker gives the unluckiest of 100 about 0.7 of its share, so nobody stays one by
bad luck."""

_PASSES = 32
"""Rounds of newcomers and shedding; 2 or 3 are the rule, the bound is there for the leader's
loop."""

NOWHERE = Current(None, None)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The conditions of a placement, in terms of its workers.

    Attributes:
        allowed: pinned groups -> the workers that may own them, at least one.
        preferred: workers that take groups that must move, as long as they have room.
        fixed: quarantined groups: they move only if their worker goes.
        receiving: workers that take over groups at this moment.
        budget: how many groups may move for balance; None = no bound.
        still: nothing moves for balance or to newcomers.
    """

    allowed: Mapping[GroupKey, frozenset[str]] = field(default_factory=dict)
    preferred: frozenset[str] = frozenset()
    fixed: frozenset[GroupKey] = frozenset()
    receiving: frozenset[str] = frozenset()
    budget: int | None = None
    still: bool = False


class Seating:
    """Begins with the groups that stay; `seat_orphans`, then `settle` do the rest.

    Attributes:
        seats: group -> worker.
        moved: groups that left a worker that could have kept them, and why.
    """

    def __init__(
        self, ring: Ring, ledger: Ledger, loads: Mapping[GroupKey, float], bounds: Bounds
    ) -> None:
        self.ring = ring
        self.ledger = ledger
        self.loads = loads
        self.seats: dict[GroupKey, str] = {}
        self.moved: dict[GroupKey, Reason] = {}
        self._bounds = bounds
        self._all = frozenset(ledger.weights)
        self._tainted: frozenset[str] = frozenset()
        self._budget = bounds.budget

    # -- who may take a group -------------------------------------------------------------------

    def _among(self, group: GroupKey) -> frozenset[str] | None:
        """Who may be given `group`, at least one worker; None = anybody.

        Within its pin, and off the workers of quarantined groups where there are others.
        """
        allowed = self._bounds.allowed.get(group)
        if not self._tainted:
            return allowed
        wide = self._all if allowed is None else allowed
        return wide - self._tainted or wide

    def _may_take(self, worker: str, group: GroupKey) -> bool:
        among = self._among(group)
        return among is None or worker in among

    def _roomy(
        self,
        group: GroupKey,
        load: float,
        among: frozenset[str] | None,
        leaving: str | None = None,
    ) -> str | None:
        """The ring's next worker below the full level, among the first few."""
        ledger = self.ledger
        for name in islice(self.ring.walk(group), _PROBES):
            if among is not None and name not in among:
                continue
            if name != leaving and ledger.fits(name, load, ledger.full):
                return name
        return None

    # -- orphans --------------------------------------------------------------------------------

    def seat_orphans(
        self, orphans: Sequence[GroupKey], current: Mapping[GroupKey, Current]
    ) -> None:
        """The heaviest first: they are the hardest to fit. Quarantined ones go last, when it is
        known who is given anything else."""
        loads, fixed = self.loads, self._bounds.fixed
        self._tainted = frozenset(self.seats[group] for group in fixed if group in self.seats)
        given: Counter[str] = Counter(self._bounds.receiving)
        ordered = sorted(orphans, key=lambda g: (g in fixed, -loads[g], group_hash(g), g))
        for group in ordered:
            load = loads[group]
            if group in fixed:
                target = self._isolated(group, given)
                self._tainted |= {target}
            else:
                target = self._target(group, load, current.get(group, NOWHERE).standby)
                given[target] += 1
            self.seats[group] = target
            self.ledger.give(target, load)

    def _target(self, group: GroupKey, load: float, warm: str | None) -> str:
        ledger, among = self.ledger, self._among(group)
        if warm is not None and not (
            warm in ledger.weights and (among is None or warm in among) and ledger.fits(warm, load)
        ):
            warm = None
        preferred = self._bounds.preferred
        if preferred and among is not None:
            preferred &= among
        if preferred and warm not in preferred:
            newest = ledger.emptiest(preferred)
            if ledger.fits(newest, load):
                return newest
        if warm is not None:
            return warm
        return self._roomy(group, load, among) or ledger.emptiest(among)

    def _isolated(self, group: GroupKey, given: Mapping[str, int]) -> str:
        """Where a quarantined group does the least harm: with its like, else where nothing else
        goes at this moment, else on the emptiest."""
        workers = self._bounds.allowed.get(group, self._all)
        level, tainted = self.ledger.level, self._tainted
        return min(workers, key=lambda w: (w not in tainted, given.get(w, 0) > 0, level(w), w))

    # -- newcomers and balance ------------------------------------------------------------------

    def settle(self) -> None:
        """Newcomers and balance until they move nothing: the same facts again must change
        nothing."""
        if self._bounds.still:
            return
        for _ in range(_PASSES):
            moved = self._welcome_newcomers()
            if not self._shed() and not moved:
                return

    def _move(self, group: GroupKey, target: str, reason: Reason) -> None:
        load = self.loads[group]
        self.ledger.take(self.seats[group], load)
        self.ledger.give(target, load)
        self.seats[group] = target
        self.moved[group] = reason

    def _welcome_newcomers(self) -> bool:
        """Whether anything moved: first groups whose ring home a newcomer is, then, if these are
        too few to make up its share (as in a small fleet), any."""
        ledger = self.ledger
        share = len(self.seats) / sum(ledger.weights.values())
        counts = Counter(self.seats.values())

        def lacking(worker: str) -> bool:
            few = counts[worker] < _NEWCOMER * share * ledger.weights[worker]
            return few and ledger.level(worker) <= _NEWCOMER * ledger.mean

        newcomers = [w for w in sorted(ledger.weights) if lacking(w) and w not in self._tainted]
        if not newcomers:
            return False
        wanted: dict[str, dict[str, list[GroupKey]]] = {name: {} for name in newcomers}
        homes = self.ring.homes(self.seats)
        for (group, owner), home in zip(self.seats.items(), homes, strict=True):
            if home in wanted and home != owner and self._movable(group, home):
                wanted[home].setdefault(owner, []).append(group)
        moved = 0
        for newcomer in newcomers:
            taken = self._welcome(newcomer, wanted[newcomer])
            counts[newcomer] += taken
            moved += taken
        least = {newcomer: self._least(lacking(newcomer)) for newcomer in newcomers}
        return self._fill(least) + moved > 0

    def _least(self, lacking: bool) -> float:
        """The level from which on others give groups to a newcomer whose home they are not: any
        if it lacks too much, else above the cap, since those have to give them to somebody."""
        return 0.0 if lacking else self.ledger.cap * (1 + 1e-9)

    def _movable(self, group: GroupKey, target: str) -> bool:
        return group not in self._bounds.fixed and self._may_take(target, group)

    def _welcome(self, newcomer: str, offers: Mapping[str, list[GroupKey]]) -> int:
        """`newcomer` takes of what is offered, always from the fullest."""
        ledger = self.ledger
        for groups in offers.values():
            groups.sort(key=lambda g: (group_hash(g), g))
        fullest = [(-ledger.level(owner), owner) for owner in offers]
        heapify(fullest)
        moved = 0
        while fullest:
            owner = fullest[0][1]
            groups = offers[owner]
            if not groups:
                heappop(fullest)
                continue
            group = groups.pop()
            if self._gains(newcomer, group):
                self._move(group, newcomer, Reason.JOIN)
                heapreplace(fullest, (-ledger.level(owner), owner))
                moved += 1
        return moved

    def _gains(self, newcomer: str, group: GroupKey) -> bool:
        """Whether `newcomer` may take `group`: it stays below the mean level, and whoever gives
        stays at least as full as it becomes, so that nothing has to go back."""
        ledger, load = self.ledger, self.loads[group]
        after = ledger.level(newcomer, load)
        return after <= ledger.mean and after <= ledger.level(self.seats[group], -load)

    def _fill(self, least: Mapping[str, float]) -> int:
        """Newcomers take any groups from the fullest above the level given for each; how many."""
        fullest = max(map(self.ledger.level, self.ledger.weights))
        if fullest <= min(least.values()):
            return 0
        lightest = min((load for load in self.loads.values() if load > 0), default=None)
        if lightest is None:
            return 0
        by_owner: dict[str, list[GroupKey]] = {}
        for group in sorted(self.seats, key=lambda g: (group_hash(g), g)):
            by_owner.setdefault(self.seats[group], []).append(group)
        return sum(self._fill_one(each, by_owner, lightest, least[each]) for each in least)

    def _fill_one(
        self,
        newcomer: str,
        by_owner: Mapping[str, list[GroupKey]],
        lightest: float,
        least: float,
    ) -> int:
        ledger = self.ledger
        fullest = [(-ledger.level(owner), owner, 0) for owner in by_owner if owner != newcomer]
        heapify(fullest)
        moved = 0
        while fullest and ledger.level(newcomer, lightest) <= ledger.mean:
            shown, owner, index = fullest[0]
            if index == len(by_owner[owner]) or -shown <= max(least, ledger.level(newcomer)):
                heappop(fullest)
                continue
            group = by_owner[owner][index]
            kept = self.seats[group] == owner and self.loads[group] > 0
            if kept and self._gains(newcomer, group) and self._movable(group, newcomer):
                self._move(group, newcomer, Reason.JOIN)
                moved += 1
            heapreplace(fullest, (-ledger.level(owner), owner, index + 1))
        return moved

    def _shed(self) -> bool:
        """Workers over the cap shed as few groups as bring them below; whether anything moved."""
        if self._budget is not None and self._budget <= 0:
            return False
        over: dict[str, list[GroupKey]] = {
            worker: [] for worker in self.ledger.weights if self.ledger.over(worker)
        }
        if not over:
            return False
        fixed = self._bounds.fixed
        for group, owner in self.seats.items():
            if owner in over and group not in fixed:
                over[owner].append(group)
        order = sorted(over, key=lambda worker: (-self.ledger.level(worker), worker))
        return sum([self._shed_from(worker, over[worker]) for worker in order]) > 0

    def _shed_from(self, worker: str, groups: Sequence[GroupKey]) -> int:
        """Move groups away until `worker` is under the cap; those heavier than a cap go last."""
        ledger, loads = self.ledger, self.loads
        sized = sorted((loads[group], group_hash(group), group) for group in groups)
        fit = bisect_right(sized, ledger.cap * ledger.weights[worker], key=lambda item: item[0])
        moved = 0
        for pile in (sized[:fit], sized[fit:]):
            while pile and ledger.over(worker) and (self._budget is None or self._budget > 0):
                excess = ledger.excess(worker)
                index = max(0, bisect_right(pile, excess, key=lambda item: item[0]) - 1)
                load, _, group = pile[index]
                among = self._among(group)
                target = self._relief(group, worker, load, among)
                if target is not None:
                    del pile[index]
                    self._move(group, target, Reason.BALANCE)
                    moved += 1
                    self._budget = None if self._budget is None else self._budget - 1
                elif among is None:
                    del pile[index:]  # Nobody takes this load, so nobody takes a heavier one.
                else:
                    del pile[index]
        return moved

    def _relief(
        self, group: GroupKey, worker: str, load: float, among: frozenset[str] | None
    ) -> str | None:
        """Who takes `group` from `worker`: someone under the cap, or much emptier than it."""
        ledger = self.ledger
        target = self._roomy(group, load, among, leaving=worker)
        if target is not None:
            return target
        target = ledger.emptiest(among)
        if load <= 0 or target == worker:
            return None
        # Half the load as margin: loads that differ by noise must not go back and forth.
        helps = ledger.level(target, load) <= ledger.level(worker, -load / 2)
        return target if helps or ledger.fits(target, load) else None
