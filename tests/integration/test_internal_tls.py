"""The internal port under mutual TLS: who is served, what is said of who is not, and new files."""

import asyncio
import contextlib
import logging
import re
import secrets
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from coordinator.follower import Follower
from coordinator.grpc_reach import GrpcReach
from coordinator.internal import MapFeed, start_internal
from coordinator.knowledge import Knowledge
from coordinator.leader.links import Link
from coordinator.verdicts import Answer, Connect
from fleet.certificates import Certificates, Role
from fleet.certificates.authority import Pair
from fleet.clock import SystemClock
from fleet.control.messages import WATCH_MAP_METHOD, LeaderHello, Owners, Report
from fleet.control.transport import dial
from fleet.model import EpochVersion, Hold, LeaderInfo, Member, ShardMap
from fleet.model.identity import NONE
from fleet.settings.model import MembershipSettings
from fleet.store.memory import MemoryServer, MemoryStore
from tests.tls_files import EXPIRED_SECONDS, certificates, new_ca, write_set
from tests.worker_inprocess import (
    TOKEN,
    Running,
    TestLeader,
    running_worker,
    until,
    write_pool,
)

CLOCK = SystemClock()
ME = LeaderInfo("c0", "h:1", "h:2")
MAP = ShardMap("default", EpochVersion(3, 1), 0.0, ME, {})
OPTIONS = [("grpc.use_local_subchannel_pool", 1)]

Made = Callable[..., Certificates]


@pytest.fixture
def ca() -> Pair:
    """The fleet's."""
    return new_ca()


@pytest.fixture
def made(tmp_path: Path, ca: Pair) -> Made:
    """Makes the files of one process, of the fleet's CA unless told otherwise."""

    def make(role: Role, *, signed_by: Pair | None = None, **how: Any) -> Certificates:
        folder = tmp_path / secrets.token_hex(4)
        return certificates(folder, signed_by or ca, role, **how)

    return make


@contextlib.asynccontextmanager
async def worker(tmp_path: Path, own: Certificates | None) -> AsyncIterator[Running]:
    folder = tmp_path / "manifests"
    folder.mkdir()
    write_pool(folder, "pool-a", "10.0.0.1")
    async with running_worker(folder, certificates=own) as running:
        yield running


def leader_with(running: Running, own: Certificates, epoch: int = 1) -> TestLeader:
    address = running.worker.addresses.internal
    return TestLeader(address, epoch, channel=dial(address, own, Role.WORKER, OPTIONS))


def named(role: Role, own: Certificates | None, running: Running, ca: Pair) -> grpc.aio.Channel:
    """A peer that takes the worker for what it is, whatever it is itself."""
    address = running.worker.addresses.internal
    override = ("grpc.ssl_target_name_override", f"{role.value}.default.epp-fleet.internal")
    if own is None:
        credentials = grpc.ssl_channel_credentials(ca.certificate)
    else:
        files = own.bundle()
        credentials = grpc.ssl_channel_credentials(ca.certificate, files.key, files.certificate)
    return grpc.aio.secure_channel(address, credentials, options=[*OPTIONS, override])


def records(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, Any]]:
    return [vars(record) for record in caplog.records if record.getMessage() == event]


# -- the worker's side ----------------------------------------------------------------------------


async def test_a_coordinator_of_the_fleet_leads(tmp_path: Path, made: Made) -> None:
    """Certificate and token are right: the share is applied and acknowledged."""
    async with worker(tmp_path, made(Role.WORKER)) as running:
        leader = leader_with(running, made(Role.COORDINATOR))
        await leader.connect()
        report = await leader.assign(running.share(1, pool_a=Hold.OWNER))
        assert report.version == (1, 1)
        assert running.worker.figures().certificate_expiry_seconds == pytest.approx(
            90 * 86_400, abs=60
        )
        await leader.close()


async def test_the_token_is_needed_besides(tmp_path: Path, made: Made) -> None:
    """A good certificate with a wrong token is refused."""
    async with worker(tmp_path, made(Role.WORKER)) as running:
        address = running.worker.addresses.internal
        channel = dial(address, made(Role.COORDINATOR), Role.WORKER, OPTIONS)
        leader = TestLeader(address, 9, token="guessed", channel=channel)
        assert await leader.end() is grpc.StatusCode.UNAUTHENTICATED
        assert running.worker.holdings.seen.epoch == 0
        await leader.close()


@pytest.mark.parametrize("peer", ["no certificate", "another CA", "expired", "plaintext"])
async def test_who_the_ca_does_not_vouch_for_never_gets_as_far_as_a_call(
    tmp_path: Path, made: Made, ca: Pair, peer: str
) -> None:
    """The handshake fails; what it sent has no effect."""
    async with worker(tmp_path, made(Role.WORKER)) as running:
        own = {
            "another CA": lambda: made(Role.COORDINATOR, signed_by=new_ca()),
            "expired": lambda: made(Role.COORDINATOR, age_seconds=EXPIRED_SECONDS),
        }
        channel = None
        if peer != "plaintext":
            channel = named(Role.WORKER, own[peer]() if peer in own else None, running, ca)
        leader = TestLeader(running.worker.addresses.internal, 9, channel=channel)
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await leader.say(LeaderHello("default", 9, ME))
        assert await leader.end() is grpc.StatusCode.UNAVAILABLE
        assert running.worker.holdings.seen.epoch == 0
        await leader.close()


@pytest.mark.parametrize(("role", "fleet"), [(Role.WORKER, "default"), (Role.COORDINATOR, "other")])
async def test_a_worker_obeys_coordinators_of_its_own_fleet_alone(
    tmp_path: Path,
    made: Made,
    ca: Pair,
    caplog: pytest.LogCaptureFixture,
    role: Role,
    fleet: str,
) -> None:
    """The CA vouches for it, but for another role or fleet; the log says so once, and by whom."""
    async with worker(tmp_path, made(Role.WORKER)) as running:
        for _ in range(3):
            channel = named(Role.WORKER, made(role, fleet=fleet), running, ca)
            leader = TestLeader(running.worker.addresses.internal, 9, channel=channel)
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                await leader.say(LeaderHello("default", 9, ME))
            assert await leader.end() is grpc.StatusCode.PERMISSION_DENIED
            await leader.close()
        assert running.worker.holdings.seen.epoch == 0
        (line,) = records(caplog, "call refused on the internal port")
        assert line["peer"].startswith("ipv4:127.0.0.1:")
        assert line["why"] == (
            f"its certificate is for {role.value}.{fleet}.epp-fleet.internal, "
            "not for coordinator.default.epp-fleet.internal"
        )


# -- the leader's side ----------------------------------------------------------------------------


class Events:
    """What a link tells; counts looks at ports, one pair for each dial that failed."""

    def __init__(self) -> None:
        self.members: list[Member] = []
        self.reports = 0
        self.looks = 0

    def hello(self, member: Member) -> Answer:
        self.members.append(member)
        return Answer.JOINED

    def reported(self, member: Member, report: Report) -> None:
        self.reports += 1

    def down(self, member: Member) -> None:
        pass

    def connects(self, member: Member, ext_proc: Connect, health: Connect) -> None:
        self.looks += 1

    def epoch_seen(self, epoch: int) -> None:
        pass

    def asked_again(self) -> None:
        pass


@contextlib.asynccontextmanager
async def linked(running: Running, own: Certificates | None) -> AsyncIterator[Events]:
    """The leader's own link to a worker."""
    events = Events()
    link = Link(
        Member("worker-0", "", running.worker.addresses),
        hello=lambda: LeaderHello("default", 1, ME),
        reach=GrpcReach(TOKEN, own),
        settings=MembershipSettings(),
        events=events,
        owners=lambda _: Owners(NONE, ()),
        clock=CLOCK,
    )
    task = asyncio.create_task(link.run())
    try:
        yield events
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


FAULTS = {
    "another CA": r"its certificate is not of our CA",
    "expired": r"its certificate has expired",
    "wrong role": r"its certificate is not for worker\.default\.epp-fleet\.internal",
    "wrong fleet": r"its certificate is not for worker\.default\.epp-fleet\.internal",
    "plaintext": r"it does not speak TLS",
    "our own expired": r"our certificate has expired",
    "our own CA": r"it does not accept our certificate: another CA",
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_leader_gives_nothing_to_a_worker_that_is_none(
    tmp_path: Path, made: Made, ca: Pair, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    """No hello either way, and one line for many dials: which worker, where, and what is wrong."""
    theirs: dict[str, Callable[[], Certificates | None]] = {
        "another CA": lambda: made(Role.WORKER, signed_by=new_ca(), trusted=ca.certificate),
        "expired": lambda: made(Role.WORKER, age_seconds=EXPIRED_SECONDS),
        "wrong role": lambda: made(Role.COORDINATOR),
        "wrong fleet": lambda: made(Role.WORKER, fleet="other"),
        "plaintext": lambda: None,
    }
    ours: dict[str, Callable[[], Certificates]] = {
        "our own expired": lambda: made(Role.COORDINATOR, age_seconds=EXPIRED_SECONDS),
        "our own CA": lambda: made(Role.COORDINATOR, signed_by=new_ca(), trusted=ca.certificate),
    }
    right = {"theirs": lambda: made(Role.WORKER), "ours": lambda: made(Role.COORDINATOR)}
    async with worker(tmp_path, theirs.get(fault, right["theirs"])()) as running:
        async with linked(running, ours.get(fault, right["ours"])()) as events:
            await until(lambda: events.looks >= 3, "three dials")
        assert events.members == []
        assert running.worker.holdings.seen.epoch == 0
        (line,) = records(caplog, "worker not reached by TLS")
        assert line["levelno"] == logging.WARNING
        assert line["worker"] == "worker-0"
        assert line["peer"] == running.worker.addresses.internal
        assert re.match(FAULTS[fault], line["why"]), line["why"]


async def test_a_plaintext_leader_gets_nothing_from_a_worker_with_tls(
    tmp_path: Path, made: Made, caplog: pytest.LogCaptureFixture
) -> None:
    """It is told as a stream that is down."""
    caplog.set_level(logging.INFO)
    async with worker(tmp_path, made(Role.WORKER)) as running:
        async with linked(running, None) as events:
            await until(lambda: events.looks >= 3, "three dials")
        assert events.members == []
        (line,) = records(caplog, "control stream down")
        assert line["worker"] == "worker-0"


# -- the coordinator's side -----------------------------------------------------------------------


@contextlib.asynccontextmanager
async def map_port(own: Certificates | None) -> AsyncIterator[str]:
    knowledge = Knowledge()
    knowledge.learn_map(MAP)
    feed = MapFeed(knowledge, lambda: True, own, CLOCK)
    server, port = await start_internal(feed, token=TOKEN, host="127.0.0.1", port=0)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


@contextlib.asynccontextmanager
async def following(address: str, own: Certificates | None) -> AsyncIterator[Knowledge]:
    """The follower of a coordinator without a store that knows more."""
    knowledge = Knowledge()
    follower = Follower(
        knowledge=knowledge,
        store=MemoryStore(CLOCK, MemoryServer(CLOCK)),
        leader=lambda: LeaderInfo("c0", "h:1", address),
        leading=lambda: False,
        reach=GrpcReach(TOKEN, own),
        poll_seconds=0.1,
        clock=CLOCK,
    )
    task = asyncio.create_task(follower.run())
    try:
        yield knowledge
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_follower_gets_the_map(made: Made) -> None:
    """Coordinator to coordinator."""
    async with (
        map_port(made(Role.COORDINATOR)) as address,
        following(address, made(Role.COORDINATOR)) as knowledge,
    ):
        await until(lambda: knowledge.shard_map == MAP, "the map")


async def test_a_follower_says_why_it_has_no_map(
    made: Made, caplog: pytest.LogCaptureFixture
) -> None:
    """The one that it takes for the leader is no coordinator."""
    caplog.set_level(logging.INFO)
    event = "leader's map stream ended"
    async with (
        map_port(made(Role.WORKER)) as address,
        following(address, made(Role.COORDINATOR)) as knowledge,
    ):
        await until(lambda: bool(records(caplog, event)), "the log line")
        assert knowledge.shard_map is None
    (line,) = records(caplog, event)
    assert line["why"] == "its certificate is not for coordinator.default.epp-fleet.internal"


async def test_maps_are_for_coordinators_alone(
    made: Made, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker's certificate and the right token do not suffice."""
    async with map_port(made(Role.COORDINATOR)) as address:
        channel: Any = dial(address, made(Role.WORKER), Role.COORDINATOR, OPTIONS)
        metadata = (("authorization", f"Bearer {TOKEN}"),)
        call = channel.unary_stream(WATCH_MAP_METHOD)(b"", metadata=metadata)
        with pytest.raises(grpc.aio.AioRpcError):
            await call.read()
        assert await call.code() is grpc.StatusCode.PERMISSION_DENIED
        await channel.close(None)
        (line,) = records(caplog, "call refused on the internal port")
        assert line["why"].startswith("its certificate is for worker.default.")


# -- new files ------------------------------------------------------------------------------------


async def test_certificates_are_replaced_under_an_open_stream(tmp_path: Path, ca: Pair) -> None:
    """The stream stays; the next dial of either side uses what is new; the old CA counts no more.

    First both CAs are trusted and the certificates are of the new one, then the new one alone.
    """
    next_ca = new_ca()
    both = ca.certificate + next_ca.certificate
    w, c = tmp_path / "w", tmp_path / "c"
    of_worker = certificates(w, ca, Role.WORKER)
    of_leader = certificates(c, ca, Role.COORDINATOR)
    old_files = certificates(tmp_path / "old", ca, Role.COORDINATOR, trusted=both)
    async with worker(tmp_path, of_worker) as running:
        first = leader_with(running, of_leader, epoch=1)
        await first.connect()
        write_set(c, next_ca, Role.COORDINATOR, trusted=both)
        write_set(w, next_ca, Role.WORKER, trusted=both)
        assert isinstance(await first.next(), Report)
        await first.assign(running.share(1, pool_a=Hold.OWNER))
        write_set(c, next_ca, Role.COORDINATOR)
        write_set(w, next_ca, Role.WORKER)
        await first.assign(running.share(2, pool_a=Hold.OWNER))
        late = leader_with(running, old_files, epoch=9)
        assert await late.end() is grpc.StatusCode.UNAVAILABLE
        assert isinstance(await first.next(), Report)
        second = leader_with(running, of_leader, epoch=2)
        hello = await second.connect()
        assert hello.member.seen.epoch == 2
        for leader in (first, late, second):
            await leader.close()
