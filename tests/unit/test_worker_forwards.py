"""Which streams are passed on at all, and what becomes of the connections that bring them."""

import asyncio
import logging
import random
from typing import Any

import pytest

from epp_worker.catalogue import Catalogue
from epp_worker.forwarding.peer_stream import PeerStream
from epp_worker.forwarding.rules import Past
from epp_worker.holdings import Holdings
from epp_worker.http2.contract import GrpcStream, StreamHandler
from epp_worker.process import ExtProc
from epp_worker.strays import StrayBounds, StrayGate
from epp_worker.turns import Turns
from epp_worker.wheel import Wheel
from fleet.clock import SystemClock
from fleet.model import GroupKey, Hold
from fleet.sources.contract import Kind
from fleet.telemetry import RateLimited
from tests.worker_fakes import (
    FakeConnection,
    FakeScraper,
    FakeSource,
    FakeStream,
    Tasks,
    entry_of,
    pool_of,
    settle,
    share_with,
)

pytestmark = pytest.mark.looptime
A = GroupKey("ns", "a", 9002)


class Taken:
    """The handler of a stream that was passed on."""

    def received(self, message: bytes) -> None:
        """It goes elsewhere."""

    def half_closed(self) -> None:
        """So does this."""

    def aborted(self) -> None:
        """And this."""


class FakeForwards:
    """Takes every stream while `open`."""

    def __init__(self) -> None:
        self.open = True
        self.asked: list[tuple[GroupKey, bool]] = []

    def take(
        self, stream: GrpcStream, group: GroupKey, past: Past, *, known: bool
    ) -> StreamHandler | None:
        self.asked.append((group, known))
        return Taken() if self.open and past.onward else None


class Bench:
    """An ext_proc service that knows pools `a` and `b` and holds what the test assigns."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.source, tasks = FakeSource(), Tasks()
        self.catalogue = Catalogue(self.source, tasks.spawn)
        self.holdings = Holdings(
            self.catalogue,
            FakeScraper(),
            tasks.spawn,
            fleet="f",
            worker="w",
            incarnation="i1",
            quiet_seconds=30.0,
            now=loop.time,
            rng=random.Random(1),
        )
        wheel = Wheel(loop)
        lanes = wheel.lane(5.0), wheel.lane(55.0)
        self.gate = StrayGate(StrayBounds(10, 10_000), *lanes, self.holdings.opens)
        unused: Any = None
        self.service = ExtProc(
            self.catalogue,
            self.holdings,
            self.gate,
            wheel.lane(0.1),
            unused,
            Turns(loop.call_soon, loop.time),
            propagation_seconds=1.0,
            now=loop.time,
            limited=RateLimited(logging.getLogger(__name__), SystemClock()),
        )
        self.forwards = FakeForwards()
        self.service.forward_by(self.forwards)
        self.holdings.on_change(self.service.changed)


async def bench() -> Bench:
    made = Bench()
    made.source.put(pool_of("a"))
    made.source.put(pool_of("b"))
    await made.catalogue.start(made.holdings.pools_changed)
    await settle()
    return made


async def test_a_stream_of_a_group_that_is_not_here_is_offered() -> None:
    """With whether others may be asked about it; it waits while nobody takes it."""
    made = await bench()
    assert isinstance(made.service(FakeStream("a.ns.svc:9002")), Taken)
    made.forwards.open = False
    made.service(FakeStream("made-up.ns.svc:9002"))
    assert made.forwards.asked == [(A, True), (GroupKey("ns", "made-up", 9002), False)]
    assert len(made.gate) == 1
    made.forwards.open = True
    made.service.look_again()
    assert len(made.gate) == 0


@pytest.mark.parametrize(
    ("hold", "offered"),
    [(Hold.OWNER, 0), (Hold.OPENING, 1), (Hold.STANDBY, 1), (Hold.DRAINING, 1)],
)
async def test_an_owner_whose_pods_are_being_listed_passes_nothing_on(
    hold: Hold, offered: int
) -> None:
    """Nobody could serve it sooner; in any other hold the owner can."""
    made = await bench()
    made.source.lists.discard(Kind.POD)
    made.holdings.apply(share_with(1, entry_of(pool_of("a"), hold)))
    await settle()
    made.service(FakeStream("a.ns.svc:9002"))
    made.service.tick()
    assert len(made.forwards.asked) == offered
    assert len(made.gate) == 1 - offered


async def test_a_stream_of_another_worker_is_not_offered_to_a_third() -> None:
    """One hop: it waits here."""
    made = await bench()
    made.service.from_peer(PeerStream(A, "ipv4:10.0.0.1:1"))
    made.service.look_again()
    assert len(made.gate) == 1


async def test_an_authority_that_cannot_be_read_is_refused_and_not_offered() -> None:
    """At once, on both ports."""
    made = await bench()
    stream, peers = FakeStream("10.0.0.1:9002"), PeerStream(GroupKey("n_s", "a", 1), "p")
    made.service(stream)
    made.service.from_peer(peers)
    assert stream.ended is not None and stream.ended[0] == 14
    assert peers.ended is not None and peers.ended[0] == 14
    assert made.forwards.asked == []
    assert made.gate.counts.failed == 1


async def test_connections_that_go_on_bringing_such_streams_are_sent_away() -> None:
    """Not before routes have had their second, and at most every 2 s; others are left alone."""
    made = await bench()
    sticky, once = FakeConnection("10.1.1.1:1"), FakeConnection("10.1.1.2:1")
    made.service(FakeStream("a.ns.svc:9002", once))
    seen = []
    for _ in range(8):
        made.service(FakeStream("a.ns.svc:9002", sticky))
        seen.append(sticky.goaways)
        await asyncio.sleep(0.5)
    assert seen == [0, 0, 1, 1, 1, 1, 2, 2]
    assert once.goaways == 0
