"""Coordinators over a real store, real control streams and real EDS files."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.model import Hold, MemberState, Phase, Reason, Signal
from tests.coordinators import group, running_fleet, until
from tests.valkey import Valkey, running_valkey


@pytest.fixture(scope="module")
def server() -> Iterator[Valkey]:
    with running_valkey() as valkey:
        yield valkey


@pytest.fixture
def valkey(server: Valkey) -> Valkey:
    """The module's server, emptied."""
    server.command("FLUSHALL")
    return server


async def test_first_placement_reaches_store_routes_and_workers(
    tmp_path: Path, valkey: Valkey
) -> None:
    """Every pool has an owner that acknowledged, a stand-by, and a route to its owner alone."""
    async with running_fleet(tmp_path, valkey.url, workers=3) as fleet:
        shard_map = fleet.map
        assert shard_map is not None
        routes = await fleet.routes()
        for key, placement in shard_map.placements.items():
            (owner,) = placement.owners
            assert placement.standby not in (None, owner)
            assert placement.reason is Reason.INITIAL
            assert routes[key.service].addresses == (
                fleet.workers[owner].member.addresses.ext_proc,
            )
            assert routes[key.service].version.epoch == shard_map.version.epoch
            assert key in fleet.workers[owner].holds(Hold.OWNER)
        assert sum(len(w.holds(Hold.OWNER)) for w in fleet.workers.values()) == 6
        await until(
            lambda: sum(len(w.holds(Hold.STANDBY)) for w in fleet.workers.values()) == 6,
            what="stand-bys told",
        )
        stored = await fleet.store.shard_map(shard_map.version._replace(version=0))
        assert stored is not None
        assert stored.placements == shard_map.placements


async def test_a_killed_worker_is_replaced_in_routes_within_150_ms(
    tmp_path: Path, valkey: Valkey
) -> None:
    """Refusals prove the death; stand-bys own its groups; nobody else's groups move."""
    async with running_fleet(tmp_path, valkey.url, workers=3) as fleet:
        before = fleet.owners()
        shard_map = fleet.map
        assert shard_map is not None
        standbys = {key.service: p.standby for key, p in shard_map.placements.items()}
        victim = fleet.workers["worker-1"]
        lost = {service for service, owners in before.items() if owners == ("worker-1",)}
        assert lost
        address = victim.member.addresses.ext_proc
        await victim.kill()
        async with asyncio.timeout(20.0):  # 150 ms on an idle machine
            while any(address in route.addresses for route in (await fleet.routes()).values()):
                await asyncio.sleep(0.002)
        # The map is shown once the workers were told of it, too: right after the routes.
        gone = ("worker-1",)
        await until(lambda: gone not in fleet.owners().values(), what="the map says so")
        after = fleet.owners()
        for service, owners in before.items():
            assert after[service] == ((standbys[service],) if service in lost else owners), service
        status = next(s for s in fleet.leader.app.members() if s.member.id == "worker-1")
        assert (status.state, status.signal) == (MemberState.DEAD, Signal.REFUSED)


async def test_a_hung_worker_is_dead_after_the_ttl_and_rejoins_as_new(
    tmp_path: Path, valkey: Valkey
) -> None:
    """Ports accept, nothing is said: silent after 2 s; it is told so when it comes back."""
    async with running_fleet(tmp_path, valkey.url, workers=3) as fleet:
        hung = fleet.workers["worker-2"]
        incarnation = hung.member.incarnation
        hung.hang()
        began = time.monotonic()
        await until(
            lambda: all(owners != ("worker-2",) for owners in fleet.owners().values()), seconds=20
        )
        assert time.monotonic() - began > 1.4
        hung.wake_up()
        await until(lambda: bool(hung.verdicts), what="a last word")
        assert (hung.verdicts[0].kind, hung.verdicts[0].incarnation) == ("dead", incarnation)
        await until(
            lambda: any(
                s.member.id == "worker-2" and s.state is MemberState.ALIVE
                for s in fleet.leader.app.members()
            ),
            seconds=6,
            what="joined as new",
        )


async def test_drain_hands_over_by_make_before_break(tmp_path: Path, valkey: Valkey) -> None:
    """Routes change only after the gainer opened; the loser drains until it is quiet."""
    async with running_fleet(tmp_path, valkey.url, workers=2) as fleet:
        loser, gainer = fleet.workers["worker-0"], fleet.workers["worker-1"]
        lost = loser.holds(Hold.OWNER)
        assert lost
        gainer.opens = False
        await fleet.leader.app.set_drain("worker-0", True)
        await until(lambda: lost <= gainer.holds(Hold.OPENING), what="opening at the gainer")
        routes = await fleet.routes()
        old = loser.member.addresses.ext_proc
        assert all(routes[key.service].addresses == (old,) for key in lost)
        assert loser.holds(Hold.OWNER) == lost
        gainer.opens = True
        gainer.changed()
        await until(lambda: lost <= gainer.holds(Hold.OWNER), what="owned by the gainer")
        routes = await fleet.routes()
        new = gainer.member.addresses.ext_proc
        assert all(routes[key.service].addresses == (new,) for key in lost)
        await until(lambda: loser.holds(Hold.DRAINING) == lost, what="draining")
        loser.quiet = True
        loser.changed()
        await until(
            lambda: not loser.holds(Hold.DRAINING), what="nothing left to drain at the loser"
        )
        assert {p.reason for p in fleet.map.placements.values()} <= {  # type: ignore[union-attr]
            Reason.DRAIN,
            Reason.INITIAL,
        }
        moves = [move for move in await fleet.store.moves(100) if move.reason == "drain"]
        assert {(m.source, m.target, m.outcome) for m in moves} == {
            ("worker-0", "worker-1", "done")
        }
        assert len(moves) == len(lost)


async def test_a_leader_that_stops_hands_over_without_a_move(
    tmp_path: Path, valkey: Valkey
) -> None:
    """SIGTERM releases the lease; the next leader has a higher epoch and the same owners."""
    async with running_fleet(tmp_path, valkey.url, coordinators=3, workers=3) as fleet:
        before, first = fleet.owners(), fleet.leader
        epoch = first.map.version.epoch  # type: ignore[union-attr]
        since = {k: p.since for k, p in first.map.placements.items()}  # type: ignore[union-attr]
        fleet.coordinators.remove(first)
        async with asyncio.timeout(10.0):
            await first.stop()
        await until(
            lambda: (
                fleet.map is not None
                and fleet.map.version.epoch > epoch
                and fleet.map.leader.id == fleet.leader.app.id
            ),
            what="a new leader's map",
        )
        assert fleet.owners() == before
        shard_map = fleet.map
        assert shard_map is not None
        assert {k: p.since for k, p in shard_map.placements.items()} == since
        moves = await fleet.store.moves(100)
        assert {move.version.epoch for move in moves} == {epoch}, "no move of the new epoch"
        await until(
            lambda: all(w.share.version.epoch > epoch for w in fleet.workers.values()),
            what="every worker follows the new leader",
        )
        routes = await fleet.routes()
        assert {r.version.epoch for r in routes.values()} == {shard_map.version.epoch}


async def test_followers_show_the_same_map_and_workers(tmp_path: Path, valkey: Valkey) -> None:
    """Pushed or polled: at most a moment behind, whoever is asked."""
    async with running_fleet(tmp_path, valkey.url, coordinators=3, workers=2) as fleet:
        await until(
            lambda: all(
                running.map is not None
                and fleet.map is not None
                and running.map.version == fleet.map.version
                and [(s.member.id, s.state, s.owned) for s in running.app.members()]
                == [(s.member.id, s.state, s.owned) for s in fleet.leader.app.members()]
                for running in fleet.coordinators
            ),
            what="followers agree",
        )
        leader = fleet.leader.app.leader()
        assert leader is not None
        assert all(running.app.leader() == leader for running in fleet.coordinators)
        assert all(running.app.ready() is None for running in fleet.coordinators)


async def test_a_flushed_store_is_written_again_and_no_owner_changes(
    tmp_path: Path, valkey: Valkey
) -> None:
    """The map comes back with a higher epoch; workers never lose a group."""
    async with running_fleet(tmp_path, valkey.url, coordinators=3, workers=3) as fleet:
        before = fleet.owners()
        epoch = fleet.map.version.epoch  # type: ignore[union-attr]
        held = {name: worker.holds(Hold.OWNER) for name, worker in fleet.workers.items()}
        valkey.command("FLUSHALL")
        await until(
            lambda: fleet.map is not None and fleet.map.version.epoch > epoch,
            what="a map of a higher epoch",
        )
        stored = None
        deadline = time.monotonic() + 5
        while stored is None and time.monotonic() < deadline:
            stored = await fleet.store.shard_map(fleet.map.version._replace(epoch=0))  # type: ignore[union-attr]
            await asyncio.sleep(0.05)
        assert stored is not None
        assert {k.service: p.owners for k, p in stored.placements.items()} == before
        assert fleet.owners() == before
        await until(
            lambda: all(w.share.version.epoch > epoch for w in fleet.workers.values()),
            what="workers follow",
        )
        for name, worker in fleet.workers.items():
            assert worker.holds(Hold.OWNER) == held[name]
            assert all(
                held[name] <= {e.group for e in share.entries if e.hold is Hold.OWNER}
                for share in worker.history[-2:]
            )


async def test_a_new_leader_without_memory_or_store_asks_the_workers(
    tmp_path: Path, valkey: Valkey
) -> None:
    """All coordinators gone and the store emptied: holds are the map, their epoch is passed."""
    async with running_fleet(tmp_path, valkey.url, workers=3) as fleet:
        before = fleet.owners()
        epoch = fleet.map.version.epoch  # type: ignore[union-attr]
        await fleet.coordinators.pop().stop()
        valkey.command("FLUSHALL")
        await fleet.coordinator("coordinator-9")
        assert await fleet.settled(6) == before
        assert fleet.map is not None
        assert fleet.map.version.epoch > epoch
        assert {p.reason for p in fleet.map.placements.values()} == {Reason.KEPT}


async def test_a_higher_epoch_that_a_worker_has_seen_is_passed(
    tmp_path: Path, valkey: Valkey
) -> None:
    """A worker of a higher epoch joins: the leader acquires again above it, nothing moves."""
    async with running_fleet(tmp_path, valkey.url, workers=2) as fleet:
        before = fleet.owners()
        worker = fleet.workers["worker-0"]
        worker.seen = worker.seen._replace(epoch=77)
        worker.changed()
        await until(
            lambda: fleet.map is not None and fleet.map.version.epoch > 77, what="epoch above 77"
        )
        await until(lambda: worker.share.version.epoch > 77, what="the worker follows again")
        assert fleet.owners() == before


async def test_a_foreign_route_is_repaired_and_counted(tmp_path: Path, valkey: Valkey) -> None:
    """What an old leader wrote late does not stand: the leader looks four times a second."""
    async with running_fleet(tmp_path, valkey.url, workers=2) as fleet:
        service = group("pool-3").service
        right = (await fleet.routes())[service]
        (path,) = [p for p in fleet.eds.iterdir() if p.is_file() and service in p.read_text()]
        text = path.read_text()
        stale = text.replace(right.addresses[0].rpartition(":")[2], "1")
        assert stale != text
        path.write_text(stale)
        async with asyncio.timeout(20.0):
            while (await fleet.routes())[service].addresses != right.addresses:
                await asyncio.sleep(0.01)


async def test_pools_come_and_go(tmp_path: Path, valkey: Valkey) -> None:
    """A new pool is placed, a removed one loses its route; the others stay."""
    async with running_fleet(tmp_path, valkey.url, workers=2) as fleet:
        before = fleet.owners()
        fleet.pools(*[f"pool-{n}" for n in range(1, 7)])
        await until(lambda: group("pool-6").service in fleet.owners(), what="placed")
        after = await fleet.settled(6)
        gone, new = group("pool-0").service, group("pool-6").service
        assert {s: o for s, o in after.items() if s != new} == {
            s: o for s, o in before.items() if s != gone
        }
        routes = await fleet.routes()
        assert gone not in routes
        assert new in routes


async def test_without_workers_groups_are_unowned_until_one_joins(
    tmp_path: Path, valkey: Valkey
) -> None:
    """They are counted, and placed as soon as there is somebody."""
    async with running_fleet(tmp_path, valkey.url, workers=0, pools=0) as fleet:
        fleet.pools("pool-0")
        await until(lambda: fleet.owners() == {group("pool-0").service: ()}, what="unowned")
        assert fleet.map is not None
        assert fleet.map.placements[group("pool-0")].phase is Phase.UNOWNED
        await fleet.worker("worker-0")
        assert await fleet.settled(1) == {group("pool-0").service: ("worker-0",)}


async def test_a_duplicate_id_is_refused_while_the_first_lives(
    tmp_path: Path, valkey: Valkey
) -> None:
    """The newcomer hears `duplicate`; the first keeps all that it has."""
    async with running_fleet(tmp_path, valkey.url, workers=2) as fleet:
        before = fleet.owners()
        from tests.coordinators import TOKEN
        from tests.fake_worker import FakeWorker

        rival = await FakeWorker("worker-0", fleet.store, TOKEN).start()
        try:
            await until(lambda: bool(rival.verdicts), what="a verdict")
            assert rival.verdicts[0].kind == "duplicate"
            assert fleet.owners() == before
            assert not fleet.workers["worker-0"].verdicts
        finally:
            await rival.kill()


async def test_a_restarted_worker_is_a_new_one(tmp_path: Path, valkey: Valkey) -> None:
    """The same id and ports, another incarnation: its groups fail over, it joins empty."""
    async with running_fleet(tmp_path, valkey.url, workers=3) as fleet:
        lost = {s for s, owners in fleet.owners().items() if owners == ("worker-0",)}
        old = fleet.workers["worker-0"].member.incarnation
        await fleet.workers["worker-0"].restart()
        await until(
            lambda: (
                fleet.map is not None and fleet.map.incarnations.get("worker-0") not in (None, old)
            ),
            what="the new incarnation in the map",
        )
        assert fleet.map is not None
        assert (fleet.map.dead[-1].id, fleet.map.dead[-1].incarnation) == ("worker-0", old)
        moved = [m for m in await fleet.store.moves(100) if m.reason == "owner_dead"]
        assert len(moved) == len(lost)


async def test_a_worker_that_never_answers_stalls_nobody(tmp_path: Path, valkey: Valkey) -> None:
    """Known by its beat, silent on its port: the others are placed after one TTL."""
    async with running_fleet(tmp_path, valkey.url, coordinators=0, workers=0, pools=0) as fleet:
        fleet.pools(*[f"pool-{n}" for n in range(6)])
        for n in range(3):
            await fleet.worker(f"worker-{n}")
        await asyncio.sleep(0.2)
        fleet.workers["worker-2"].hang()
        await fleet.coordinator("coordinator-0")
        owners = await fleet.settled(6)
        assert set(owners.values()) == {("worker-0",), ("worker-1",)}


async def test_when_all_drain_all_keep_serving(tmp_path: Path, valkey: Valkey) -> None:
    """There is nobody to hand over to."""
    async with running_fleet(tmp_path, valkey.url, workers=2) as fleet:
        await fleet.leader.app.set_drain("worker-0", True)
        await until(lambda: set(fleet.owners().values()) == {("worker-1",)}, what="all at worker-1")
        await fleet.settled(6)
        await fleet.leader.app.set_drain("worker-1", True)
        await until(
            lambda: all(s.state is MemberState.DRAINING for s in fleet.leader.app.members()),
            what="both draining",
        )
        assert await fleet.settled(6) == dict.fromkeys(fleet.owners(), ("worker-1",))
        assert len(fleet.workers["worker-1"].holds(Hold.OWNER)) == 6
