"""Planned moves of a whole fleet: side by side, observable at each step, none held up for long."""

import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fleet.model import Hold, Phase
from fleet.store.contract import Move
from tests.coordinators import Fleet, until
from tests.fake_worker import FakeWorker
from tests.valkey import Valkey, running_valkey

POOLS = 24
DEADLINE = 5.0
"""What need not wait for it takes a second, on a busy machine a few."""


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


@contextlib.asynccontextmanager
async def placed(
    folder: Path, redis_url: str, *, workers: int, deadline: float = DEADLINE
) -> AsyncIterator[Fleet]:
    """A leader whose moves have `deadline` seconds, and workers that share the pools."""
    fleet = Fleet(folder, redis_url)
    own = replace(fleet.settings.coordinator, move_deadline_seconds=deadline)
    fleet.settings = replace(fleet.settings, coordinator=own)
    try:
        fleet.pools(*[f"pool-{n}" for n in range(POOLS)])
        for n in range(workers):
            await fleet.worker(f"worker-{n}")
        await fleet.coordinator("coordinator-0")
        await fleet.settled(POOLS)
        yield fleet
    finally:
        await fleet.close()


def moving_to(fleet: Fleet, worker: str) -> set[str]:
    """Services of the groups that are on their way to this worker, by the map."""
    assert fleet.map is not None
    return {
        key.service
        for key, placement in fleet.map.placements.items()
        if placement.phase is Phase.MOVING and placement.moving_to == worker
    }


def owned_by(fleet: Fleet, worker: str) -> set[str]:
    """Services of the groups that this worker owns, by the map."""
    return {service for service, owners in fleet.owners().items() if owners == (worker,)}


def slow(worker: FakeWorker) -> None:
    """It never gets its pods listed."""
    worker.opens = False


async def history(fleet: Fleet) -> list[Move]:
    """The moves that had an owner to move from, oldest first."""
    return [move for move in reversed(await fleet.store.moves(1000)) if move.source]


async def test_each_step_of_a_drain_can_be_seen(tmp_path: Path, valkey: Valkey) -> None:
    """Moving, with owner and gainer, while gateways go to the owner; owned by the gainer while the
    loser drains; then the loser is gone. The history says when each began and how it ended."""
    async with placed(tmp_path, valkey.url, workers=2, deadline=30.0) as fleet:
        loser, gainer = fleet.workers["worker-0"], fleet.workers["worker-1"]
        lost = owned_by(fleet, "worker-0")
        slow(gainer)
        began = time.time()
        await fleet.leader.app.set_drain("worker-0", True)
        await until(lambda: moving_to(fleet, "worker-1") == lost, what="all are moving")
        assert owned_by(fleet, "worker-0") == lost
        assert await history(fleet) == []
        gainer.opens = True
        gainer.changed()
        await until(lambda: not owned_by(fleet, "worker-0"), what="all have moved")
        assert fleet.map is not None
        draining = {k.service for k, p in fleet.map.placements.items() if p.draining}
        assert draining == lost
        moves = await history(fleet)
        assert {move.group.partition("/")[2].partition(":")[0] for move in moves} == lost
        assert {(m.source, m.target, m.reason, m.outcome) for m in moves} == {
            ("worker-0", "worker-1", "drain", "done")
        }
        assert all(began - 0.1 <= m.started <= m.finished <= time.time() + 0.1 for m in moves)
        loser.quiet = True
        loser.changed()
        await until(
            lambda: not any(p.draining for p in fleet.map.placements.values()),  # type: ignore[union-attr]
            what="nobody drains any more",
        )


async def test_a_gainer_that_never_acknowledges_delays_only_its_own(
    tmp_path: Path, valkey: Valkey
) -> None:
    """worker-0 drains to two others, of which one opens nothing: the other one has its part long
    before the deadline; the slow one's ends at the deadline, by a plain move."""
    async with placed(tmp_path, valkey.url, workers=3) as fleet:
        before = fleet.owners()
        slow(fleet.workers["worker-1"])
        began = time.monotonic()
        await fleet.leader.app.set_drain("worker-0", True)
        await until(lambda: moving_to(fleet, "worker-1"), what="some move to the slow one")
        late = moving_to(fleet, "worker-1")
        quick = {s for s, owners in before.items() if owners == ("worker-0",)} - late
        assert quick and late
        await until(lambda: quick <= owned_by(fleet, "worker-2"), what="the quick one has its part")
        assert time.monotonic() - began < DEADLINE, "nothing waited for the slow one"
        assert owned_by(fleet, "worker-0") == late
        await until(lambda: not owned_by(fleet, "worker-0"), what="the deadline ends the others")
        assert time.monotonic() - began >= DEADLINE
        outcomes = {
            m.group.partition("/")[2].partition(":")[0]: m.outcome for m in await history(fleet)
        }
        assert outcomes == dict.fromkeys(quick, "done") | dict.fromkeys(late, "deadline")
        kept = {s for s, owners in before.items() if owners != ("worker-0",)}
        assert {s: fleet.owners()[s] for s in kept} == {s: before[s] for s in kept}


async def test_a_gainer_that_hangs_is_replaced_once_it_is_dead(
    tmp_path: Path, valkey: Valkey
) -> None:
    """As after SIGSTOP: its ports accept and nothing is said. Its moves end with its death, a TTL
    later and long before the deadline, and go to the third worker, which has its own part since."""
    async with placed(tmp_path, valkey.url, workers=3, deadline=30.0) as fleet:
        before = fleet.owners()
        mine = owned_by(fleet, "worker-0")
        slow(fleet.workers["worker-1"])
        fleet.workers["worker-1"].hang()
        began = time.monotonic()
        await fleet.leader.app.set_drain("worker-0", True)
        await until(lambda: moving_to(fleet, "worker-1"), what="some move to the hung one")
        late = moving_to(fleet, "worker-1")
        await until(lambda: mine - late <= owned_by(fleet, "worker-2"), what="the others moved")
        assert owned_by(fleet, "worker-1") == {
            s for s, owners in before.items() if owners == ("worker-1",)
        }, "it is not dead yet"
        await until(lambda: len(owned_by(fleet, "worker-2")) == POOLS, what="all is at the third")
        assert time.monotonic() - began < 10.0
        outcomes = Counter((m.reason, m.target, m.outcome) for m in await history(fleet))
        assert outcomes["drain", "worker-1", "gainer_dead"] == len(late)
        assert outcomes["drain", "worker-2", "done"] == len(mine)


async def test_a_newcomer_that_opens_nothing_takes_nothing_away(
    tmp_path: Path, valkey: Valkey
) -> None:
    """Two join at once. One cannot list any pods: the owners keep what it was to get, gateways
    never see it, and the other has its part before the deadline (fluent#5)."""
    async with placed(tmp_path, valkey.url, workers=2) as fleet:
        broken = FakeWorker("worker-9", fleet.store, "test-token")
        slow(broken)
        fleet.workers["worker-9"] = await broken.start()
        began = time.monotonic()
        await fleet.worker("worker-3")
        await until(lambda: owned_by(fleet, "worker-3"), what="the good one has something")
        assert time.monotonic() - began < DEADLINE
        await until(lambda: moving_to(fleet, "worker-9"), what="some move to the broken one")
        await until(lambda: not moving_to(fleet, "worker-9"), what="they are given up")
        assert not owned_by(fleet, "worker-9")
        outcomes = Counter((m.target, m.outcome) for m in await history(fleet))
        assert outcomes["worker-9", "deadline"] >= 1
        assert ("worker-9", "done") not in outcomes
        address = broken.member.addresses.ext_proc
        assert all(route.addresses != (address,) for route in (await fleet.routes()).values())


async def test_an_undrain_in_the_middle_calls_off_what_has_not_moved(
    tmp_path: Path, valkey: Valkey
) -> None:
    """What the gainers have taken over stays there; all else stays where it is, and the gainers
    drop it."""
    async with placed(tmp_path, valkey.url, workers=3, deadline=30.0) as fleet:
        mine = owned_by(fleet, "worker-0")
        slow(fleet.workers["worker-1"])
        await fleet.leader.app.set_drain("worker-0", True)
        await until(lambda: moving_to(fleet, "worker-1"), what="some move to the slow one")
        late = moving_to(fleet, "worker-1")
        await until(lambda: mine - late <= owned_by(fleet, "worker-2"), what="the others moved")
        await until(lambda: fleet.workers["worker-0"].draining, what="it has the mark")
        await fleet.leader.app.set_drain("worker-0", False)
        await until(lambda: not moving_to(fleet, "worker-1"), what="called off")
        assert owned_by(fleet, "worker-0") >= late
        outcomes = {
            m.group.partition("/")[2].partition(":")[0]: m.outcome for m in await history(fleet)
        }
        assert {service for service, outcome in outcomes.items() if outcome == "cancelled"} == late
        fleet.workers["worker-1"].opens = True
        opened = fleet.workers["worker-1"]
        await until(lambda: not opened.holds(Hold.OPENING), what="the gainer opens them no more")
        loser = fleet.workers["worker-0"]
        held = {key.service for key in loser.holds(Hold.OWNER)}
        assert late <= held


async def test_scaling_up_and_down_is_told_move_by_move(tmp_path: Path, valkey: Valkey) -> None:
    """2 -> 3 -> 2 workers: joins, then drains; each ends `done`, starts before it ends, and no
    group moves twice in one step."""
    async with placed(tmp_path, valkey.url, workers=2, deadline=30.0) as fleet:
        await fleet.worker("worker-2")
        await until(lambda: len(owned_by(fleet, "worker-2")) >= 7, what="the newcomer has a third")
        await fleet.settled(POOLS)
        joined = await history(fleet)
        assert {(m.reason, m.target, m.outcome) for m in joined} == {("join", "worker-2", "done")}
        assert max(Counter(move.group for move in joined).values()) == 1
        assert len(joined) == len(owned_by(fleet, "worker-2"))
        await fleet.leader.app.set_drain("worker-2", True)
        await until(lambda: not owned_by(fleet, "worker-2"), what="it has handed all over")
        left = (await history(fleet))[len(joined) :]
        assert {(m.reason, m.source, m.outcome) for m in left} == {("drain", "worker-2", "done")}
        assert len(left) == len(joined)
        assert all(move.started <= move.finished for move in (*joined, *left))
