"""Coordinators elected by a Kubernetes Lease (a fake API server over real HTTP), and what becomes
of a fleet of theirs while its real store is away.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from fleet.errors import FleetError
from fleet.model import Hold, LeaderInfo, MemberState, Reason, ShardMap, Signal
from fleet.model.identity import NONE
from tests.coordinators import Fleet, running_fleet, until
from tests.fake_api_server import LEASES, FakeApiServer
from tests.valkey import Valkey, running_valkey

BUDGET_SECONDS = 15.0
"""5 s, which the simulation checks to the millisecond, and what a busy machine needs."""
"""From a death to routes without the dead, while the store is away."""


@pytest.fixture
def valkey() -> Iterator[Valkey]:
    """A server of the test's own: it is stopped."""
    with running_valkey() as server:
        yield server


@pytest.fixture
async def kube() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer.running() as server:
        yield server


def known(shard_map: ShardMap | None) -> ShardMap:
    assert shard_map is not None
    return shard_map


async def gone_from_routes(fleet: Fleet, address: str, *, within: float = BUDGET_SECONDS) -> float:
    """Seconds until no route names `address`, and every group has one."""
    began = time.monotonic()
    while True:
        routes = (await fleet.routes()).values()
        if all(route.addresses and address not in route.addresses for route in routes):
            return time.monotonic() - began
        assert time.monotonic() - began < within, f"{address} still in routes"
        await asyncio.sleep(0.01)


async def stored(fleet: Fleet) -> ShardMap | None:
    try:
        return await fleet.store.shard_map(NONE)
    except FleetError:
        return None


async def until_stored(fleet: Fleet) -> ShardMap:
    """Wait until the store has what the leader has; returns it."""
    deadline = time.monotonic() + 10.0
    while time.monotonic() < deadline:
        found = await stored(fleet)
        if found is not None and fleet.map is not None and found.version == fleet.map.version:
            return found
        await asyncio.sleep(0.02)
    raise AssertionError("the store has not got the leader's map")


async def test_a_fleet_by_lease_is_stored_like_any_other(
    tmp_path: Path, valkey: Valkey, kube: FakeApiServer
) -> None:
    """Map, shares and routes carry the Lease's epoch; the store has no holder of its own."""
    config = kube.kubeconfig(tmp_path)
    async with running_fleet(tmp_path, valkey.url, coordinators=3, kubeconfig=config) as fleet:
        found = await until_stored(fleet)
        lease = kube.store.find(LEASES, "epp", "epp-fleet-default")
        assert lease["spec"]["holderIdentity"] == fleet.leader.app.id
        epoch = int(lease["metadata"]["annotations"]["epp-fleet.dev/epoch"])
        assert found.version.epoch == epoch
        assert {route.version.epoch for route in (await fleet.routes()).values()} == {epoch}
        shares = [await fleet.store.share(name) for name in fleet.workers]
        assert sum(len(share.entries) for share in shares if share) == 12  # 6 owned, 6 stood by for
        there = await fleet.store.lease()
        assert (there.leader, there.epoch) == (None, epoch)
        assert all(running.app.ready() is None for running in fleet.coordinators)


async def test_a_leader_that_stops_hands_over_at_once(
    tmp_path: Path, valkey: Valkey, kube: FakeApiServer
) -> None:
    """Its release is seen by the watch of the others: no need to wait for the TTL."""
    config = kube.kubeconfig(tmp_path)
    async with running_fleet(tmp_path, valkey.url, coordinators=3, kubeconfig=config) as fleet:
        before, first = fleet.owners(), fleet.leader
        fleet.coordinators.remove(first)
        stopping = asyncio.create_task(first.stop())
        await until(lambda: not first.app.leading(), what="the term ended")
        began = time.monotonic()
        await until(lambda: bool(fleet.leaders()), what="another leads")
        assert time.monotonic() - began < fleet.settings.election.lease_ttl_seconds
        await stopping
        await until(lambda: fleet.owned(6), what="published")
        assert fleet.owners() == before
        assert known(fleet.map).version.epoch == 2


@pytest.mark.parametrize("how", ["stopped", "hanging"])
async def test_a_worker_dies_while_the_store_is_away(
    tmp_path: Path, valkey: Valkey, kube: FakeApiServer, how: str
) -> None:
    """Routes and control streams do not wait for it; it is written in whole when it is back."""
    config = kube.kubeconfig(tmp_path)
    async with running_fleet(tmp_path, valkey.url, workers=3, kubeconfig=config) as fleet:
        before = await until_stored(fleet)
        if how == "stopped":
            valkey.kill()
        else:
            valkey.pause()
        victim = fleet.workers["worker-1"]
        lost = victim.holds(Hold.OWNER)
        assert lost
        await victim.kill()
        took = await gone_from_routes(fleet, victim.member.addresses.ext_proc)
        logging.getLogger(__name__).info("routes rewritten in %.0f ms", took * 1000)
        heirs = [fleet.workers["worker-0"], fleet.workers["worker-2"]]
        await until(
            lambda: lost <= heirs[0].holds(Hold.OWNER) | heirs[1].holds(Hold.OWNER),
            what="the heirs were told",
        )
        (status,) = [s for s in fleet.leader.app.members() if s.member.id == "worker-1"]
        assert (status.state, status.signal) == (MemberState.DEAD, Signal.REFUSED)
        if how == "stopped":
            valkey.start()
        else:
            valkey.resume()
        found = await until_stored(fleet)
        assert found.version > before.version
        assert found.version.epoch == before.version.epoch
        assert found.placements == known(fleet.map).placements
        for heir in heirs:
            share = await fleet.store.share(heir.name)
            assert share is not None
            assert {e.group for e in share.entries if e.hold is Hold.OWNER} == heir.holds(
                Hold.OWNER
            )
        moves = [move for move in await fleet.store.moves(100) if move.reason == "owner_dead"]
        assert {(move.group, move.source) for move in moves} == {
            (str(group), "worker-1") for group in lost
        }


@pytest.mark.parametrize("how", ["stopped", "hanging"])
async def test_leader_and_worker_die_while_the_store_is_away(
    tmp_path: Path, valkey: Valkey, kube: FakeApiServer, how: str
) -> None:
    """The new leader starts from what it heard as a follower; the returning store gets the higher
    epoch, and no epoch is ever seen twice.
    """
    config = kube.kubeconfig(tmp_path)
    async with running_fleet(
        tmp_path, valkey.url, coordinators=3, workers=3, kubeconfig=config
    ) as fleet:
        await until(
            lambda: all(
                running.map is not None and running.map.version == known(fleet.map).version
                for running in fleet.coordinators
            ),
            what="followers have the map",
        )
        await until(
            lambda: all(len(running.app.members()) == 3 for running in fleet.coordinators),
            what="followers know the workers",
        )
        before, epoch = fleet.owners(), known(fleet.map).version.epoch
        if how == "stopped":
            valkey.kill()
        else:
            valkey.pause()
        first, victim = fleet.leader, fleet.workers["worker-1"]
        fleet.coordinators.remove(first)
        killing = asyncio.gather(first.kill(), victim.kill())
        took = await gone_from_routes(fleet, victim.member.addresses.ext_proc)
        await killing
        logging.getLogger(__name__).info("routes rewritten in %.0f ms", took * 1000)
        await until(lambda: known(fleet.map).version.epoch > epoch, what="the map of a new epoch")
        shard_map = known(fleet.map)
        survivors = {s: o for s, o in before.items() if o != ("worker-1",)}
        assert {s: o for s, o in fleet.owners().items() if s in survivors} == survivors
        reasons = {p.reason for p in shard_map.placements.values()}
        assert reasons <= {Reason.INITIAL, Reason.OWNER_DEAD}
        if how == "stopped":
            valkey.start()
        else:
            valkey.resume()
        found = await until_stored(fleet)
        assert found.version.epoch == (await fleet.store.lease()).epoch
        assert found.version.epoch > epoch
        for worker in (fleet.workers["worker-0"], fleet.workers["worker-2"]):
            epochs = [share.version for share in worker.history]
            assert epochs == sorted(set(epochs))


async def test_a_store_that_restarts_empty_is_filled_without_a_new_epoch(
    tmp_path: Path, valkey: Valkey, kube: FakeApiServer
) -> None:
    """The lease is not in it: nothing was lost but a copy."""
    config = kube.kubeconfig(tmp_path)
    async with running_fleet(tmp_path, valkey.url, kubeconfig=config) as fleet:
        before = await until_stored(fleet)
        valkey.command("FLUSHALL")
        found = await until_stored(fleet)
        assert (found.version.epoch, found.placements) == (
            before.version.epoch,
            before.placements,
        )
        assert all([await fleet.store.share(name) for name in fleet.workers])


async def test_a_higher_epoch_in_the_store_is_passed(
    tmp_path: Path, valkey: Valkey, kube: FakeApiServer
) -> None:
    """As after a change from an election in the store, or a Lease that was deleted."""
    config = kube.kubeconfig(tmp_path)
    async with running_fleet(tmp_path, valkey.url, kubeconfig=config) as fleet:
        await until_stored(fleet)
        before = fleet.owners()
        valkey.command("SET", "epp:{default}:epoch", "70")
        await until(lambda: known(fleet.map).version.epoch > 70, what="epoch above 70")
        assert (await until_stored(fleet)).version.epoch == 71
        assert fleet.owners() == before


async def test_a_leader_that_knows_nothing_publishes_nothing(
    tmp_path: Path, valkey: Valkey, kube: FakeApiServer
) -> None:
    """Every coordinator gone and the store away: a new one leaves all routes as they are (its epoch
    on them), and goes on as before once the store answers.
    """
    config = kube.kubeconfig(tmp_path)
    async with running_fleet(tmp_path, valkey.url, kubeconfig=config) as fleet:
        await until_stored(fleet)
        before = fleet.owners()
        routes = {service: route.addresses for service, route in (await fleet.routes()).items()}
        await fleet.coordinators.pop().stop()
        valkey.pause()
        heir = await fleet.coordinator("coordinator-9")
        await until(heir.app.leading, what="leads")
        began = time.monotonic()
        while time.monotonic() - began < 2.5 * fleet.settings.membership.ttl_seconds:
            standing = {s: route.addresses for s, route in (await fleet.routes()).items()}
            assert standing == routes
            await asyncio.sleep(0.1)
        assert heir.map is None
        valkey.resume()
        assert await fleet.settled(6) == before


async def test_a_worker_hangs_while_the_store_is_away(
    tmp_path: Path, valkey: Valkey, kube: FakeApiServer
) -> None:
    """Its control stream is silent and its health port answers nothing for two member TTLs."""
    config = kube.kubeconfig(tmp_path)
    async with running_fleet(tmp_path, valkey.url, workers=3, kubeconfig=config) as fleet:
        await until_stored(fleet)
        valkey.kill()
        hung = fleet.workers["worker-2"]
        hung.hang()
        took = await gone_from_routes(fleet, hung.member.addresses.ext_proc)
        ttl = fleet.settings.membership.ttl_seconds
        assert took > ttl


async def test_a_fleet_that_changes_its_kind_of_election_is_led_by_one_at_a_time(
    tmp_path: Path, valkey: Valkey, kube: FakeApiServer
) -> None:
    """A lease in the store, of a coordinator of before or of afterwards: the leader by Lease stands
    back while it is held, and goes on above it.
    """
    config = kube.kubeconfig(tmp_path)
    async with running_fleet(tmp_path, valkey.url, kubeconfig=config) as fleet:
        await until_stored(fleet)
        before, epoch = fleet.owners(), known(fleet.map).version.epoch
        rival = LeaderInfo("rival", "127.0.0.1:1", "127.0.0.1:1")
        lease = await fleet.store.acquire(rival, floor=0, ttl_seconds=2.5, request="r")
        assert lease.epoch == epoch + 1
        await until(lambda: not fleet.leaders(), what="it stands back", seconds=2.0)
        held = lease.remaining_seconds
        began = time.monotonic()
        await until(lambda: fleet.owned(6) and known(fleet.map).version.epoch > epoch + 1)
        assert time.monotonic() - began > held - 1.0
        assert fleet.owners() == before
        await until_stored(fleet)
