"""Fleets that grow, shrink and restart as in the field: every pool keeps a live owner."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.model import GroupKey, Hold, MemberState
from fleet.placement import Candidate, Current, Plan, place
from fleet.settings import PlacementSettings
from fleet.settings.model import RedisSettings
from fleet.store.redis import RedisStore
from tests.coordinators import Fleet, running_fleet, until
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


def live_owners(fleet: Fleet, gone: set[str], count: int) -> bool:
    """Whether all of `count` groups are owned and acknowledged by workers that live."""
    return fleet.owned(count) and not any(set(owners) & gone for owners in fleet.owners().values())


async def test_no_pool_is_ever_left_without_a_live_owner(tmp_path: Path, valkey: Valkey) -> None:
    """A pool that sorts first comes, one goes, three workers become two, one comes back under
    another name while its old beat is still fresh: each time all are owned again by the living,
    the newcomer is told what to hold, and the old name is forgotten (argo-cd#29476, #24147,
    #20965)."""
    async with running_fleet(tmp_path, valkey.url, workers=3) as fleet:
        before = fleet.owners()
        names = sorted(path.stem for path in fleet.manifests.glob("*.yaml"))
        fleet.pools("aaa-first", *names)
        await fleet.settled(7)
        assert all(len(owners) == 1 for owners in fleet.owners().values())
        fleet.pools("aaa-first", *names[1:])
        await fleet.settled(6)
        after = fleet.owners()
        moved = [name for name in after if name in before and after[name] != before[name]]
        assert len(moved) <= 1, "one may move for balance"
        await fleet.workers.pop("worker-0").kill()
        newcomer = await fleet.worker("worker-9")
        await until(lambda: live_owners(fleet, {"worker-0"}, 6), what="owned by the living")
        await until(lambda: bool(newcomer.history), what="the newcomer is told, if only: nothing")
        assert fleet.map is not None
        assert "worker-0" not in fleet.map.addresses
        assert await fleet.store.share("worker-0") is None


async def test_half_of_ten_workers_killed_and_then_all_restarted(
    tmp_path: Path, valkey: Valkey
) -> None:
    """No ghosts: the ring has as many members as live; then a restart of all that are left, at
    once, leaves every pool owned (dskit#207, loki#5191, mimir#571, mimir#1917)."""
    async with running_fleet(tmp_path, valkey.url, workers=10) as fleet:
        victims = {f"worker-{n}" for n in range(5)}
        await asyncio.gather(*(fleet.workers.pop(name).kill() for name in victims))
        await until(lambda: live_owners(fleet, victims, 6), what="owned by the living")

        async def ring_members() -> set[str]:
            ring = await fleet.store.ring()
            return set() if ring is None else set(ring[0].weights)

        deadline = time.monotonic() + 5
        while await ring_members() != set(fleet.workers) and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        assert await ring_members() == set(fleet.workers)
        assert fleet.map is not None
        assert set(fleet.map.addresses) == set(fleet.workers)
        await asyncio.gather(*(worker.restart() for worker in fleet.workers.values()))
        await until(lambda: live_owners(fleet, victims, 6), what="owned again", seconds=10)
        await until(
            lambda: sum(len(w.holds(Hold.OWNER)) for w in fleet.workers.values()) == 6,
            what="each owner knows",
        )


async def test_edits_of_a_pool_move_nothing(tmp_path: Path, valkey: Valkey) -> None:
    """50 edits of labels, annotations and status: no move, no audit record, no new owner
    (opentelemetry-operator#2280)."""
    async with running_fleet(tmp_path, valkey.url, workers=3) as fleet:
        before, moves = fleet.owners(), await fleet.store.moves(100)
        path = min(fleet.manifests.glob("*.yaml"))
        original = json.loads(path.read_text())
        for number in range(50):
            original["metadata"]["labels"] = {"edit": str(number)}
            original["metadata"]["annotations"] = {"edit": str(number)}
            original["status"] = {"parents": [{"edit": number}]}
            path.write_text(json.dumps(original))
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.6)  # longer than a look and a tick
        assert fleet.owners() == before
        assert await fleet.store.moves(100) == moves


def grown(workers: int, loads: dict[GroupKey, float], before: Plan | None) -> Plan:
    current = {}
    if before is not None:
        current = {g: Current(d.owner, d.standby) for g, d in before.decisions.items()}
    return place(
        [Candidate(f"w{n}") for n in range(workers)],
        loads,
        current,
        cap=None if before is None else before.cap,
        settings=PlacementSettings(),
    )


@pytest.mark.parametrize("hot", range(12))
def test_one_to_four_workers_with_a_hot_pool(hot: int) -> None:
    """12 pools, one with 90 % of the traffic: every newcomer gets work, and the hot pool ends up
    alone with its worker (opentelemetry-operator#2477, #5605)."""
    groups = [GroupKey("ns", f"epp-{n}", 9002) for n in range(12)]
    loads = {group: 1.0 + (99.0 if n == hot else 0.0) for n, group in enumerate(groups)}
    plan = grown(1, loads, None)
    for workers in (2, 3, 4, 4, 4):
        plan = grown(workers, loads, plan)
    owners = Counter(decision.owner for decision in plan.decisions.values())
    heavy = plan.decisions[groups[hot]].owner
    assert len(owners) == 4
    assert owners[heavy] == 1
    assert min(count for owner, count in owners.items() if owner != heavy) >= 2


def test_scaling_by_one_moves_only_a_share() -> None:
    """200 equal pools, 4 -> 5 -> 4 workers: about a fifth moves to the newcomer, and only what it
    had comes back (opentelemetry-operator#5605)."""
    loads = {GroupKey("ns", f"epp-{n}", 9002): 1.0 for n in range(200)}
    four = grown(4, loads, grown(4, loads, None))
    five = grown(5, loads, four)
    moved = [g for g, d in five.decisions.items() if d.owner != four.decisions[g].owner]
    taken = [group for group in moved if five.decisions[group].owner == "w4"]
    assert len(moved) <= 200 / 5 * 1.1
    assert len(taken) >= 0.9 * len(moved)
    back = grown(4, loads, five)
    again = [g for g, d in back.decisions.items() if d.owner != five.decisions[g].owner]
    assert all(five.decisions[group].owner == "w4" for group in again)


async def test_two_fleets_in_one_store_do_not_meet(tmp_path: Path, valkey: Valkey) -> None:
    """The same worker ids and pool names in both, other fleet names: each has its own leader, ring
    and shares (kubernetes-controller-sharding#430)."""
    async with running_fleet(tmp_path, valkey.url, workers=2) as fleet:
        before = fleet.owners()
        other = RedisStore(RedisSettings(valkey.url), "green")
        assert (await other.lease()).leader is None
        assert await other.members() == ()
        assert await other.ring() is None
        await other.beat(fleet.workers["worker-0"].member)
        assert {beat.member.id for beat in await other.members()} == {"worker-0"}
        await asyncio.sleep(0.5)
        assert fleet.owners() == before
        states = {one.member.id: one.state for one in fleet.leader.app.members()}
        assert states == {"worker-0": MemberState.ALIVE, "worker-1": MemberState.ALIVE}
        await other.close()
