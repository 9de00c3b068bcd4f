"""Placement and planning as a term of leadership runs them, without I/O: workers that acknowledge
at once what they are told, a clock that is moved by hand."""

from collections import Counter
from collections.abc import Mapping

from coordinator.leader.targets import Targets
from coordinator.planning import Held, Peer, Pending, Situation, Told, plan, shares_of
from coordinator.verdicts import Death, Judged, Judgement
from fleet.model import (
    Addresses,
    EpochVersion,
    GroupKey,
    LeaderInfo,
    Member,
    MemberState,
    Placement,
    PoolId,
    PoolRef,
    Reason,
    ShardMap,
    Signal,
)
from fleet.model.pins import Pin
from fleet.settings.model import PlacementSettings

LEADER = LeaderInfo("coordinator-0", "h:1", "h:2")
TICK = 0.25


def groups_of(count: int) -> dict[GroupKey, tuple[PoolId, ...]]:
    keys = [GroupKey("ns", f"s{n}", 9002) for n in range(count)]
    return {key: (PoolId(PoolRef("ns", key.service), "u"),) for key in keys}


class PlacedFleet:
    """A fleet on paper.

    Attributes:
        moves: how often each group changed its owner after its first.
        objects: what the pools of a group say; change it and the pool has changed.
        down: workers whose control stream is down.
    """

    def __init__(self, groups: int, *, settings: PlacementSettings | None = None) -> None:
        self.targets = Targets(settings or PlacementSettings())
        self.groups = groups_of(groups)
        self.pins: dict[GroupKey, Pin] = {}
        self.members: dict[str, Member] = {}
        self.draining: set[str] = set()
        self.down: set[str] = set()
        self.loads: dict[GroupKey, float] = {}
        self.objects: dict[GroupKey, object] = {}
        self.map: ShardMap | None = None
        self.moves: Counter[GroupKey] = Counter()
        self.reasons: Counter[Reason] = Counter()
        self.now = 1000.0
        self._deaths: list[Death] = []
        self._lives = 0
        self._pending: Mapping[GroupKey, Pending] = {}
        self._told: dict[str, Told] = {}

    # -- what happens to workers ----------------------------------------------------------------

    def add(
        self, name: str, *, version: str = "1", zone: str = "", node: str = "", weight: int = 1
    ) -> None:
        self._lives += 1
        self.members[name] = Member(
            name,
            f"life-{self._lives}",
            Addresses(f"{name}:1", f"{name}:2", f"{name}:3", f"{name}:4"),
            zone=zone,
            node=node,
            version=version,
            weight=weight,
            started=self.now,
        )

    def die(self, *names: str, signal: Signal = Signal.REFUSED) -> None:
        for name in names:
            self._deaths.append(Death(self.members.pop(name), signal))
            self._told.pop(name, None)
            self.draining.discard(name)
            self.down.discard(name)

    # -- looks ----------------------------------------------------------------------------------

    def look(self, seconds: float = TICK) -> bool:
        """One look of the leader, `seconds` after the last; whether the map changed."""
        self.now += seconds
        members = sorted(self.members.items())
        peers = {
            name: Peer(name, m.incarnation, m.addresses.ext_proc, name not in self.draining)
            for name, m in members
        }
        deaths, self._deaths = tuple(self._deaths), []
        living = tuple(Judged(m, MemberState.ALIVE, None, True) for _, m in members)
        self.targets.update(
            previous=self.map,
            groups=self.groups,
            pins=self.pins,
            objects=self.objects.get,
            peers=peers,
            judgement=Judgement(living, deaths),
            up=lambda worker: worker not in self.down,
            loads=self.loads,
            now=self.now,
        )
        number = 1 if self.map is None else self.map.version.version + 1
        outcome = plan(
            Situation(
                fleet="f",
                leader=LEADER,
                previous=self.map,
                version=EpochVersion(1, number),
                groups=self.groups,
                peers=peers,
                dead=(),
                told=self._told,
                pending=self._pending,
                now=self.now,
                wall=self.now,
                move_deadline_seconds=30.0,
            ),
            self.targets.of,
        )
        self._pending = outcome.pending
        if outcome.astray:
            self.targets.outdate()
        if outcome.shard_map is None:
            return False
        self._count(outcome.shard_map)
        self.map = outcome.shard_map
        self.acknowledge()
        return True

    def settle(self) -> None:
        """Look until nothing changes."""
        for _ in range(50):
            if not self.look():
                return
        raise AssertionError("the map does not come to rest")

    def _count(self, following: ShardMap) -> None:
        if self.map is None:
            return
        for group, placement in following.placements.items():
            before = self.map.placements.get(group)
            if before is not None and before.owners and placement.owners != before.owners:
                self.moves[group] += 1
                self.reasons[placement.reason] += 1

    def acknowledge(self) -> None:
        """All workers that are reached do what the map says, and report it."""
        assert self.map is not None
        for worker, share in shares_of(self.map).items():
            if worker in self.members and worker not in self.down:
                holds = {each.group: Held(each.hold, True, True) for each in share.entries}
                self._told[worker] = Told(share.version, holds)

    # -- what came of it ------------------------------------------------------------------------

    def at(self, group: GroupKey) -> Placement:
        assert self.map is not None
        return self.map.placements[group]

    def owners(self) -> dict[GroupKey, str | None]:
        placements = {} if self.map is None else self.map.placements
        return {g: next(iter(p.owners), None) for g, p in placements.items()}

    def owned(self) -> Counter[str | None]:
        return Counter(self.owners().values())
