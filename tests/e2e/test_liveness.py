"""Real workers that die, hang, restart or are cut off, and what the leader makes of it.

The leader and the workers that are well run in the test's process; those that come to harm are
processes. Times are those of a machine that is busy with other things: bounds are generous, and
what counts is which signal fired, and what must not have happened meanwhile.
"""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from fleet.model import MemberState, MemberStatus, Signal
from fleet.settings.model import MembershipSettings
from tests.coordinators import Fleet, until
from tests.fake_api_server import FakeApiServer
from tests.proxied_worker import ProxiedWorker
from tests.valkey import Valkey, running_valkey

TTL = 2.0
POOLS = 6
PATIENCE = 30.0


@pytest.fixture(scope="module")
def server() -> Iterator[Valkey]:
    with running_valkey() as valkey:
        yield valkey


@pytest.fixture
def valkey(server: Valkey) -> Valkey:
    server.command("FLUSHALL")
    return server


class Scene:
    """A leader, workers of the test's own, and processes that come to harm."""

    def __init__(self, fleet: Fleet, harmed: list[ProxiedWorker]) -> None:
        self.fleet = fleet
        self.harmed = harmed

    def status(self, name: str) -> MemberStatus | None:
        """What the leader shows of a worker."""
        return next((s for s in self.fleet.leader.app.members() if s.member.id == name), None)

    def state(self, name: str) -> MemberState | None:
        """Its state, if it is known."""
        status = self.status(name)
        return None if status is None else status.state

    async def dead(self, name: str, *, seconds: float = PATIENCE) -> MemberStatus:
        """Wait until it is dead and owns nothing; what is shown of it then."""
        await until(
            lambda: self.state(name) is MemberState.DEAD and (name,) not in self.owners(),
            seconds=seconds,
            what=f"{name} dead",
        )
        status = self.status(name)
        assert status is not None
        return status

    def owners(self) -> set[tuple[str, ...]]:
        """Who owns anything."""
        return set(self.fleet.owners().values())

    def recorded(self, name: str) -> list[tuple[str, str]]:
        """Signal and reason of each death of this worker, in the map."""
        assert self.fleet.map is not None
        return [(each.signal, each.why) for each in self.fleet.map.dead if each.id == name]


@asynccontextmanager
async def scene(
    folder: Path,
    redis_url: str,
    *,
    harmed: int = 1,
    well: int = 2,
    proxied: bool = False,
    ttl: float = TTL,
    kubeconfig: Path | None = None,
) -> AsyncIterator[Scene]:
    """Everybody owns something when it begins. Those to be harmed are `victim-0`, ..."""
    fleet = Fleet(folder, redis_url, kubeconfig)
    fleet.settings = replace(fleet.settings, membership=MembershipSettings(ttl_seconds=ttl))
    async with AsyncExitStack() as stack:
        stack.push_async_callback(fleet.close)
        fleet.pools(*[f"pool-{n}" for n in range(POOLS)])
        victims = []
        for number in range(harmed):
            address = f"127.0.0.{31 + number}" if proxied else ""
            victim = ProxiedWorker(folder, fleet, f"victim-{number}", address=address)
            stack.push_async_callback(victim.close)
            victims.append(victim)
        await asyncio.gather(*(victim.start() for victim in victims))
        for number in range(well):
            await fleet.worker(f"worker-{number}")
        await fleet.coordinator("coordinator-0")
        await fleet.settled(POOLS, seconds=60)
        made = Scene(fleet, victims)
        everybody = {(name,) for name in (*fleet.workers, *(v.name for v in victims))}
        await until(lambda: made.owners() == everybody, seconds=60, what="everybody owns something")
        yield made


async def holds(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Assert that it is so all the time."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        assert condition(), what
        await asyncio.sleep(0.02)


# Each signal alone.


async def test_a_killed_worker_is_known_by_refusals(
    tmp_path: Path, valkey: Valkey, caplog: pytest.LogCaptureFixture
) -> None:
    """SIGKILL: both ports refuse. The API, the map, the log and the audit say the same."""
    async with scene(tmp_path, valkey.url) as at:
        at.harmed[0].process.signal(signal.SIGKILL)
        status = await at.dead("victim-0")
        assert status.signal is Signal.REFUSED
        assert status.why.startswith("refused: both ports, ")
        assert "control down" in status.why
        assert at.recorded("victim-0") == [("refused", status.why)]
        (said,) = [vars(r) for r in caplog.records if r.message == "worker dead"]
        assert (said["worker"], said["signal"], said["why"]) == ("victim-0", "refused", status.why)
        moves = await at.fleet.store.moves(100)
        assert {m.why for m in moves if m.reason == "owner_dead"} == {status.why}


async def test_a_stopped_worker_is_known_by_silence(tmp_path: Path, valkey: Valkey) -> None:
    """SIGSTOP: its ports accept, its streams stand; nothing comes for the TTL."""
    async with scene(tmp_path, valkey.url) as at:
        began = time.monotonic()
        at.harmed[0].process.signal(signal.SIGSTOP)
        status = await at.dead("victim-0")
        assert time.monotonic() - began > TTL - 0.6  # it had beaten within a heartbeat
        assert status.signal is Signal.SILENT
        assert status.why.startswith("silent: beat ")
        # It wakes, hears that it is dead, and comes back as somebody new.
        incarnation = status.member.incarnation
        at.harmed[0].process.signal(signal.SIGCONT)
        await until(lambda: at.state("victim-0") is MemberState.ALIVE, seconds=PATIENCE)
        back = at.status("victim-0")
        assert back is not None
        assert back.member.incarnation != incarnation


async def test_a_container_that_restarts_behind_open_ports_is_known_by_its_incarnation(
    tmp_path: Path, valkey: Valkey
) -> None:
    """What answers under its id and addresses is somebody else, who holds nothing. (Its ports never
    refuse here, and the TTL is long: neither refusals nor silence could tell.)"""
    async with scene(tmp_path, valkey.url, proxied=True, ttl=60.0) as at:
        victim = at.harmed[0]
        before = at.status("victim-0")
        assert before is not None
        victim.process.kill()
        victim.process.start()
        await until(lambda: bool(at.recorded("victim-0")), seconds=PATIENCE, what="buried")
        ((kind, why),) = at.recorded("victim-0")
        assert kind == "incarnation"
        assert why.startswith("another incarnation said hello; ")
        await until(lambda: at.state("victim-0") is MemberState.ALIVE, seconds=PATIENCE)
        after = at.status("victim-0")
        assert after is not None
        assert after.member.incarnation != before.member.incarnation


async def test_a_worker_whose_loop_lags_lives(tmp_path: Path, valkey: Valkey) -> None:
    """It stands still for half of the TTL again and again, so that beats and reports come late."""
    ttl = 3.0
    async with scene(tmp_path, valkey.url, ttl=ttl) as at:
        before = at.fleet.owners()
        first = at.status("victim-0")
        for _ in range(3):
            at.harmed[0].process.signal(signal.SIGSTOP)
            await asyncio.sleep(ttl / 2)
            at.harmed[0].process.signal(signal.SIGCONT)
            await asyncio.sleep(ttl / 8)
        await until(lambda: at.state("victim-0") is MemberState.ALIVE, seconds=PATIENCE)
        again = at.status("victim-0")
        assert first is not None
        assert again is not None
        assert again.member.incarnation == first.member.incarnation
        assert not at.recorded("victim-0")
        assert at.fleet.owners() == before


# Silence of one channel, and of both.


async def test_a_control_stream_that_is_cut_while_beats_go_on_kills_nobody(
    tmp_path: Path, valkey: Valkey
) -> None:
    """For two TTLs and a half: suspect, it keeps what it owns, and goes on as the same life."""
    async with scene(tmp_path, valkey.url, proxied=True) as at:
        before = at.fleet.owners()
        first = at.status("victim-0")
        await at.harmed[0].cut("internal")
        alive = lambda: at.state("victim-0") is not MemberState.DEAD  # noqa: E731
        await holds(alive, 2.5 * TTL, "dead by one silent channel")
        status = at.status("victim-0")
        assert status is not None
        assert (status.state, status.signal) == (MemberState.SUSPECT, Signal.SILENT)
        assert status.why.startswith("silent: beat ")
        assert at.fleet.owners() == before
        await at.harmed[0].mend("internal")
        await until(lambda: at.state("victim-0") is MemberState.ALIVE, seconds=PATIENCE)
        again = at.status("victim-0")
        assert first is not None
        assert again is not None
        assert again.member.incarnation == first.member.incarnation
        assert again.why == ""
        assert not at.recorded("victim-0")


async def test_beats_that_are_cut_while_the_control_stream_stands_kill_nobody(
    tmp_path: Path, valkey: Valkey
) -> None:
    """The store is away for this worker alone."""
    async with scene(tmp_path, valkey.url, proxied=True) as at:
        before = at.fleet.owners()
        await at.harmed[0].cut("store")
        alive = lambda: at.state("victim-0") is not MemberState.DEAD  # noqa: E731
        await holds(alive, 1.5 * TTL, "dead by one silent channel")
        assert at.fleet.owners() == before
        await at.harmed[0].mend("store")
        await until(lambda: at.state("victim-0") is MemberState.ALIVE, seconds=PATIENCE)


async def test_both_cut_is_dead_after_the_ttl(tmp_path: Path, valkey: Valkey) -> None:
    """Though its health port would answer: where the store can tell, it is not asked."""
    async with scene(tmp_path, valkey.url, proxied=True) as at:
        began = time.monotonic()
        await at.harmed[0].cut("internal", "store")
        status = await at.dead("victim-0")
        assert time.monotonic() - began > TTL - 0.6
        assert status.signal is Signal.SILENT
        assert at.recorded("victim-0") == [("silent", status.why)]


async def test_without_the_store_the_health_port_decides(tmp_path: Path) -> None:
    """Its control stream is cut and nobody knows of beats: alive as long as its health port
    answers, dead two TTLs after the last answer."""
    with running_valkey() as valkey:
        async with FakeApiServer.running() as kube:
            config = kube.kubeconfig(tmp_path)
            async with scene(tmp_path, valkey.url, proxied=True, kubeconfig=config) as at:
                valkey.kill()
                await at.harmed[0].cut("internal")
                alive = lambda: at.state("victim-0") is not MemberState.DEAD  # noqa: E731
                await holds(alive, 2.5 * TTL, "dead though its health port answers")
                began = time.monotonic()
                await at.harmed[0].cut("health")
                status = await at.dead("victim-0")
                assert time.monotonic() - began > 2 * TTL - 1.1  # a round of checks takes so long
                assert status.signal is Signal.SILENT
                assert "beat unknown" in status.why
                assert "health check unanswered" in status.why


# Many at once.


async def test_more_than_half_that_hang_are_doubted_first(tmp_path: Path, valkey: Valkey) -> None:
    """Two of three stop at once: nobody is dead for the TTL and the doubt, then both are."""
    async with scene(tmp_path, valkey.url, harmed=2, well=1) as at:
        began = time.monotonic()
        for victim in at.harmed:
            victim.process.signal(signal.SIGSTOP)
        await holds(
            lambda: MemberState.DEAD not in {at.state("victim-0"), at.state("victim-1")},
            2.2 * TTL,
            "dead without doubt",
        )
        for name in ("victim-0", "victim-1"):
            status = await at.dead(name)
            assert status.signal is Signal.SILENT
        assert time.monotonic() - began > 3 * TTL - 0.8
        assert at.owners() == {("worker-0",)}


async def test_more_than_half_that_refuse_are_never_doubted(tmp_path: Path, valkey: Valkey) -> None:
    """Two of three are killed at once: both are dead before silence could be noticed at all."""
    async with scene(tmp_path, valkey.url, harmed=2, well=1) as at:
        for victim in at.harmed:
            victim.process.signal(signal.SIGKILL)
        for name in ("victim-0", "victim-1"):
            assert (await at.dead(name)).signal is Signal.REFUSED
        assert at.owners() == {("worker-0",)}
