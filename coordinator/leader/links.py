"""A control stream of the leader: one task per worker, none of which waits for another.

A link dials, says hello, sends the worker's share whenever it changed (the latest wins) and hands
reports on. To a worker that reads parts it sends what is other than the stream has told. When the
stream breaks or cannot be opened it looks at once whether the worker's ports refuse connections,
and dials again.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from msgspec import structs

from coordinator.leader.asked_again import AskedAgain
from coordinator.leader.doubt import LeaseInDoubt
from coordinator.reach import ControlStream, StreamEnded, WorkerReach
from coordinator.verdicts import Answer, Connect
from fleet.clock import Clock
from fleet.control.messages import (
    MAX_ASKED,
    Ask,
    AskShare,
    Assign,
    AssignPart,
    LeaderHello,
    Owners,
    Report,
    SetDrain,
    Verdict,
    WorkerHello,
    WorkerPeer,
)
from fleet.control.reporting import Merging
from fleet.control.sharing import ShareShortening
from fleet.errors import FormatError
from fleet.model import GroupKey, Member, Share
from fleet.settings.model import MembershipSettings
from fleet.telemetry import RateLimited

log = logging.getLogger(__name__)

OPEN_SECONDS = 1.0
"""From dialling until the worker's hello."""

RETRY_FIRST_SECONDS = 0.05
RETRY_MOST_SECONDS = 0.5
"""Between two dials; doubled each time."""

FAULT_GAP_SECONDS = 10.0
"""Between two looks at what is wrong with a worker's certificate: each is a handshake."""

LAST_WORD_SECONDS = 1.0
"""How long a worker may take to read its verdict, and to how soon it is told again."""


class LinkEvents(Protocol):
    """What a link tells the leader; called on the event loop, must not block."""

    def hello(self, member: Member) -> Answer:
        """A worker introduced itself; the answer decides whether the stream goes on."""
        ...

    def reported(self, member: Member, report: Report) -> None:
        """A report of a joined worker."""
        ...

    def down(self, member: Member) -> None:
        """The stream of a joined worker broke."""
        ...

    def connects(self, member: Member, ext_proc: Connect, health: Connect) -> None:
        """One look at both ports of a worker whose stream is down."""
        ...

    def epoch_seen(self, epoch: int) -> None:
        """A worker refused us: it has seen this epoch."""
        ...

    def asked_again(self) -> None:
        """A worker could make nothing of a part of its share, and wants all of it."""
        ...


OwnersOf = Callable[[tuple[GroupKey, ...]], Owners]
"""Who owns these groups in the last published map."""


class _Told(NamedTuple):
    """What an `Assign` says."""

    share: Share
    others: bool | None
    peers: Mapping[str, WorkerPeer] | None


class Link:
    """One worker at one address."""

    def __init__(
        self,
        contact: Member,
        *,
        hello: Callable[[], LeaderHello],
        reach: WorkerReach,
        settings: MembershipSettings,
        events: LinkEvents,
        owners: OwnersOf,
        clock: Clock,
    ) -> None:
        self.contact = contact
        self._owners = owners
        self._fault: str | None = None
        self._fault_sought = float("-inf")
        self._hello = hello
        self._reach = reach
        self._settings = settings
        self._events = events
        self._clock = clock
        self._wake = asyncio.Event()
        self._share: Share | None = None
        self._others: bool | None = None
        self._peers: Mapping[str, WorkerPeer] | None = None
        self._sent: _Told | None = None
        self._shortening: ShareShortening | None = None
        self._asked_again = AskedAgain()
        self._asked: tuple[GroupKey, ...] = ()
        self._drain: tuple[bool, asyncio.Future[None]] | None = None
        self._joined: Member | None = None
        self._loud = RateLimited(log, clock)

    @property
    def up(self) -> bool:
        """Whether the stream is open and the worker joined."""
        return self._joined is not None

    def assign(self, share: Share) -> None:
        """Send this share as soon as the stream allows; a later one replaces it."""
        self._share = share
        self._wake.set()

    def tell_others(self, others: bool) -> None:
        """Whether another worker could take over; sent if it is news."""
        if others != self._others:
            self._others = others
            self._wake.set()

    def tell_peers(self, peers: Mapping[str, WorkerPeer]) -> None:
        """Every living worker; sent if it is another object than the last."""
        if peers is not self._peers:
            self._peers = peers
            self._wake.set()

    async def set_drain(self, on: bool) -> None:
        """Hand the mark over; returns once it is written to the stream."""
        if self._drain is not None:
            self._drain[1].cancel()
        handed = asyncio.get_running_loop().create_future()
        self._drain = (on, handed)
        self._wake.set()
        await handed

    async def run(self) -> None:
        """Keep the stream up until cancelled."""
        pause = RETRY_FIRST_SECONDS
        while True:
            try:
                if await self._session():
                    pause = RETRY_FIRST_SECONDS
                await self._look_at_ports()
            except Exception:
                # Whatever one worker provokes must not end the links to all others.
                log.exception("link failed, dialling again", extra={"worker": self.contact.id})
            await self._clock.sleep(pause)
            pause = min(2 * pause, RETRY_MOST_SECONDS)

    # -- one stream -----------------------------------------------------------------------------

    async def _session(self) -> bool:
        """Dial and stay until the stream ends. Returns whether the worker joined."""
        stream = self._reach.control(self.contact)
        joined = False
        try:
            member = await self._introduce(stream)
            if member is not None:
                joined = True
                await self._talk(stream, member)
        except StreamEnded as end:
            await self._learn(end)
        except FormatError as error:
            self._loud.warning("unreadable worker", key=self.contact.id, error=error)
        except (LeaseInDoubt, TimeoutError):
            pass  # no hello without a lease, or none in time
        finally:
            if self._joined is not None:
                self._events.down(self._joined)
                self._joined = None
            await stream.close()
        return joined

    async def _introduce(self, stream: ControlStream) -> Member | None:
        async with asyncio.timeout(OPEN_SECONDS):
            await stream.send(self._hello())
            message = await stream.receive()
        if message is None:
            return None
        if not isinstance(message, WorkerHello):
            raise FormatError(f"{self.contact.id} said {type(message).__name__} before hello")
        member = message.member
        if self.contact.incarnation and member.id != self.contact.id:
            # An address changes hands: whoever has it now has a link of its own.
            raise FormatError(f"the address of {self.contact.id} is answered by {member.id}")
        answer = self._events.hello(member)
        if answer is not Answer.JOINED:
            await self._last_word(stream, member, answer)
            return None
        self._joined = member
        self._sent = None
        self._shortening = ShareShortening() if message.deltas else None
        self._asked_again = AskedAgain()
        self._fault, self._fault_sought = None, float("-inf")
        return member

    async def _last_word(self, stream: ControlStream, member: Member, answer: Answer) -> None:
        duplicate = answer is Answer.DUPLICATE
        reason = (
            f"the id {member.id} belongs to another running worker"
            if duplicate
            else "this incarnation was declared dead"
        )
        log.warning(
            "worker refused",
            extra={"worker": member.id, "incarnation": member.incarnation, "why": answer.value},
        )
        async with asyncio.timeout(LAST_WORD_SECONDS):
            await stream.send(Verdict(member.incarnation, answer.value, reason))
            await stream.finish()
            while await stream.receive() is not None:
                pass

    async def _talk(self, stream: ControlStream, member: Member) -> None:
        """Read and write until either ends."""
        tasks = [
            asyncio.create_task(self._send(stream), name=f"send {member.id}"),
            asyncio.create_task(self._receive(stream, member), name=f"receive {member.id}"),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in done:
            # A call that was cancelled cancels whoever waits on it; the link itself goes on.
            if not task.cancelled():
                task.result()

    async def _send(self, stream: ControlStream) -> None:
        while True:
            self._wake.clear()
            share = self._share
            if share is not None and self._meant(share):
                await self._send_news(stream, _Told(share, self._others, self._peers))
            if self._asked:
                asked, self._asked = self._asked, ()
                await stream.send(self._owners(asked))
            if self._drain is not None:
                on, handed = self._drain
                self._drain = None
                await stream.send(SetDrain(on))
                if not handed.done():
                    handed.set_result(None)
            await self._wake.wait()

    async def _send_news(self, stream: ControlStream, told: _Told) -> None:
        sent, self._sent = self._sent, told
        if sent is None:
            await stream.send(self._shortened(told, told.peers))
        elif any(new is not old for new, old in zip(told, sent, strict=True)):
            peers = None if told.peers is sent.peers else told.peers
            await stream.send(self._shortened(told, peers))

    def _shortened(
        self, told: _Told, peers: Mapping[str, WorkerPeer] | None
    ) -> Assign | AssignPart:
        part = None if self._shortening is None else self._shortening.next(told.share)
        if part is None:
            return Assign(told.share, told.others, peers)
        return structs.replace(part, others=told.others, peers=peers)

    def _meant(self, share: Share) -> bool:
        return self._joined is not None and share.incarnation == self._joined.incarnation

    async def _receive(self, stream: ControlStream, member: Member) -> None:
        reports = Merging()
        while True:
            # A stream that carries nothing for this long is dialled anew.
            async with asyncio.timeout(2 * self._settings.ttl_seconds):
                message = await stream.receive()
            if message is None:
                return
            if isinstance(message, Report):
                self._events.reported(member, reports.whole(message))
            elif isinstance(message, Ask):
                self._asked = message.groups[:MAX_ASKED]
                self._wake.set()
            elif isinstance(message, AskShare):
                self._tell_all_again(member)

    def _tell_all_again(self, member: Member) -> None:
        """The worker could make nothing of a part: what it was told counts for nothing."""
        self._events.asked_again()
        if self._shortening is None or self._sent is None:
            return  # a whole comes after any part that it may mean, or has come
        self._loud.warning("share told in whole again", key=member.id)
        self._shortening.forget()
        if self._asked_again.too_often(self._clock.monotonic()):
            log.warning("share told in whole from now on", extra={"worker": member.id})
            self._shortening = None
        self._sent = None
        self._wake.set()

    # -- after it -------------------------------------------------------------------------------

    async def _learn(self, end: StreamEnded) -> None:
        if end.seen_epoch is not None:
            self._events.epoch_seen(end.seen_epoch)
        if await self._turned_down(end) or end.code in ("OK", "CANCELLED"):
            return
        self._loud.log(
            logging.INFO,
            "control stream down",
            key=self.contact.id,
            extra={"worker": self.contact.id, "code": end.code, "details": str(end)},
        )

    async def _turned_down(self, end: StreamEnded) -> bool:
        """Whether the two sides' certificates are what is wrong; then it is said loudly.

        Of a worker that had joined they are good: it is gone, and nothing may hold that up.
        """
        if self._joined is not None or not end.unreached:
            return False
        now = self._clock.monotonic()
        if now - self._fault_sought >= FAULT_GAP_SECONDS:
            self._fault_sought = now
            self._fault = await self._reach.worker_fault(self.contact)
            if self._fault is not None:
                address = self.contact.addresses.internal
                extra = {"worker": self.contact.id, "peer": address, "why": self._fault}
                log.warning("worker not reached by TLS", extra=extra)
        return self._fault is not None

    async def _look_at_ports(self) -> None:
        """Two looks, `refusal_gap_seconds` apart; the second only if both ports refused."""
        addresses = self.contact.addresses
        for last in (False, True):
            ext_proc, health = await self._reach.connects(addresses)
            self._events.connects(self.contact, ext_proc, health)
            if last or ext_proc is not Connect.REFUSED or health is not Connect.REFUSED:
                return
            await self._clock.sleep(self._settings.refusal_gap_seconds)
