"""The leader's hand on the routes: stamped at take-over, written once, repaired when foreign."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

import pytest

from coordinator.election.contract import Term
from coordinator.leader.doubt import LeaseInDoubt
from coordinator.leader.routekeeping import STAMP_BATCH, RouteKeeper, changed_since
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
    """A new version alone rewrites nothing; a new owner does, no owner is an empty set; what lacks
    only a new epoch is stamped at the next look, and that is no stale write."""
    world = World()
    await world.keeper.follow(a_map(EpochVersion(5, 9), a="w0", b="w0"))
    world.routes.writes.clear()
    await world.keeper.follow(a_map(EpochVersion(5, 10), a="w0", b=None))
    assert [[r.group for r in batch] for batch in world.routes.writes] == [[B]]
    assert (await world.standing())["b"] == ((), EpochVersion(5, 10))
    world.term = Term(LEADER, 6, 100.0)
    await world.keeper.follow(a_map(EpochVersion(6, 11), a="w1", b=None))
    assert await world.standing() == {
        "a": (("w1:9002",), EpochVersion(6, 11)),
        "b": ((), EpochVersion(5, 10)),
    }
    await world.keeper.repair()
    assert world.stale == 0
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


class Slow(Recorded):
    """Each route takes a hundredth of a second, and a hook may act after each batch."""

    def __init__(self, clock: StillClock) -> None:
        super().__init__(clock)
        self.after: Callable[[], Awaitable[None]] | None = None

    async def write(self, routes: Sequence[Route], term: Term) -> WriteResult:
        result = await super().write(routes, term)
        await self._clock.sleep(0.01 * len(routes))
        if self.after is not None:
            await self.after()
        return result

    def order(self) -> list[str]:
        return [route.group.service for batch in self.writes for route in batch]


def many(count: int) -> dict[str, str | None]:
    return {f"s{number}": "w0" for number in range(count)}


def slow_world(lease_seconds: float = 4.0) -> tuple[World, Slow]:
    """A lease that is renewed all the time, but never covers more than `lease_seconds`."""
    world = World()
    routes = Slow(world.clock)
    world.keeper = RouteKeeper(
        routes,
        term=lambda: Term(LEADER, 5, world.clock.now + lease_seconds),
        saw=world.seen.append,
        count_stale=world._count,
        clock=world.clock,
        loads=lambda: {GroupKey("ns", "s700", 9002): 9.0, GroupKey("ns", "s800", 9002): 2.0},
    )
    world.routes = routes
    return world, routes


async def test_more_routes_than_fit_into_a_lease_are_written_in_batches() -> None:
    """1,000 routes take 10 s, a lease lasts 4: each batch has the term as it is then."""
    world, routes = slow_world()
    await world.put(
        *(Route(GroupKey("ns", s, 9002), ("w0:9002",), EpochVersion(4, 1)) for s in many(1000))
    )
    await world.keeper.take_over(None)
    for _ in range(9):
        await world.keeper.repair()
    assert len(routes.order()) == 1000
    assert {v.epoch for _, v in (await world.standing()).values()} == {5}
    assert world.stale == 0


async def test_wrong_addresses_come_first_then_the_busy_ones() -> None:
    """And a take-over does not keep anybody waiting for the rest."""
    world, routes = slow_world()
    await world.put(
        *(Route(GroupKey("ns", s, 9002), ("w0:9002",), EpochVersion(4, 1)) for s in many(1000))
    )
    await world.keeper.take_over(a_map(EpochVersion(4, 2), **(many(1000) | {"s900": "w1"})))
    assert routes.order()[:3] == ["s900", "s700", "s800"]
    assert len(routes.order()) < 600


async def test_a_new_map_goes_before_what_is_left() -> None:
    """A worker dies while a thousand routes are being stamped: its groups do not wait for them."""
    world, routes = slow_world()
    await world.put(
        *(Route(GroupKey("ns", s, 9002), ("w0:9002",), EpochVersion(4, 1)) for s in many(1000))
    )

    async def die() -> None:
        routes.after = None
        await world.keeper.follow(a_map(EpochVersion(5, 3), **(many(1000) | {"s900": "w1"})))

    task: list[asyncio.Task[None]] = []

    async def dies() -> None:
        routes.after = None
        task.append(asyncio.create_task(die()))
        await asyncio.sleep(0)

    routes.after = dies
    await world.keeper.take_over(None)
    await task[0]
    assert routes.order().index("s900") <= STAMP_BATCH
    assert (await world.standing())["s900"] == (("w1:9002",), EpochVersion(5, 3))


async def test_a_foreign_write_over_a_route_that_waits_for_its_stamp_is_repaired() -> None:
    """It does not wait with the others."""
    world, routes = slow_world()
    await world.put(
        *(Route(GroupKey("ns", s, 9002), ("w0:9002",), EpochVersion(4, 1)) for s in many(1000))
    )
    await world.keeper.take_over(None)
    late = Route(GroupKey("ns", "s999", 9002), ("w9:9002",), EpochVersion(4, 2))
    assert (await world.standing())["s999"][1] == EpochVersion(4, 1)
    routes._routes[late.group] = late
    routes.writes.clear()
    await world.keeper.repair()
    assert routes.order()[0] == "s999"
    assert (await world.standing())["s999"] == (("w0:9002",), EpochVersion(5, 0))


async def test_a_lease_in_doubt_ends_the_batches_and_loses_nothing() -> None:
    """What was not written is written when the lease covers the moment again."""
    world, routes = slow_world()
    doubt = False

    def term() -> Term:
        if doubt:
            raise LeaseInDoubt("renewing")
        return Term(LEADER, 5, world.clock.now + 4.0)

    async def lose() -> None:
        nonlocal doubt
        doubt, routes.after = True, None

    world.keeper._term = term
    routes.after = lose
    with pytest.raises(LeaseInDoubt):
        await world.keeper.follow(a_map(EpochVersion(5, 3), **many(600)))
    doubt = False
    for _ in range(5):
        await world.keeper.repair()
    assert set(await world.standing()) == set(many(600))


async def test_of_the_next_map_only_placements_that_changed_are_looked_at() -> None:
    """What is left of an earlier map stays noted; a map with other addresses is another matter."""
    world = World()
    first = a_map(EpochVersion(5, 1), a="w0", b="w0")
    await world.keeper.follow(first)
    moved = a_map(EpochVersion(5, 2), b="w1").placements[B]
    second = replace(first, version=EpochVersion(5, 2), placements={**first.placements, B: moved})
    assert changed_since(first, second) == [B]
    await world.keeper.follow(second)
    assert [route.group for route in world.routes.writes[-1]] == [B]
    elsewhere = replace(second, version=EpochVersion(5, 3), addresses={"w0": "x:1", "w1": "y:1"})
    assert changed_since(second, elsewhere) is None
    await world.keeper.follow(elsewhere)
    standing = await world.standing()
    assert (standing["a"][0], standing["b"][0]) == (("x:1",), ("y:1",))


async def test_what_could_not_be_written_is_written_with_the_next_map() -> None:
    """Also where that map changes something else."""
    world = World()
    first = a_map(EpochVersion(5, 1), a="w0", b="w0")
    world.routes.broken = True
    await world.keeper.follow(first)
    world.routes.broken = False
    moved = a_map(EpochVersion(5, 2), b="w1").placements[B]
    await world.keeper.follow(
        replace(first, version=EpochVersion(5, 2), placements={**first.placements, B: moved})
    )
    standing = await world.standing()
    assert (standing["a"][0], standing["b"][0]) == (("w0:9002",), ("w1:9002",))


async def test_a_group_that_came_or_went_is_looked_for_among_all() -> None:
    """As many groups as before, but others."""
    before = a_map(EpochVersion(5, 1), a="w0")
    assert changed_since(before, a_map(EpochVersion(5, 2), b="w0")) is None
    assert changed_since(before, a_map(EpochVersion(6, 2), a="w0")) is None
    assert changed_since(None, before) is None


async def test_routes_that_were_all_right_are_compared_again_after_a_write() -> None:
    """One that somebody else replaced is found, also where the look before found nothing."""
    world = World()
    await world.keeper.follow(a_map(EpochVersion(5, 1), a="w0"))
    await world.keeper.repair()
    await world.keeper.repair()
    await world.put(Route(A, ("evil:1",), EpochVersion(5, 9)), epoch=5)
    await world.keeper.repair()
    assert (await world.standing())["a"][0] == ("w0:9002",)
    assert world.stale == 1
