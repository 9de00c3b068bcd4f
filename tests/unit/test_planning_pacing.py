"""Many moves at once: in batches at each gainer, side by side at all of them, none for ever."""

from collections import Counter
from dataclasses import replace

from coordinator.planning import Held, Situation, Target, Told, plan
from coordinator.planning.pacing import MAX_OPENING, REFILL
from fleet.model import EpochVersion, GroupKey, Hold, Phase, Reason, ShardMap
from tests.planning_world import LEADER, peer

MANY = [GroupKey("models", f"s{n:04}", 9002) for n in range(1000)]


class Drain:
    """`a` owns a thousand groups; each is to go to `b` or to `c`, turn about."""

    def __init__(self, *, leaving: bool = True) -> None:
        self.at = Situation(
            fleet="f",
            leader=LEADER,
            previous=None,
            version=EpochVersion(5, 1),
            groups=dict.fromkeys(MANY, ()),
            peers={"a": peer("a"), "b": peer("b"), "c": peer("c")},
            dead=(),
            told={},
            pending={},
            now=100.0,
            wall=1000.0,
            move_deadline_seconds=30.0,
        )
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self.wanted = {group: Target("a", None, Reason.INITIAL) for group in MANY}
        self.look()
        self.acknowledge("a")
        self.look()
        self.outcomes.clear()
        reason = Reason.DRAIN if leaving else Reason.JOIN
        self.at = replace(self.at, peers={**self.at.peers, "a": peer("a", accepts=not leaving)})
        self.wanted = {
            group: Target("bc"[number % 2], None, reason) for number, group in enumerate(MANY)
        }

    @property
    def map(self) -> ShardMap:
        assert self.at.previous is not None
        return self.at.previous

    def look(self, seconds: float = 0.0) -> None:
        """One look of the leader, `seconds` later."""
        now, wall = self.at.now + seconds, self.at.wall + seconds
        self.at = replace(self.at, now=now, wall=wall)
        outcome = plan(self.at, self.wanted.__getitem__)
        self.outcomes.update((change.target, change.outcome) for change in outcome.changes)
        following = outcome.shard_map or self.map
        self.at = replace(
            self.at,
            previous=following,
            version=following.version.next(),
            pending=outcome.pending,
            backlog=outcome.backlog,
        )

    def acknowledge(self, worker: str, most: int = 10_000) -> None:
        """`worker` reports what it holds by the newest map; at most so many groups are synced."""
        holds = {}
        for group, placement in self.map.placements.items():
            hold = None
            if worker in placement.owners:
                hold = Hold.OWNER
            elif worker == placement.moving_to:
                hold = Hold.OPENING
            elif worker in placement.draining:
                hold = Hold.DRAINING
            if hold is not None:
                synced = hold is not Hold.OPENING or most > 0
                most -= hold is Hold.OPENING
                holds[group] = Held(hold, synced, hold is Hold.DRAINING)
        told = {**self.at.told, worker: Told(self.map.version, holds)}
        self.at = replace(self.at, told=told)

    def moving(self) -> Counter[str]:
        """How many groups are on their way, by gainer."""
        placements = self.map.placements.values()
        return Counter(p.moving_to for p in placements if p.moving_to is not None)

    def owned(self) -> Counter[str]:
        """How many groups each worker owns."""
        return Counter(p.owners[0] for p in self.map.placements.values())


def test_a_mass_drain_opens_in_batches_at_each_gainer() -> None:
    """256 at each of the two; what waits is owned and served; the next batch comes when half of
    the last is through, so that maps come by the batch."""
    drain = Drain()
    drain.look()
    assert drain.moving() == {"b": MAX_OPENING, "c": MAX_OPENING}
    assert drain.owned() == {"a": 1000}
    waiting = [p for p in drain.map.placements.values() if p.moving_to is None]
    assert {p.phase for p in waiting} == {Phase.OWNED}
    before = drain.map
    drain.look(1.0)
    assert drain.map is before
    drain.acknowledge("b", MAX_OPENING - REFILL - 1)
    drain.look()
    drain.look()
    assert drain.moving() == {"b": REFILL + 1, "c": MAX_OPENING}
    drain.acknowledge("b", 1)
    drain.look()
    drain.look()
    assert drain.moving() == {"b": MAX_OPENING, "c": MAX_OPENING}


def test_a_gainer_that_never_acknowledges_delays_only_its_own() -> None:
    """All that goes to the other is there after two batches; what it was to get itself goes over
    by a plain move 30 s after the drain began, also what never had its turn."""
    drain = Drain()
    for _ in range(6):
        drain.look(0.1)
        drain.acknowledge("b")
    assert drain.owned() == {"a": 500, "b": 500}
    assert drain.outcomes == {("b", "done"): 500}
    drain.look(29.3)
    assert drain.owned() == {"a": 500, "b": 500}
    drain.look(0.3)
    assert drain.owned() == {"b": 500, "c": 500}
    assert drain.outcomes == {("b", "done"): 500, ("c", "deadline"): 500}
    assert not drain.moving()


def test_a_newcomer_that_never_acknowledges_is_left_alone_after_one_batch() -> None:
    """The owner keeps what it has, and the other newcomer gets all of its own."""
    drain = Drain(leaving=False)
    for _ in range(6):
        drain.look(0.1)
        drain.acknowledge("b")
    drain.look(30.0)
    drain.look(0.1)
    assert drain.owned() == {"a": 500, "b": 500}
    assert drain.outcomes == {("b", "done"): 500, ("c", "deadline"): MAX_OPENING}
    assert not drain.moving()


def test_a_gainer_that_dies_gives_way_to_the_next() -> None:
    """What moved to it goes elsewhere at once, in batches again; nothing else is touched."""
    drain = Drain()
    drain.look()
    drain.at = replace(
        drain.at, peers={name: each for name, each in drain.at.peers.items() if name != "c"}
    )
    drain.wanted = dict.fromkeys(MANY, Target("b", None, Reason.DRAIN))
    drain.look(2.0)
    assert drain.outcomes == {("c", "gainer_dead"): MAX_OPENING}
    for _ in range(16):
        drain.acknowledge("b")
        drain.look(0.1)
    assert drain.owned() == {"b": 1000}


def test_fail_overs_are_not_paced() -> None:
    """Nobody serves these groups: all thousand open at once."""
    drain = Drain()
    drain.at = replace(drain.at, peers={"b": peer("b"), "c": peer("c")})
    drain.look()
    assert drain.owned() == {"b": 500, "c": 500}
