"""Plans one after another, as a leader makes them, over one route group (or a few)."""

from collections.abc import Mapping
from dataclasses import replace

from coordinator.planning import (
    Change,
    Held,
    Next,
    Peer,
    Situation,
    Target,
    Told,
    plan,
)
from fleet.model import (
    EpochVersion,
    GroupKey,
    Hold,
    LeaderInfo,
    Phase,
    Placement,
    PoolId,
    PoolRef,
    Reason,
    ShardMap,
)

G = GroupKey("models", "llama-epp", 9002)
POOLS = (PoolId(PoolRef("models", "llama"), "u1"),)
LEADER = LeaderInfo("coordinator-0", "127.0.0.1:8080", "127.0.0.1:8081")
EMPTY: Mapping[GroupKey, Held] = {}


def peer(worker: str, *, incarnation: str = "1", accepts: bool = True) -> Peer:
    return Peer(worker, incarnation, f"{worker}:9002", accepts)


class World:
    """Plans one after another, as a leader does: each on the map of the last."""

    def __init__(self, *peers: Peer) -> None:
        self.at = Situation(
            fleet="f",
            leader=LEADER,
            previous=None,
            version=EpochVersion(5, 1),
            groups={G: POOLS},
            peers={p.id: p for p in peers},
            dead=(),
            told={},
            pending={},
            now=100.0,
            wall=1000.0,
            move_deadline_seconds=30.0,
        )
        self.changes: list[Change] = []

    def peers(self, *peers: Peer) -> None:
        self.at = replace(self.at, peers={p.id: p for p in peers})

    def groups(self, groups: Mapping[GroupKey, tuple[PoolId, ...]]) -> None:
        self.at = replace(self.at, groups=groups)

    def later(self, seconds: float) -> None:
        self.at = replace(self.at, now=self.at.now + seconds, wall=self.at.wall + seconds)

    def tell(
        self,
        worker: str,
        hold: Hold | None,
        *,
        synced: bool = True,
        quiet: bool = False,
        version: EpochVersion | None = None,
    ) -> None:
        """`worker` reports the group as of the newest map (or of `version`)."""
        current = version or self.map.version
        holds = EMPTY if hold is None else {G: Held(hold, synced, quiet)}
        self.at = replace(self.at, told={**self.at.told, worker: Told(current, holds)})

    def plan(
        self,
        owner: str | None,
        standby: str | None = None,
        reason: Reason = Reason.INITIAL,
    ) -> Next:
        outcome = plan(self.at, lambda group: Target(owner, standby, reason))
        self.at = replace(self.at, pending=outcome.pending, backlog=outcome.backlog)
        self.changes.extend(outcome.changes)
        if outcome.shard_map is not None:
            self.at = replace(
                self.at, previous=outcome.shard_map, version=outcome.shard_map.version.next()
            )
        return outcome

    @property
    def map(self) -> ShardMap:
        assert self.at.previous is not None
        return self.at.previous

    @property
    def group(self) -> Placement:
        return self.map.placements[G]


def settled(*, standby: str | None = "b") -> World:
    """G is owned by `a` since 1000.0, with a stand-by, workers a, b and c alive."""
    world = World(peer("a"), peer("b"), peer("c"))
    world.plan("a", standby)
    world.tell("a", Hold.OWNER)
    world.plan("a", standby)
    assert world.group.phase is Phase.OWNED
    world.changes.clear()
    return world


def moving() -> World:
    """G moves from `a` to `c`; the stand-by is `b`."""
    world = settled()
    world.later(10)
    world.plan("c", "b", Reason.JOIN)
    assert (world.group.phase, world.group.owners, world.group.moving_to) == (
        Phase.MOVING,
        ("a",),
        "c",
    )
    return world


def outcomes(world: World) -> list[tuple[str, str, Reason, str]]:
    return [(c.source, c.target, c.reason, c.outcome) for c in world.changes]
