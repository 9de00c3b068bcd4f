"""What would move if workers came or went: the placement itself, asked about another fleet.

Pure. The answer is where things would come to rest: a drain and a join take effect at once, moves
for balance alone come in rounds (`placement.balance_share`, `placement.balance_seconds`). Nothing
is said of a roll-out, in which moves wait for each other.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from coordinator.deletion_cost import weights_of
from fleet.errors import FleetError
from fleet.model import EpochVersion, GroupKey, MemberState, MemberStatus, Phase, Reason, ShardMap
from fleet.model.pins import Pin
from fleet.placement import Candidate, Conditions, Current, Decision, place
from fleet.settings.model import PlacementSettings

MAX_WORKERS = 1000
"""Of a question; the placement of 10,000 groups on that many takes about a second."""


class NoSuchWorker(FleetError):
    """The worker that is asked about does not live."""


@dataclass(frozen=True, slots=True)
class Question:
    """Either which worker goes, or how many there are to be."""

    remove: str | None = None
    workers: int | None = None


@dataclass(frozen=True, slots=True)
class Premises:
    """What the answer rests on, as of one moment.

    Attributes:
        loads: streams per second by group; None where they are not known: all groups count alike.
    """

    shard_map: ShardMap
    members: Sequence[MemberStatus]
    pins: Mapping[GroupKey, Pin]
    loads: Mapping[GroupKey, float] | None
    settings: PlacementSettings


@dataclass(frozen=True, slots=True)
class Carried:
    """A worker before and after; `fate` is stays, leaves or joins, loads count 1 + streams/s a
    group."""

    worker: str
    fate: str
    owned_before: int
    owned_after: int
    load_before: float
    load_after: float


@dataclass(frozen=True, slots=True)
class Moves:
    """How many groups go from one worker to another, and why; `target` None = to nobody."""

    source: str
    target: str | None
    reason: Reason
    groups: int


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The answer.

    Attributes:
        moves: the most first.
        balance_before, balance_after: the fullest worker's load by the mean, weights considered;
            0 without workers.
    """

    version: EpochVersion
    question: Question
    groups: int
    moved: int
    moves: tuple[Moves, ...]
    workers: tuple[Carried, ...]
    balance_before: float
    balance_after: float
    loads_known: bool


@dataclass(slots=True)
class _Tally:
    """Groups and load by worker."""

    owned: Counter[str] = field(default_factory=Counter)
    load: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    def add(self, worker: str, load: float) -> None:
        self.owned[worker] += 1
        self.load[worker] += load

    def fullest(self, workers: Sequence[Candidate]) -> float:
        """The highest level by the mean."""
        weight = sum(worker.weight for worker in workers)
        total = sum(self.load[worker.id] for worker in workers)
        if not total:
            return 0.0
        return max(self.load[w.id] / w.weight for w in workers) * weight / total


def what_if(premises: Premises, question: Question) -> WhatIf:
    """Answer it.

    Raises:
        NoSuchWorker: the worker to be removed does not live.
    """
    shard_map = premises.shard_map
    live = _live(premises)
    loads = {group: 1.0 + (premises.loads or {}).get(group, 0.0) for group in shard_map.placements}
    leaving, joining = _changes(premises, question, live)
    after = [
        *(worker for worker in live if worker.id not in leaving),
        # Those that leave hand over as in a drain.
        *(
            Candidate(w.id, w.weight, w.zone, w.node, accepts=False)
            for w in live
            if w.id in leaving
        ),
        *joining,
    ]
    current = {
        group: Current(next(iter(placement.owners), None), placement.standby)
        for group, placement in shard_map.placements.items()
    }
    quarantined = frozenset(
        group for group, each in shard_map.placements.items() if each.phase is Phase.QUARANTINED
    )
    staying = any(worker.id not in leaving for worker in after)
    decisions: Mapping[GroupKey, Decision] = place(
        after if staying else [],
        loads,
        current,
        cap=None,
        settings=premises.settings,
        conditions=Conditions(pins=premises.pins, quarantined=quarantined),
    ).decisions
    return _answer(premises, question, loads, current, decisions, live, leaving, joining)


def _live(premises: Premises) -> list[Candidate]:
    """The workers of the map."""
    return [
        Candidate(
            status.member.id,
            min(max(status.member.weight, 1), 100),
            status.member.zone,
            status.member.node,
            accepts=status.state is not MemberState.DRAINING and not status.member.draining,
        )
        for status in premises.members
        if status.state is not MemberState.DEAD
        and status.member.id in premises.shard_map.incarnations
    ]


def _changes(
    premises: Premises, question: Question, live: Sequence[Candidate]
) -> tuple[frozenset[str], list[Candidate]]:
    """Who leaves and who joins."""
    if question.remove is not None:
        if question.remove not in {worker.id for worker in live}:
            raise NoSuchWorker(f"no live worker {question.remove[:253]!r}")
        return frozenset([question.remove]), []
    staying = [worker for worker in live if worker.accepts]
    wanted = len(staying) if question.workers is None else question.workers
    if wanted >= len(staying):
        taken = {worker.id for worker in live}
        names = (f"new-{n}" for n in range(1, len(taken) + MAX_WORKERS + 1))
        free = [name for name in names if name not in taken]
        return frozenset(), [Candidate(name) for name in free[: wanted - len(staying)]]
    # As a ReplicaSet does it by the deletion costs that the leader writes: the lightest first.
    weights = weights_of(premises.shard_map, premises.loads or {})
    ordered = sorted(staying, key=lambda worker: (weights.get(worker.id, 0.0), worker.id))
    return frozenset(worker.id for worker in ordered[: len(staying) - wanted]), []


def _answer(
    premises: Premises,
    question: Question,
    loads: Mapping[GroupKey, float],
    current: Mapping[GroupKey, Current],
    decisions: Mapping[GroupKey, Decision],
    live: Sequence[Candidate],
    leaving: frozenset[str],
    joining: Sequence[Candidate],
) -> WhatIf:
    before, after = _Tally(), _Tally()
    moves: Counter[tuple[str, str | None, Reason]] = Counter()
    for group, load in loads.items():
        source, decision = current[group].owner, decisions[group]
        if source is not None:
            before.add(source, load)
        if decision.owner is not None:
            after.add(decision.owner, load)
        if decision.owner != source:
            moves[source or "", decision.owner, decision.reason] += 1
    fates = {worker.id: "leaves" if worker.id in leaving else "stays" for worker in live}
    fates.update((worker.id, "joins") for worker in joining)
    rest = [worker for worker in live if worker.id not in leaving and worker.accepts]
    return WhatIf(
        version=premises.shard_map.version,
        question=question,
        groups=len(loads),
        moved=moves.total(),
        moves=tuple(
            Moves(*which, count)
            for which, count in sorted(moves.items(), key=lambda item: (-item[1], str(item[0])))
        ),
        workers=tuple(
            Carried(
                worker,
                fate,
                before.owned[worker],
                after.owned[worker],
                before.load[worker],
                after.load[worker],
            )
            for worker, fate in fates.items()
        ),
        balance_before=before.fullest([worker for worker in live if worker.accepts]),
        balance_after=after.fullest([*rest, *joining]),
        loads_known=premises.loads is not None,
    )
