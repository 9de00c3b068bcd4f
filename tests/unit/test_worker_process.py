"""Each stream finds its own group; strays are served, lost connections are sent away."""

import asyncio
import logging
import random

import pytest

from epp_worker.catalogue import Catalogue
from epp_worker.extproc.budget import BodyBudget, BodyShare
from epp_worker.extproc.detaching import ResponsePhases
from epp_worker.extproc.session import Session
from epp_worker.extproc.usage import CopyBudget
from epp_worker.forwarding.rules import Past
from epp_worker.holdings import Holdings
from epp_worker.http2.contract import GrpcStream, StreamHandler
from epp_worker.process import ExtProc
from epp_worker.scheduling.contract import Picker
from epp_worker.strays import StrayBounds, StrayGate
from epp_worker.turns import Turns
from epp_worker.wheel import Wheel
from fleet.clock import SystemClock
from fleet.model import GroupKey, Hold
from fleet.sources.contract import Kind
from fleet.telemetry import RateLimited
from tests.extproc_world import MIB, destination, immediate, kinds, replies
from tests.silent_observer import SilentObserver
from tests.unit import extproc_messages as make
from tests.worker_fakes import (
    FakeConnection,
    FakeScraper,
    FakeSource,
    FakeStream,
    Tasks,
    entry_of,
    pod_of,
    pool_of,
    settle,
    share_with,
)

pytestmark = pytest.mark.looptime
UNAVAILABLE = 14
INTERNAL = 13


POD_IPS = {"a": "10.0.0.1", "b": "10.0.0.2"}
"""The address of each pool's only pod."""

ASKS = make.request_headers(end_of_stream=True)
"""A whole request."""

WAITS = make.request_headers(mode=None)
"""The beginning of one from a gateway that names no body mode."""


def picked(stream: FakeStream) -> list[str]:
    """The pools whose pods the stream was sent to."""
    names = {f"{ip}:8000": name for name, ip in POD_IPS.items()}
    return [names[destination(reply)] for reply in replies(stream.sent)]


class Bench:
    """An ext_proc service over pools that the test assigns."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.source = FakeSource()
        self.tasks = Tasks()
        self.budget = BodyBudget(per_stream=MIB, total=MIB)
        self.sessions = 0
        self.catalogue = Catalogue(self.source, self.tasks.spawn)
        self.holdings = Holdings(
            self.catalogue,
            FakeScraper(),
            self.tasks.spawn,
            fleet="f",
            worker="w",
            incarnation="i1",
            quiet_seconds=30.0,
            now=loop.time,
            rng=random.Random(1),
        )
        wheel = Wheel(loop)
        bounds = StrayBounds(10, 10_000)
        self.gate = StrayGate(bounds, wheel.lane(5.0), wheel.lane(55.0), self.holdings.opens)

        def new_session(picker: Picker, share: BodyShare) -> Session:
            self.sessions += 1
            return Session(
                picker,
                budget=self.budget,
                share=share,
                copies=CopyBudget(),
                observer=SilentObserver(),
                rng=random.Random(2),
                phases=ResponsePhases(),
            )

        self.service = ExtProc(
            self.catalogue,
            self.holdings,
            self.gate,
            wheel.lane(0.1),
            new_session,
            Turns(loop.call_soon, loop.time),
            propagation_seconds=1.0,
            now=loop.time,
            limited=RateLimited(logging.getLogger(__name__), SystemClock()),
        )
        self.holdings.on_change(self.service.changed)

    def open(self, authority: str, connection: FakeConnection | None = None) -> FakeStream:
        """A stream that sends a request."""
        stream = FakeStream(authority, connection)
        self.service(stream).received(ASKS)
        return stream


async def bench(hold: Hold | None = Hold.OWNER, *names: str) -> Bench:
    made = Bench()
    for name, ip in POD_IPS.items():
        made.source.put(pod_of(f"{name}-0", name, ip))
    for name in names:
        made.source.put(pool_of(name))
    await made.catalogue.start(made.holdings.pools_changed)
    await settle()
    if hold is not None:
        made.holdings.apply(share_with(1, *(entry_of(pool_of(name), hold) for name in names)))
        await settle()
    return made


@pytest.mark.parametrize(
    "authority",
    [
        "outbound|9002||a.ns.svc.cluster.local",
        "a.ns.svc:9002",
        "a.ns.svc.cluster.local:9002",
        "a.ns:9002",
        "a.ns",
        "endpointpicker_a_ns_ext_proc",
    ],
)
async def test_every_gateways_form_finds_the_pool(authority: str) -> None:
    """The pick comes from the pool that the authority names, and no stray is counted."""
    made = await bench(Hold.OWNER, "a", "b")
    assert picked(made.open(authority)) == ["a"]
    assert made.gate.counts.served == 0


async def test_streams_of_one_connection_go_to_their_own_pools() -> None:
    """The authority is read per stream, and remembered per authority only."""
    made = await bench(Hold.OWNER, "a", "b")
    shared = FakeConnection()
    streams = [made.open(f"{name}.ns.svc:9002", shared) for name in "abab"]
    assert [picked(stream) for stream in streams] == [["a"], ["b"], ["a"], ["b"]]


@pytest.mark.parametrize("authority", ["", "10.0.0.1:9002", "localhost", "a b", "\x00" * 2000])
async def test_an_authority_that_names_nothing_is_unavailable_at_once(authority: str) -> None:
    """With what was received, escaped and cut; no session is made."""
    made = await bench(Hold.OWNER, "a")
    stream = made.open(authority)
    assert stream.ended is not None
    status, reason = stream.ended
    assert status == UNAVAILABLE
    assert reason.isprintable() and len(reason) < 600
    assert made.gate.counts.failed == 1
    assert made.sessions == 0


@pytest.mark.parametrize("hold", [Hold.OPENING, Hold.STANDBY, Hold.DRAINING])
async def test_any_hold_serves_and_counts_a_stray(hold: Hold) -> None:
    """Only the owner's streams are no strays."""
    made = await bench(hold, "a")
    assert picked(made.open("a.ns.svc:9002")) == ["a"]
    assert made.gate.counts.served == 1


async def test_a_stream_of_a_group_that_is_assigned_later_waits_for_it() -> None:
    """Neither failed nor answered by another pool; served in the moment of the assignment."""
    made = await bench(None, "a")
    stream = made.open("a.ns.svc:9002")
    assert (stream.sent, stream.ended, len(made.gate)) == ([], None, 1)
    made.holdings.apply(share_with(1, entry_of(pool_of("a"), Hold.OWNER)))
    await settle()
    assert picked(stream) == ["a"]
    assert made.gate.counts.held == 1


async def test_a_pool_that_the_source_learns_of_later_is_waited_for() -> None:
    """Also without a port, where the group is known only once the pool is."""
    made = await bench(None)
    made.holdings.apply(share_with(1, entry_of(pool_of("a"), Hold.OWNER)))
    stream = made.open("a.ns.svc")
    assert stream.sent == []
    made.source.put(pool_of("a"))
    await settle()
    assert picked(stream) == ["a"]


async def test_pods_that_are_not_listed_yet_make_a_stream_wait() -> None:
    """A new owner never answers 503 because it has not looked yet."""
    made = await bench(None, "a")
    made.source.lists.remove(Kind.POD)
    made.holdings.apply(share_with(1, entry_of(pool_of("a"), Hold.OWNER)))
    stream = made.open("a.ns.svc:9002")
    assert (stream.sent, stream.ended) == ([], None)
    made.source.list(made.source.watches[-1])
    await settle()
    assert picked(stream) == ["a"]


@pytest.mark.parametrize(
    ("hold", "taken"),
    [(Hold.OWNER, 0), (Hold.OPENING, 1), (Hold.STANDBY, 1), (Hold.DRAINING, 1)],
)
async def test_a_hold_that_cannot_serve_yet_leaves_streams_to_the_owner(
    hold: Hold, taken: int
) -> None:
    """Its pods are being listed here, while the owner elsewhere serves; once they are, it does.
    The owner itself has nobody to pass them on to: they wait."""
    made = await bench(None, "a")
    forwards = Passing()
    made.service.forward_by(forwards)
    made.source.lists.remove(Kind.POD)
    owner = "w" if hold is Hold.OWNER else "v"
    made.holdings.apply(share_with(1, entry_of(pool_of("a"), hold, owner)))
    made.open("a.ns.svc:9002")
    assert forwards.taken == taken
    made.source.list(made.source.watches[-1])
    await settle()
    assert picked(made.open("a.ns.svc:9002")) == ["a"]
    assert forwards.taken == taken


async def test_a_connection_that_keeps_bringing_a_lost_group_is_sent_away() -> None:
    """Not within the propagation time, then at most every 2 s; its streams are served."""
    made = await bench(Hold.OWNER, "a", "b")
    connection = FakeConnection()
    made.open("a.ns.svc:9002", connection)
    lost = (entry_of(pool_of("a"), Hold.DRAINING, "v"), entry_of(pool_of("b"), Hold.OWNER))
    made.holdings.apply(share_with(2, *lost))
    await asyncio.sleep(0.9)
    assert picked(made.open("a.ns.svc:9002", connection)) == ["a"]
    assert connection.goaways == 0
    await asyncio.sleep(0.2)
    for _ in range(5):
        assert picked(made.open("a.ns.svc:9002", connection)) == ["a"]
    assert connection.goaways == 1


async def test_a_connection_that_only_brings_owned_groups_is_left_alone() -> None:
    """A shared connection that stopped bringing the lost group stays."""
    made = await bench(Hold.OWNER, "a", "b")
    connection = FakeConnection()
    lost = (entry_of(pool_of("a"), Hold.DRAINING, "v"), entry_of(pool_of("b"), Hold.OWNER))
    made.holdings.apply(share_with(2, *lost))
    await asyncio.sleep(5.0)
    made.open("b.ns.svc:9002", connection)
    assert connection.goaways == 0


async def test_a_dropped_group_is_not_served_from_memory() -> None:
    """What was looked up is forgotten when holds change."""
    made = await bench(Hold.STANDBY, "a")
    stream = made.open("a.ns.svc:9002")
    assert picked(stream) == ["a"]
    await asyncio.sleep(31.0)
    made.holdings.apply(share_with(2))
    assert made.open("a.ns.svc:9002").sent == []
    assert len(made.gate) == 1


async def test_a_gateway_without_body_mode_is_answered_after_100_ms() -> None:
    """Once, and not if its body came in the meantime."""
    made = await bench(Hold.OWNER, "a")
    silent, quick = FakeStream("a.ns.svc:9002"), FakeStream("a.ns.svc:9002")
    made.service(silent).received(WAITS)
    handler = made.service(quick)
    handler.received(WAITS)
    handler.received(make.request_body(b'{"model":"m"}', end_of_stream=True))
    assert kinds(quick.sent) == ["request_headers", "request_body"]
    await asyncio.sleep(0.09)
    assert silent.sent == []
    await asyncio.sleep(1.0)
    assert kinds(silent.sent) == ["request_headers"]
    assert not replies(silent.sent)[0].request_headers.response.HasField("header_mutation")
    assert kinds(quick.sent) == ["request_headers", "request_body"]


class BrokenStream(FakeStream):
    """A fault of ours is in the way of whatever is said."""

    def send(self, *messages: bytes) -> None:
        raise RuntimeError("a fault of ours")


async def test_a_stream_that_fails_in_a_timer_ends_itself_only() -> None:
    """INTERNAL for that one, and nothing of it is held; the other goes on."""
    made = await bench(Hold.OWNER, "a")
    bad, good = BrokenStream("a.ns.svc:9002"), FakeStream("a.ns.svc:9002")
    for stream in (bad, good):
        made.service(stream).received(WAITS)
    assert made.budget.held == 2 * len(WAITS)
    await asyncio.sleep(0.2)
    assert bad.ended == (INTERNAL, "internal error")
    assert made.budget.held == len(WAITS)
    assert (kinds(good.sent), good.ended) == (["request_headers"], None)


async def test_the_end_that_the_session_wants_is_the_streams_end() -> None:
    """Replies first, then the status; later messages are not looked at."""
    made = await bench(Hold.OWNER, "a")
    stream = FakeStream("a.ns.svc:9002")
    handler = made.service(stream)
    handler.received(make.request_headers())
    handler.received(make.request_body(b"no JSON", end_of_stream=True))
    handler.received(ASKS)
    handler.half_closed()
    assert immediate(stream.sent) == (400, "")
    assert stream.ended == (0, "")


class Passing:
    """Passes every stream on at once."""

    def __init__(self) -> None:
        self.taken = 0

    def take(
        self, stream: GrpcStream, group: GroupKey, past: Past, *, known: bool
    ) -> StreamHandler | None:
        self.taken += 1
        return FakeHandler()


class FakeHandler:
    """The owner's answers are none of our business here."""

    def received(self, message: bytes) -> None:
        """Passed on."""

    def half_closed(self) -> None:
        """Passed on."""

    def aborted(self) -> None:
        """Passed on."""


@pytest.mark.parametrize("hold", [Hold.STANDBY, None], ids=["stand-by", "not held"])
async def test_a_connection_that_sticks_after_the_loss_is_over_is_sent_away(
    hold: Hold | None,
) -> None:
    """The lost group was dropped when it was quiet, or is stood by for; now the connection brings
    it again. It goes when it has done so for the propagation time: until then a route may be ahead
    of the leader's word."""
    made = await bench(Hold.OWNER, "a")
    made.service.forward_by(Passing())
    made.holdings.apply(share_with(2, *([entry_of(pool_of("a"), hold, "v")] if hold else [])))
    await asyncio.sleep(40.0)
    made.holdings.tick(1.0)
    group = made.holdings.get(pool_of("a").groups[0])
    assert (group and group.hold) is hold
    connection = FakeConnection()
    for _ in range(9):
        made.open("a.ns.svc:9002", connection)
        await asyncio.sleep(0.1)
    assert connection.goaways == 0
    await asyncio.sleep(0.2)
    for _ in range(5):
        made.open("a.ns.svc:9002", connection)
    assert connection.goaways == 1
