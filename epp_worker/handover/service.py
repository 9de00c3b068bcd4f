"""The `State` method: feeds each worker that follows groups of this one.

Any worker of the fleet may follow any group: all of them may be made stand-by of it at any time,
and who is one now the leader knows better than this worker. A caller that is no worker of the fleet
is sent away before anything of it is read.
"""

import asyncio
import logging
from typing import Any

import grpc

from epp_worker.control.server import HELLO_SECONDS, Context
from epp_worker.handover.counts import StreamCounts
from epp_worker.handover.intake import Hearing, Intake
from epp_worker.handover.outbox import Outbox
from epp_worker.handover.publisher import Publisher
from epp_worker.handover.pump import pump, together
from epp_worker.holdings import Holdings
from fleet.certificates import Certificates, Role
from fleet.control.messages import STATE_METHOD, Unknown
from fleet.control.state_messages import (
    MAX_GROUPS,
    Feed,
    Follow,
    StateHello,
    StateMessage,
    decode_state,
    encode_state,
)
from fleet.control.transport import stranger
from fleet.errors import FormatError
from fleet.model import GroupKey
from fleet.telemetry import RateLimited

log = logging.getLogger(__name__)

MAX_FOLLOWERS = 1024
"""Workers that may follow at once."""
MAX_OPEN = MAX_FOLLOWERS + 64
"""Calls, those included that have not said yet who follows, or that another replaces."""
MAX_FOLLOWED = 4 * MAX_GROUPS
"""Groups that are followed on all calls together; 1 kB each."""
FOLLOWED_PER_TURN = 256
"""Groups: about 1 ms."""
MAX_NAME_CHARS = 253
"""Of a worker, and of its incarnation."""
TOO_MANY = "too many follow this worker"


class _Follower:
    """One call."""

    def __init__(self, hello: StateHello, publisher: Publisher, counts: StreamCounts) -> None:
        self.worker = hello.worker
        self.groups: dict[GroupKey, None] = {}
        self.wake = asyncio.Event()
        self.superseded = asyncio.Event()
        self._publisher = publisher
        self._counts = counts
        self.outbox = Outbox(whole=True, wake=self.wake.set, lagged=self._lagged)

    def _lagged(self, groups: int) -> None:
        self._counts.snapshots_lagged += groups

    def follow(self, wish: Follow) -> None:
        """Change what is followed. Raises FormatError."""
        for group in wish.removed:
            self.groups.pop(group, None)
        self._publisher.remove(self.outbox, wish.removed)
        for group in wish.added:
            self.groups[group] = None
            if len(self.groups) > MAX_GROUPS:
                raise FormatError(f"more than {MAX_GROUPS} groups followed on one call")
            self._publisher.add(self.outbox, group)

    def close(self) -> None:
        """The call is over."""
        self._publisher.remove(self.outbox, tuple(self.groups))
        self.groups.clear()


class StateService:
    """Serves followers; see `epp_worker.control.server.PeerService`."""

    method = STATE_METHOD

    def __init__(
        self,
        fleet: str,
        worker: str,
        certificates: Certificates | None,
        holdings: Holdings,
        publisher: Publisher,
        hearing: Hearing,
        counts: StreamCounts,
        limited: RateLimited,
    ) -> None:
        self._fleet = fleet
        self._worker = worker
        self._certificates = certificates
        self._holdings = holdings
        self._publisher = publisher
        self._hearing = hearing
        self._counts = counts
        self._limited = limited
        self._followers: dict[str, _Follower] = {}
        self._open = 0

    def handler(self) -> "grpc.RpcMethodHandler[Any, Any]":
        """See `PeerService.handler`."""
        return grpc.stream_stream_rpc_method_handler(self.serve)

    def __len__(self) -> int:
        return len(self._followers)

    def lag_seconds(self, now: float) -> float:
        """Age of the oldest change that a follower has not been sent."""
        waits = [
            at for each in self._followers.values() if (at := each.outbox.oldest()) is not None
        ]
        return now - min(waits) if waits else 0.0

    async def serve(self, _: Any, context: Context) -> None:
        """One call, from its first message to its end."""
        why = stranger(context, self._certificates, Role.WORKER)
        if why is not None:
            extra = {"peer": context.peer(), "why": why}
            self._limited.warning("call refused on the internal port", key=why, extra=extra)
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, why)
        if self._open >= MAX_OPEN:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, TOO_MANY)
        self._open += 1
        try:
            await self._serve(context)
        finally:
            self._open -= 1

    async def _serve(self, context: Context) -> None:
        greeting = encode_state(Feed())
        self._counts.sent_bytes += len(greeting)
        await context.write(greeting)
        hello = await self._hello(context)
        follower = _Follower(hello, self._publisher, self._counts)
        older = self._followers.get(hello.worker)
        if older is not None:
            older.superseded.set()
        elif len(self._followers) >= MAX_FOLLOWERS:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, TOO_MANY)
        self._followers[hello.worker] = follower
        intake = self._hearing.open(hello.worker, hello.incarnation, self._held, relay=True)
        try:
            await together(
                self._listen(context, follower, intake),
                pump(follower.outbox, self._publisher, follower.wake, context.write, self._counts),
                _until(follower.superseded),
            )
        except FormatError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error)[:200])
        finally:
            follower.close()
            intake.close()
            if self._followers.get(hello.worker) is follower:
                del self._followers[hello.worker]

    def _held(self, group: GroupKey) -> bool:
        return self._holdings.get(group) is not None

    async def _hello(self, context: Context) -> StateHello:
        message: StateMessage | Unknown | None = None
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                message, _ = await _read(context)
        except TimeoutError:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "no StateHello came")
        except FormatError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error)[:200])
        if not isinstance(message, StateHello):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "StateHello must come first")
        if max(len(message.worker), len(message.incarnation)) > MAX_NAME_CHARS:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a name is too long")
        if message.fleet != self._fleet or message.worker == self._worker:
            why = f"this is worker {self._worker!r} of fleet {self._fleet!r}"
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, why)
        return message

    async def _listen(self, context: Context, follower: _Follower, intake: Intake) -> None:
        """Read until the follower half-closes."""
        while True:
            message, size = await _read(context)
            match message:
                case Follow():
                    followed = sum(len(each.groups) for each in self._followers.values())
                    if followed + len(message.added) > MAX_FOLLOWED:
                        raise FormatError(f"more than {MAX_FOLLOWED} groups followed")
                    await _follow(follower, message)
                case Feed():
                    intake.accept(message, size)
                case StateHello():
                    raise FormatError("StateHello came twice")
                case Unknown():
                    pass  # of a later version
                case None:
                    return


async def _follow(follower: _Follower, wish: Follow) -> None:
    """A few groups in each turn of the loop: there may be thousands. Raises FormatError."""
    for start in range(0, len(wish.removed), FOLLOWED_PER_TURN):
        follower.follow(Follow(removed=wish.removed[start : start + FOLLOWED_PER_TURN]))
        await asyncio.sleep(0)
    for start in range(0, len(wish.added), FOLLOWED_PER_TURN):
        follower.follow(Follow(wish.added[start : start + FOLLOWED_PER_TURN]))
        await asyncio.sleep(0)


async def _until(event: asyncio.Event) -> None:
    await event.wait()


async def _read(context: Context) -> tuple[StateMessage | Unknown | None, int]:
    """The next message and its size, or None at the end of the stream."""
    data = await context.read()
    end = grpc.aio.EOF  # type: ignore[attr-defined]  # missing in the stubs
    return (None, 0) if data is end else (decode_state(data), len(data))
