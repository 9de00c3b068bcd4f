"""A control stream's beginning: who may answer at a worker's address."""

import asyncio
import contextlib

import pytest

from coordinator.leader.links import Link
from coordinator.reach import StreamEnded
from coordinator.verdicts import Answer, Connect
from fleet.control.messages import Down, LeaderHello, Owners, Report, Unknown, Up, WorkerHello
from fleet.model import Addresses, LeaderInfo, Member
from fleet.model.identity import NONE
from fleet.settings.model import MembershipSettings
from tests.contract.election_worlds import LoopClock

pytestmark = pytest.mark.looptime

AT = Addresses("h:9002", "h:9003", "h:9004", "h:9090")
KNOWN = Member("worker-0", "a", AT)


class Stream:
    """A stream on which a worker says who it is, and then nothing."""

    def __init__(self, member: Member) -> None:
        self._said: list[Up | Unknown] = [WorkerHello(member)]
        self.closed = False

    async def send(self, message: Down) -> None:
        assert isinstance(message, LeaderHello)

    async def receive(self) -> Up | Unknown | None:
        if self._said:
            return self._said.pop()
        await asyncio.sleep(1e6)
        return None

    async def finish(self) -> None:
        raise StreamEnded("UNKNOWN")

    async def close(self) -> None:
        self.closed = True


class Reach:
    """Somebody answers at every address."""

    def __init__(self, answering: Member) -> None:
        self.answering = answering
        self.streams: list[Stream] = []

    def control(self, contact: Member) -> Stream:
        self.streams.append(Stream(self.answering))
        return self.streams[-1]

    async def worker_fault(self, contact: Member) -> str | None:
        return None

    async def connects(self, addresses: Addresses) -> tuple[Connect, Connect]:
        return Connect.ACCEPTED, Connect.ACCEPTED

    async def answers(self, addresses: Addresses) -> bool:
        return True


class Events:
    """What the leader is told."""

    def __init__(self) -> None:
        self.hellos: list[str] = []
        self.ended: list[str] = []

    def hello(self, member: Member) -> Answer:
        self.hellos.append(member.id)
        return Answer.JOINED

    def reported(self, member: Member, report: Report) -> None:
        raise AssertionError("nobody reports")

    def down(self, member: Member) -> None:
        self.ended.append(member.id)

    def connects(self, member: Member, ext_proc: Connect, health: Connect) -> None:
        """Nothing was proved."""

    def epoch_seen(self, epoch: int) -> None:
        raise AssertionError("nobody told of one")

    def asked_again(self) -> None:
        raise AssertionError("nobody asked")


async def linked(contact: Member, answering: Member) -> tuple[Reach, Events]:
    """Two seconds of a link to `contact`, at whose address `answering` lives."""
    reach, events = Reach(answering), Events()
    link = Link(
        contact,
        hello=lambda: LeaderHello("f", 1, LeaderInfo("c", "h:1", "h:2")),
        reach=reach,
        settings=MembershipSettings(),
        events=events,
        owners=lambda _: Owners(NONE, ()),
        clock=LoopClock(),
    )
    task = asyncio.create_task(link.run())
    await asyncio.sleep(2.0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    return reach, events


@pytest.mark.parametrize("incarnation", ["a", "b"])
async def test_a_worker_that_answers_under_its_own_name_joins(incarnation: str) -> None:
    """Also as another incarnation: what is to be thought of that is not the link's."""
    reach, events = await linked(KNOWN, Member("worker-0", incarnation, AT))
    assert (events.hellos, len(reach.streams)) == (["worker-0"], 1)
    assert events.ended == ["worker-0"]


async def test_who_has_a_dead_workers_address_now_is_not_taken_for_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The network gave the address to another worker, which has a link of its own: this one tells
    nothing of it, so that its end is not the end of the other."""
    reach, events = await linked(KNOWN, Member("worker-5", "x", AT))
    assert (events.hellos, events.ended) == ([], [])
    assert all(stream.closed for stream in reach.streams)
    assert "the address of worker-0 is answered by worker-5" in caplog.text


async def test_of_a_pod_alone_the_name_is_only_guessed() -> None:
    """Known by its pod's address: the worker says itself who it is."""
    _, events = await linked(Member("pod-0", "", AT), Member("worker-5", "x", AT))
    assert events.hellos == ["worker-5"]
