"""The leader's hand on the routes: stamped at take-over, written once, repaired when foreign."""

from collections.abc import Mapping, Sequence

import pytest

from coordinator.election.contract import Term
from coordinator.leader.routekeeping import RouteKeeper
from coordinator.routes.contract import Route, WriteResult
from fleet.errors import RouteError
from fleet.model import (
    EpochVersion,
    GroupKey,
    LeaderInfo,
    Phase,
    Placement,
    Reason,
    ShardMap,
)
from tests.memory_routes import MemoryRoutes

LEADER = LeaderInfo("coordinator-0", "h:1", "h:2")
A, B = GroupKey("ns", "a", 9002), GroupKey("ns", "b", 9002)


class StillClock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


class Recorded(MemoryRoutes):
    """Counts writes; can be made to fail."""

    def __init__(self, clock: StillClock) -> None:
        super().__init__(clock)
        self.writes: list[list[Route]] = []
        self.broken = False

    async def read(self) -> Mapping[GroupKey, Route]:
        if self.broken:
            raise RouteError("broken")
        return await super().read()

    async def write(self, routes: Sequence[Route], term: Term) -> WriteResult:
        if self.broken:
            raise RouteError("broken")
        self.writes.append(list(routes))
        return await super().write(routes, term)


class World:
    def __init__(self) -> None:
        self.clock = StillClock()
        self.routes = Recorded(self.clock)
        self.term = Term(LEADER, 5, 100.0)
        self.seen: list[EpochVersion] = []
        self.stale = 0
        self.keeper = RouteKeeper(
            self.routes,
            term=lambda: self.term,
            saw=self.seen.append,
            count_stale=self._count,
            clock=self.clock,
        )

    def _count(self) -> None:
        self.stale += 1

    async def put(self, *routes: Route, epoch: int = 4) -> None:
        """Written by somebody else."""
        await MemoryRoutes.write(self.routes, routes, Term(LEADER, epoch, 100.0))

    async def standing(self) -> dict[str, tuple[tuple[str, ...], EpochVersion]]:
        found = await MemoryRoutes.read(self.routes)
        return {key.service: (route.addresses, route.version) for key, route in found.items()}


def a_map(version: EpochVersion, **owners: str | None) -> ShardMap:
    placements = {
        (key := GroupKey("ns", service, 9002)): Placement(
            key,
            (),
            Phase.OWNED if owner else Phase.UNOWNED,
            (owner,) if owner else (),
            None,
            Reason.INITIAL,
            0.0,
        )
        for service, owner in owners.items()
    }
    addresses = {w: f"{w}:9002" for w in ("w0", "w1")}
    return ShardMap("f", version, 0.0, LEADER, placements, addresses=addresses)


async def test_take_over_stamps_what_stands_with_the_new_epoch() -> None:
    """Without a map, addresses stay and the epoch is ours."""
    world = World()
    await world.put(Route(A, ("w0:9002",), EpochVersion(4, 7)))
    await world.keeper.take_over(None)
    assert await world.standing() == {"a": (("w0:9002",), EpochVersion(5, 0))}


async def test_take_over_prefers_the_map_to_what_stands() -> None:
    """The last leader may have died between the store and the routes."""
    world = World()
    await world.put(
        Route(A, ("w0:9002",), EpochVersion(4, 7)), Route(B, ("w0:9002",), EpochVersion(4, 7))
    )
    await world.keeper.take_over(a_map(EpochVersion(4, 8), a="w1"))
    assert await world.standing() == {
        "a": (("w1:9002",), EpochVersion(5, 8)),
        "b": (("w0:9002",), EpochVersion(5, 8)),
    }


async def test_a_take_over_that_comes_late_changes_nothing() -> None:
    """A map of this term is newer than anything remembered."""
    world = World()
    await world.keeper.follow(a_map(EpochVersion(5, 9), a="w1"))
    await world.keeper.take_over(a_map(EpochVersion(4, 8), a="w0"))
    assert (await world.standing())["a"] == (("w1:9002",), EpochVersion(5, 9))


async def test_only_changes_are_written() -> None:
    """A new version alone rewrites nothing; a new owner or epoch does; none is an empty set."""
    world = World()
    await world.keeper.follow(a_map(EpochVersion(5, 9), a="w0", b="w0"))
    world.routes.writes.clear()
    await world.keeper.follow(a_map(EpochVersion(5, 10), a="w0", b=None))
    assert [[r.group for r in batch] for batch in world.routes.writes] == [[B]]
    assert (await world.standing())["b"] == ((), EpochVersion(5, 10))
    world.term = Term(LEADER, 6, 100.0)
    await world.keeper.follow(a_map(EpochVersion(6, 11), a="w0", b=None))
    assert {v.epoch for _, v in (await world.standing()).values()} == {6}


async def test_routes_without_a_group_are_removed() -> None:
    """Both those that we wrote and those that others left."""
    world = World()
    await world.put(Route(GroupKey("ns", "old", 1), ("x:1",), EpochVersion(4, 1)))
    await world.keeper.follow(a_map(EpochVersion(5, 9), a="w0", b="w0"))
    await world.keeper.follow(a_map(EpochVersion(5, 10), a="w0"))
    await world.keeper.repair()
    assert set(await world.standing()) == {"a"}


@pytest.mark.parametrize(
    ("found", "stale", "right_version"),
    [
        (Route(A, ("w1:9002",), EpochVersion(4, 7)), 1, EpochVersion(5, 9)),
        (Route(A, ("w0:9002",), EpochVersion(4, 7)), 1, EpochVersion(5, 9)),
        (Route(A, ("w1:9002",), EpochVersion(5, 99)), 1, EpochVersion(5, 100)),
        (Route(A, ("w0:9002",), EpochVersion(5, 9)), 0, EpochVersion(5, 9)),
    ],
)
async def test_what_somebody_else_wrote_is_repaired_and_counted(
    found: Route, stale: int, right_version: EpochVersion
) -> None:
    """An old leader's late write stands until the next look only."""
    world = World()
    await world.keeper.follow(a_map(EpochVersion(5, 9), a="w0"))
    world.routes._routes[A] = found
    await world.keeper.repair()
    assert (await world.standing())["a"] == (("w0:9002",), right_version)
    assert world.stale == stale


async def test_a_higher_epoch_is_reported_not_overwritten() -> None:
    """Somebody else leads, or did: our epoch must pass it first."""
    world = World()
    await world.keeper.follow(a_map(EpochVersion(5, 9), a="w0"))
    await world.put(Route(A, ("w1:9002",), EpochVersion(8, 1)), epoch=8)
    await world.keeper.repair()
    assert (await world.standing())["a"] == (("w1:9002",), EpochVersion(8, 1))
    assert world.seen == [EpochVersion(8, 1)]
    assert world.stale == 0


async def test_a_lost_or_failed_write_is_made_up_for() -> None:
    """A file that is gone, and one that could not be written, are written at the next look."""
    world = World()
    world.routes.broken = True
    await world.keeper.follow(a_map(EpochVersion(5, 9), a="w0"))
    await world.keeper.repair()
    assert await world.standing() == {}
    world.routes.broken = False
    await world.keeper.repair()
    world.routes._routes.clear()
    await world.keeper.repair()
    assert await world.standing() == {"a": (("w0:9002",), EpochVersion(5, 9))}
    assert world.stale == 0


async def test_nothing_is_written_after_the_deadline() -> None:
    """The routes look at the term themselves, right before they write."""
    world = World()
    world.clock.now = 100.0
    await world.keeper.follow(a_map(EpochVersion(5, 9), a="w0"))
    assert await world.standing() == {}
