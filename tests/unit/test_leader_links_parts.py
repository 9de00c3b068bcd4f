"""What a link tells of a share: all of it or a part, by what the worker reads and has."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from coordinator.leader.links import Link
from coordinator.reach import StreamEnded
from coordinator.verdicts import Answer, Connect
from fleet.control.messages import (
    AskShare,
    Assign,
    AssignPart,
    Down,
    LeaderHello,
    Owners,
    Report,
    Unknown,
    Up,
    WorkerHello,
    WorkerPeer,
)
from fleet.control.sharing import ShareMerging
from fleet.model import (
    Addresses,
    EpochVersion,
    GroupKey,
    Hold,
    LeaderInfo,
    Load,
    Member,
    Share,
    ShareEntry,
)
from fleet.model.identity import NONE
from fleet.settings.model import MembershipSettings
from tests.contract.election_worlds import LoopClock

pytestmark = pytest.mark.looptime

MEMBER = Member("w0", "i", Addresses("h:9002", "h:9003", "h:9004", "h:9090"))
GROUPS = [GroupKey("ns", f"g{number}", 1) for number in range(10)]


def share(version: int, groups: int = 10, first: Hold = Hold.OWNER) -> Share:
    entries = [ShareEntry(group, Hold.OWNER, (), "w0") for group in GROUPS[1:groups]]
    entries.insert(0, ShareEntry(GROUPS[0], first, (), "w0"))
    return Share("f", "w0", "i", EpochVersion(1, version), tuple(entries))


class Stream:
    """A worker's end, by hand."""

    def __init__(self, *, deltas: bool) -> None:
        self.sent: list[Down] = []
        self._up = asyncio.Queue[Up | StreamEnded]()
        self._up.put_nowait(WorkerHello(MEMBER, deltas=deltas))

    def say(self, message: Up) -> None:
        self._up.put_nowait(message)

    def end(self) -> None:
        self._up.put_nowait(StreamEnded("UNAVAILABLE"))

    async def send(self, message: Down) -> None:
        if not isinstance(message, LeaderHello):
            self.sent.append(message)

    async def receive(self) -> Up | Unknown | None:
        message = await self._up.get()
        if isinstance(message, StreamEnded):
            raise message
        return message

    async def finish(self) -> None:
        """Nothing more comes from the leader."""

    async def close(self) -> None:
        """The leader is gone."""


class Events:
    """`LinkEvents` that want to know of nothing but of questions."""

    asked = 0

    def hello(self, member: Member) -> Answer:
        return Answer.JOINED

    def reported(self, member: Member, report: Report) -> None:
        """As it is."""

    def down(self, member: Member) -> None:
        """It comes back."""

    def epoch_seen(self, epoch: int) -> None:
        raise AssertionError("nobody told of one")

    def asked_again(self) -> None:
        self.asked += 1

    def connects(self, member: Member, ext_proc: Connect, health: Connect) -> None:
        """Nothing was proved."""


class World:
    """A link and the workers that it reaches: `coordinator.reach.WorkerReach`."""

    def __init__(self, *, deltas: bool) -> None:
        self._deltas = deltas
        self.streams: list[Stream] = []
        self.events = Events()
        self.link = Link(
            MEMBER,
            hello=lambda: LeaderHello("f", 1, LeaderInfo("c", "h:1", "h:2")),
            reach=self,
            settings=MembershipSettings(),
            events=self.events,
            owners=lambda _: Owners(NONE, ()),
            clock=LoopClock(),
        )

    async def assign(self, *shares: Share) -> list[Down]:
        """Everything that the present stream was told when the last of these was."""
        for each in shares:
            self.link.assign(each)
            await asyncio.sleep(0.2)
            self.streams[-1].say(Report(NONE, NONE, (), draining=False, load=Load()))
        return self.streams[-1].sent

    def control(self, contact: Member) -> Stream:
        self.streams.append(Stream(deltas=self._deltas))
        return self.streams[-1]

    async def worker_fault(self, contact: Member) -> str | None:
        return None

    async def answers(self, addresses: Addresses) -> bool:
        return True

    async def connects(self, addresses: Addresses) -> tuple[Connect, Connect]:
        return Connect.ACCEPTED, Connect.ACCEPTED


@contextlib.asynccontextmanager
async def linked(*, deltas: bool = True) -> AsyncIterator[World]:
    world = World(deltas=deltas)
    task = asyncio.create_task(world.link.run())
    await asyncio.sleep(0.2)
    try:
        yield world
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def kinds(sent: list[Down]) -> list[type]:
    return [type(message) for message in sent]


async def test_a_worker_that_reads_parts_gets_one_whole_and_then_parts() -> None:
    """And comes to the same shares by them."""
    async with linked() as world:
        shares = [share(1), share(2, first=Hold.DRAINING), share(3, groups=8)]
        sent = await world.assign(*shares)
        assert kinds(sent) == [Assign, AssignPart, AssignPart]
        worker = ShareMerging()
        for message, wanted in zip(sent, shares, strict=True):
            if isinstance(message, Assign):
                assert worker.whole(message.share) == wanted
            else:
                assert isinstance(message, AssignPart)
                assert worker.merged(message) == wanted


async def test_a_worker_of_the_version_before_gets_whole_shares() -> None:
    """It does not say that it reads anything else."""
    async with linked(deltas=False) as world:
        sent = await world.assign(share(1), share(2, groups=9))
        assert sent == [Assign(share(1), None, None), Assign(share(2, groups=9), None, None)]


async def test_each_stream_begins_with_a_whole() -> None:
    """What the last stream told may not have arrived."""
    async with linked() as world:
        await world.assign(share(1), share(2, groups=9))
        world.streams[-1].end()
        await asyncio.sleep(1.0)
        assert len(world.streams) == 2
        sent = await world.assign(share(3, groups=9))
        assert kinds(sent) == [Assign, AssignPart]
        assert sent[0] == Assign(share(2, groups=9), None, None)


async def test_a_worker_that_asks_is_told_everything_at_once() -> None:
    """Also its peers; and what changes afterwards builds on that."""
    async with linked() as world:
        peers = {"w1": WorkerPeer("h:1", "j")}
        world.link.tell_peers(peers)
        sent = await world.assign(share(1), share(2, groups=9))
        sent.clear()
        world.streams[-1].say(AskShare())
        await asyncio.sleep(0.2)
        assert sent == [Assign(share(2, groups=9), None, peers)]
        await world.assign(share(3, groups=8))
        assert isinstance(sent[1], AssignPart)
        assert sent[1].base == EpochVersion(1, 2)


async def asks(world: World, times: int, *, every: int) -> list[type]:
    """What comes of that, the worker's reports going on; then of one change."""
    stream = world.streams[-1]
    stream.sent.clear()
    for _ in range(times):
        stream.say(AskShare())
        for _ in range(every):
            stream.say(Report(NONE, NONE, (), draining=False, load=Load()))
            await asyncio.sleep(1.0)
    return kinds(await world.assign(share(9, groups=8)))


async def test_questions_in_a_row_have_one_answer() -> None:
    """A whole that is not sent yet comes after whatever part is meant."""
    async with linked() as world:
        await world.assign(share(1), share(2, groups=9))
        assert await asks(world, 1000, every=0) == [Assign]
        assert world.events.asked == 1000
        assert kinds(await world.assign(share(10, groups=7))) == [Assign, AssignPart]


async def test_who_asks_again_and_again_is_told_wholes_alone() -> None:
    """From the fifth within a minute on: then there is nothing to ask for, and questions have no
    answer; the next stream begins with a whole and parts again."""
    async with linked() as world:
        await world.assign(share(1), share(2, groups=9))
        assert await asks(world, 4, every=1) == [Assign] * 4 + [AssignPart]
        assert await asks(world, 1, every=1) == [Assign, Assign]
        assert await asks(world, 9, every=1) == [Assign]
        world.streams[-1].end()
        await asyncio.sleep(1.0)
        assert kinds(await world.assign(share(11, groups=8))) == [Assign, AssignPart]


async def test_who_asks_now_and_then_is_told_parts() -> None:
    """Every 16 s: four within any minute."""
    async with linked() as world:
        await world.assign(share(1), share(2, groups=9))
        assert await asks(world, 12, every=16) == [Assign] * 12 + [AssignPart]


async def test_who_else_is_there_is_told_without_the_share() -> None:
    """The share is as it was: nothing of it is said again."""
    async with linked() as world:
        sent = await world.assign(share(1))
        world.link.tell_others(True)
        await asyncio.sleep(0.2)
        part = sent[-1]
        assert isinstance(part, AssignPart)
        assert (part.base, part.version) == (share(1).version, share(1).version)
        assert (part.changed, part.gone, part.others, part.peers) == ((), (), True, None)
