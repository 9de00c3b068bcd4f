"""The call to one owner: all groups that are followed there, and, of groups that drain here, what
is known here in the other direction."""

import asyncio
import logging
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any

import grpc

from epp_worker.handover.counts import StreamCounts
from epp_worker.handover.intake import Hearing, Intake
from epp_worker.handover.outbox import Outbox
from epp_worker.handover.publisher import Publisher
from epp_worker.handover.pump import pump, together
from epp_worker.peers import Peers
from epp_worker.scheduling.pool import PoolState
from fleet.control.messages import STATE_METHOD, Unknown, WorkerPeer
from fleet.control.state_messages import (
    Feed,
    Follow,
    StateHello,
    StateMessage,
    decode_state,
    encode_state,
)
from fleet.errors import FormatError
from fleet.model import GroupKey
from fleet.telemetry import RateLimited

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 3.0
GOOD_CALL_SECONDS = 5.0
"""A call that lasted so long was a good one: the next pause is the first again."""
FOLLOW_AT_ONCE = 256
"""Groups asked for in one message: the owner begins to watch them in one loop turn."""
OLD_PEER_SECONDS = 30.0
"""How often a peer that does not know the method is asked again."""


@dataclass(frozen=True, slots=True)
class Ends:
    """What every line shares.

    Attributes:
        hello: what this worker says of itself, as of now.
        settled: told of groups whose snapshot has come, or will not come.
    """

    peers: Peers
    hello: Callable[[], StateHello]
    hearing: Hearing
    publisher: Publisher
    counts: StreamCounts
    limited: RateLimited
    rng: random.Random
    settled: Callable[[Iterable[GroupKey]], None]


class Line:
    """Follows groups of one owner until it is closed.

    Attributes:
        groups: what is followed, with the pools' states that the snapshot was asked for.
        settled: groups whose snapshot is here, or will not come.
        old: the owner does not know the method.
    """

    def __init__(self, owner: str, ends: Ends) -> None:
        self.owner = owner
        self.groups: dict[GroupKey, tuple[PoolState, ...]] = {}
        self.settled: set[GroupKey] = set()
        self.old = False
        self.task: asyncio.Task[None] | None = None
        self._ends = ends
        self._fed: dict[GroupKey, None] = {}
        self._added: dict[GroupKey, None] = {}
        self._removed: dict[GroupKey, None] = {}
        self._wake = asyncio.Event()
        self._peers_changed = asyncio.Event()
        self._greeted = asyncio.Event()
        self._outbox: Outbox | None = None
        self._intake: Intake | None = None

    def put(self, group: GroupKey, pools: tuple[PoolState, ...], *, feed: bool) -> None:
        """Follow a group; other pools than before mean a new snapshot.

        Args:
            feed: tell the owner what is known here, too.
        """
        if self.groups.get(group) != pools:
            self.groups[group] = pools
            self.settled.discard(group)
            self._removed.pop(group, None)
            self._added[group] = None
            self._wake.set()
        if feed and group not in self._fed:
            self._fed[group] = None
            if self._outbox is not None:
                self._ends.publisher.add(self._outbox, group)
        elif not feed:
            self._unfeed(group)

    def remove(self, group: GroupKey) -> None:
        """Follow a group no longer."""
        self._unfeed(group)
        if self.groups.pop(group, None) is None:
            return
        self.settled.discard(group)
        self._added.pop(group, None)
        self._removed[group] = None
        if self._intake is not None:
            self._intake.leave(group)
        self._wake.set()

    def _unfeed(self, group: GroupKey) -> None:
        if group in self._fed:
            del self._fed[group]
            if self._outbox is not None:
                self._ends.publisher.remove(self._outbox, (group,))

    def peers_changed(self) -> None:
        """The owner may have come, gone or moved."""
        self._peers_changed.set()

    async def run(self) -> None:
        """Dial, follow, and dial again, until cancelled."""
        loop = asyncio.get_running_loop()
        pause = FIRST_PAUSE_SECONDS
        while True:
            self._peers_changed.clear()
            peer = self._ends.peers.get(self.owner)
            if peer is None:
                await self._peers_changed.wait()
                continue
            begun = loop.time()
            code = await self._call(peer)
            self.old = code is grpc.StatusCode.UNIMPLEMENTED
            if loop.time() - begun > GOOD_CALL_SECONDS:
                pause = FIRST_PAUSE_SECONDS
            if self.old:
                self._settle(self.groups)
                await self._wait(OLD_PEER_SECONDS)
            else:
                await self._wait(pause * self._ends.rng.uniform(0.75, 1.25))
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    async def _wait(self, seconds: float) -> None:
        """Sleep, unless something about the peers changes."""
        try:
            async with asyncio.timeout(seconds):
                await self._peers_changed.wait()
        except TimeoutError:
            pass

    async def _call(self, peer: WorkerPeer) -> grpc.StatusCode:
        channel: Any = self._ends.peers.channel(self.owner)
        call = channel.stream_stream(STATE_METHOD)(metadata=self._ends.peers.metadata)
        outbox = Outbox(whole=False, wake=self._wake.set)
        intake = self._ends.hearing.open(
            self.owner, peer.incarnation, self.groups.__contains__, relay=False
        )
        self._outbox, self._intake = outbox, intake
        self._greeted.clear()
        self._added, self._removed = dict.fromkeys(self.groups), {}
        for group in self._fed:
            self._ends.publisher.add(outbox, group)
        self._wake.set()
        try:
            await together(self._listen(call, intake), self._speak(call, outbox))
            return await self._code(call)
        except FormatError as error:
            extra = {"owner": self.owner, "why": str(error)}
            self._ends.limited.warning("state stream not understood", key=self.owner, extra=extra)
            return grpc.StatusCode.INTERNAL
        finally:
            call.cancel()
            self._outbox = self._intake = None
            self._ends.publisher.remove(outbox, tuple(self._fed))
            intake.close()

    async def _speak(self, call: Any, outbox: Outbox) -> None:
        await self._greeted.wait()
        await call.write(encode_state(self._ends.hello()))
        publisher, counts = self._ends.publisher, self._ends.counts
        await pump(outbox, publisher, self._wake, call.write, counts, self._wishes)

    async def _code(self, call: Any) -> grpc.StatusCode:
        """How the owner ended the call; logged where somebody should know."""
        if not call.done():
            call.cancel()
        code: grpc.StatusCode = await call.code()
        if code not in (grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE):
            extra = {"owner": self.owner, "code": code.name, "why": await call.details()}
            self._ends.limited.warning("state stream refused", key=self.owner, extra=extra)
        return code

    def _wishes(self) -> Follow | None:
        if not (self._added or self._removed):
            return None
        removed, self._removed = tuple(self._removed), {}
        added = tuple(islice(self._added, FOLLOW_AT_ONCE))
        for group in added:
            del self._added[group]
        return Follow(added, removed)

    async def _listen(self, call: Any, intake: Intake) -> None:
        end = grpc.aio.EOF  # type: ignore[attr-defined]  # missing in the stubs
        while (data := await call.read()) is not end:
            message: StateMessage | Unknown = decode_state(data)
            self._greeted.set()
            if isinstance(message, Feed):
                intake.accept(message, len(data))
                self._settle((*message.complete, *message.absent))

    def _settle(self, groups: Iterable[GroupKey]) -> None:
        """Whoever waits for these snapshots waits no longer."""
        here = [group for group in groups if group in self.groups and group not in self.settled]
        self.settled.update(here)
        if here:
            self._ends.settled(here)
