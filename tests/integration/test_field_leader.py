"""Leaders as in the field: rolled, replaced, cut off, and asked to move a thousand groups."""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.model import EpochVersion, GroupKey, Hold, Phase
from tests.coordinators import Fleet, running_fleet, until
from tests.fake_worker import FakeWorker
from tests.valkey import Valkey, running_valkey


@pytest.fixture(scope="module")
def server() -> Iterator[Valkey]:
    """One real store."""
    with running_valkey() as valkey:
        yield valkey


@pytest.fixture
def valkey(server: Valkey) -> Valkey:
    """The module's server, emptied."""
    server.command("FLUSHALL")
    return server


async def test_a_roll_out_of_coordinators_never_waits_for_a_leader(
    tmp_path: Path, valkey: Valkey
) -> None:
    """Three are replaced one after the other, the leader first each time: whoever follows is as
    ready as whoever leads, a leader is there again within a lease, nothing moves
    (inference-extension#1619, llm-d-router#2603)."""
    async with running_fleet(tmp_path, valkey.url, coordinators=3, workers=2) as fleet:
        before, moves = fleet.owners(), await fleet.store.moves(100)
        lease = fleet.settings.election.ttl_seconds
        for number in range(3):
            await until(lambda: all(c.app.ready() is None for c in fleet.coordinators))
            leader = fleet.leader
            began = time.monotonic()
            await leader.stop()
            fleet.coordinators.remove(leader)
            await until(lambda: bool(fleet.leaders()), what="another one leads")
            assert time.monotonic() - began < lease, "it gave the lease up"
            await fleet.coordinator(f"coordinator-{3 + number}")
            assert await fleet.settled(6) == before
        assert await fleet.store.moves(100) == moves


def owners_by_version(workers: list[FakeWorker]) -> dict[EpochVersion, Counter[GroupKey]]:
    """How many workers were told to own each group, by the epoch.version that told them."""
    found: dict[EpochVersion, Counter[GroupKey]] = defaultdict(Counter)
    for worker in workers:
        for share in worker.history:
            mine = (entry.group for entry in share.entries if entry.hold is Hold.OWNER)
            found[share.version].update(mine)
    return found


async def test_new_leaders_and_new_lists_give_no_group_to_two(
    tmp_path: Path, valkey: Valkey
) -> None:
    """Pools and workers stay the same while leaders come and go and read everything anew: no move,
    and no version of the map names two owners (opentelemetry-operator#1038, #4031, #968)."""
    async with running_fleet(tmp_path, valkey.url, coordinators=2, workers=3) as fleet:
        before, moves = fleet.owners(), await fleet.store.moves(100)
        for number in range(3):
            leader = fleet.leader
            await leader.stop()
            fleet.coordinators.remove(leader)
            await fleet.coordinator(f"coordinator-{2 + number}")
            await until(lambda: bool(fleet.leaders()), what="another one leads")
            assert await fleet.settled(6) == before
        assert await fleet.store.moves(100) == moves
        told = owners_by_version(list(fleet.workers.values()))
        assert all(count == 1 for owners in told.values() for count in owners.values())
        epochs = {version.epoch for version in told}
        assert len(epochs) == 4, "each leader told everybody"


async def test_workers_without_coordinators_and_store_keep_what_they_have(tmp_path: Path) -> None:
    """All coordinators and the store are gone for a while; both come back empty: routes never
    changed, and the workers' own word is the map again (opentelemetry-operator#2159)."""
    with running_valkey() as own:
        async with running_fleet(tmp_path, own.url, workers=3) as fleet:
            before, routes = fleet.owners(), await fleet.routes()
            held = {name: worker.holds(Hold.OWNER) for name, worker in fleet.workers.items()}
            await fleet.coordinators.pop().stop()
            own.kill()
            ttl = fleet.settings.membership.ttl_seconds
            await asyncio.sleep(ttl + 0.5)  # longer than any silence that would be a death
            addresses = {service: route.addresses for service, route in routes.items()}
            now = {service: route.addresses for service, route in (await fleet.routes()).items()}
            assert now == addresses
            assert {n: w.holds(Hold.OWNER) for n, w in fleet.workers.items()} == held
            own.restart_empty()
            await fleet.coordinator("coordinator-9")
            assert await fleet.settled(6) == before
            assert {move.source for move in await fleet.store.moves(100)} <= {""}


async def test_a_worker_that_shares_a_thousand_groups_does_so_in_seconds(
    tmp_path: Path, valkey: Valkey
) -> None:
    """One worker has all, a second one joins, then the first drains: half of the groups each time,
    in a few maps, not in one map a group (kubernetes-controller-sharding#637)."""
    count = 1000
    fleet = Fleet(tmp_path, valkey.url)
    try:
        fleet.pools(*[f"pool-{n}" for n in range(count)])
        await fleet.worker("worker-0")
        await fleet.coordinator("coordinator-0")
        await fleet.settled(count, seconds=60)
        await fleet.worker("worker-1")
        half = count // 2 - 50
        began, version = time.monotonic(), fleet.map.version.version  # type: ignore[union-attr]
        await until(
            lambda: Counter(fleet.owners().values())["worker-1",] >= half,
            seconds=60,
            what="the newcomer has its half",
        )
        await fleet.leader.app.set_drain("worker-0", True)
        await until(
            lambda: set(fleet.owners().values()) == {("worker-1",)},
            seconds=60,
            what="the second has all",
        )
        assert time.monotonic() - began < 30.0, "both together, on a busy machine"
        assert fleet.map is not None
        assert fleet.map.version.version - version < 60
        assert all(p.phase is Phase.OWNED for p in fleet.map.placements.values())
    finally:
        await fleet.close()


async def test_a_crash_looping_worker_takes_nothing_away_for_a_while(
    tmp_path: Path, valkey: Valkey
) -> None:
    """It dies and comes back three times: the third life is given nothing at first, so that the
    next death cuts nobody's responses (opentelemetry-operator#3781)."""
    async with running_fleet(tmp_path, valkey.url, workers=3, pools=12) as fleet:
        looping = fleet.workers["worker-2"]
        for _ in range(3):
            await looping.restart()
            member = looping.member
            await until(
                lambda member=member: any(  # type: ignore[misc]
                    each.member.incarnation == member.incarnation
                    for each in fleet.leader.app.members()
                ),
                what="it is back",
            )
            await until(lambda: bool(looping.history), what="it is told what to hold")
        others = {("worker-0",), ("worker-1",)}
        await until(lambda: set(fleet.owners().values()) == others, what="others have everything")
        await asyncio.sleep(1.0)  # several looks of the leader
        assert set(fleet.owners().values()) == others
        assert not any(p.moving_to for p in fleet.map.placements.values())  # type: ignore[union-attr]
