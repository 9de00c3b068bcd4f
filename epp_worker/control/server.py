"""The control method of the internal port: admit one leader, apply what it says, report.

At most one control stream is live: the
one of the highest epoch, and of two with the same epoch the newer one.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn, Protocol

import grpc

from epp_worker.control.rules import Admission, Sentence, admit, understand
from epp_worker.neighbours import Neighbours
from fleet.bearer import FleetToken
from fleet.certificates import Certificates, Role
from fleet.control.codec import decode_down, encode
from fleet.control.messages import (
    SEEN_EPOCH_KEY,
    Ask,
    AskShare,
    Assign,
    AssignPart,
    Down,
    LeaderHello,
    Owners,
    Report,
    SetDrain,
    Unknown,
    Verdict,
    WorkerHello,
)
from fleet.control.reporting import Shortening
from fleet.control.sharing import ShareMerging
from fleet.control.transport import stranger
from fleet.errors import FormatError
from fleet.model import EpochVersion, Member, Share
from fleet.telemetry import RateLimited

log = logging.getLogger(__name__)

HELLO_SECONDS = 5.0
"""A peer that says nothing for this long after it opened a stream is sent away."""
REPORT_GAP_SECONDS = 0.02
"""A worker that opens a thousand groups tells of them in a few reports, not in a thousand."""


class Context(Protocol):
    """One call as its server sees it: gRPC's `ServicerContext`, as far as it is used here.

    `read` and `write` raise what `_is_broken_stream` knows once the call is over; the call's own
    task is cancelled then.
    """

    async def read(self) -> Any:
        """The next message's bytes; `grpc.aio.EOF` at the end of the stream."""
        ...

    async def write(self, message: Any) -> None:
        """Send a message; returns once it is on its way."""
        ...

    async def abort(
        self, code: grpc.StatusCode, details: str = "", trailing_metadata: Any = ()
    ) -> NoReturn:
        """End the call with this status, by raising."""
        ...

    def set_trailing_metadata(self, trailing_metadata: Any) -> None:
        """Send these pairs with the status."""
        ...

    def peer(self) -> str:
        """Who calls."""
        ...

    def auth_context(self) -> Mapping[str, Iterable[bytes]]:
        """What TLS knows of the caller."""
        ...


class Commands(Protocol):
    """What a leader may change; implemented by the worker."""

    def member(self) -> Member:
        """This worker by its own words, as of now."""
        ...

    def report(self) -> Report:
        """The status that goes up."""
        ...

    def seen(self) -> EpochVersion:
        """Highest epoch.version seen."""
        ...

    def see(self, version: EpochVersion) -> None:
        """An epoch.version was seen."""
        ...

    def assign(self, share: Share) -> None:
        """Apply a share, if it may be applied."""
        ...

    def set_drain(self, on: bool) -> None:
        """Set or lift the drain mark."""
        ...

    def rejoin(self, reason: str) -> None:
        """This incarnation is dead: become another one."""
        ...

    def duplicate(self, reason: str) -> None:
        """The id is taken: exit."""
        ...


class ControlStream:
    """One live control stream."""

    def __init__(self, context: Context, hello: LeaderHello) -> None:
        self._context = context
        self.epoch = hello.epoch
        self.leader = hello.leader
        self.wake = asyncio.Event()
        """Set when the leader should hear a report at once."""
        self.superseded = asyncio.Event()
        self.others: bool | None = None
        """Whether another worker could take over, as this leader says; None until it does."""
        self._shortening = Shortening() if hello.deltas else None
        self._merging = ShareMerging()
        self._ask_share = False

    async def reports(
        self, commands: Commands, neighbours: Neighbours, interval: Callable[[], float]
    ) -> None:
        """Send a report at once after each change, and every heartbeat."""
        while True:
            try:
                async with asyncio.timeout(interval()):
                    await self.wake.wait()
            except TimeoutError:
                pass  # nothing happened for a heartbeat
            self.wake.clear()
            if self._ask_share:
                self._ask_share = False
                await self._context.write(encode(AskShare()))
            await self._context.write(encode(self._news(commands.report())))
            asked = neighbours.asking()
            if asked:
                await self._context.write(encode(Ask(asked)))
            await asyncio.sleep(REPORT_GAP_SECONDS)

    def told(self, message: Assign | AssignPart) -> Share | None:
        """The whole share that the leader means; None = it was asked to tell all of it.

        Raises:
            FormatError: parts of more than a worker can hold.
        """
        self.others = message.others
        if isinstance(message, Assign):
            return self._merging.whole(message.share)
        share = self._merging.merged(message)
        if share is None:
            self._ask_share = True
            self.wake.set()
        return share

    def _news(self, report: Report) -> Report:
        """What this stream has not told yet, where its leader reads that; else all."""
        now = asyncio.get_running_loop().time()
        return report if self._shortening is None else self._shortening.next(report, now)


class Control:
    """The control service of this worker.

    Args:
        interval: seconds until the next report of a stream to which nothing happens.
        certificates: where there are any, only a coordinator's is listened to.
    """

    def __init__(
        self,
        fleet: str,
        token: str,
        commands: Commands,
        neighbours: Neighbours,
        interval: Callable[[], float],
        limited: RateLimited,
        certificates: Certificates | None = None,
    ) -> None:
        self.limited = limited
        self._certificates = certificates
        self._fleet = fleet
        self._token = FleetToken(token)
        self._commands = commands
        self._neighbours = neighbours
        self._interval = interval
        self._live: ControlStream | None = None
        self._last_connected = float("-inf")

    def notify(self) -> None:
        """Something changed: the leader hears of it at once."""
        if self._live is not None:
            self._live.wake.set()

    def leader(self) -> ControlStream | None:
        """The live stream."""
        return self._live

    def others(self) -> bool | None:
        """Whether another worker could take over, by the word of the leader that is connected."""
        return None if self._live is None else self._live.others

    def leader_away(self, now: float) -> float:
        """Seconds since a leader was connected, by the loop's clock; 0 while one is."""
        return 0.0 if self._live is not None else now - self._last_connected

    def authenticated(self, authorization: str) -> bool:
        """Whether a call's `authorization` is the fleet's, compared in constant time."""
        return self._token.shown_by(authorization)

    async def serve(self, _: Any, context: Context) -> None:
        """One call of the Control method, from its first message to its end."""
        await self._known(context)
        hello = await self._hello(context)
        self._commands.see(EpochVersion(hello.epoch, 0))
        stream = ControlStream(context, hello)
        older, self._live = self._live, stream
        if older is not None:
            older.superseded.set()
        extra = {"leader": hello.leader.id, "epoch": hello.epoch}
        log.info("leader connected", extra=extra)
        try:
            await context.write(encode(WorkerHello(self._commands.member(), deltas=True)))
            await self._converse(stream, context)
        finally:
            if self._live is stream:
                self._live = None
                self._last_connected = asyncio.get_running_loop().time()
            log.info("leader disconnected", extra=extra)

    async def _known(self, context: Context) -> None:
        """Send away whoever is no coordinator of this fleet, before anything of it is read."""
        why = stranger(context, self._certificates, Role.COORDINATOR)
        if why is not None:
            extra = {"peer": context.peer(), "why": why}
            self.limited.warning("call refused on the internal port", key=why, extra=extra)
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, why)

    async def _hello(self, context: Context) -> LeaderHello:
        message: Down | Unknown | None = None
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                message = await _read(context)
        except TimeoutError:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "no LeaderHello came")
        except FormatError as error:
            await self._unreadable(context, error)
        if not isinstance(message, LeaderHello):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "LeaderHello must come first")
        seen = self._commands.seen().epoch
        match admit(self._fleet, seen, message):
            case Admission.OTHER_FLEET:
                reason = f"this worker is of fleet {self._fleet!r}"
                await context.abort(grpc.StatusCode.PERMISSION_DENIED, reason)
            case Admission.LOWER_EPOCH:
                extra = {"epoch": message.epoch, "seen_epoch": seen}
                self.limited.warning("leader refused", key=message.leader.id, extra=extra)
                await self._refuse_epoch(context, seen)
            case Admission.ADMIT:
                pass
        return message

    async def _refuse_epoch(self, context: Context, seen: int) -> None:
        context.set_trailing_metadata(((SEEN_EPOCH_KEY, str(seen)),))
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"epoch {seen} was seen here")

    async def _unreadable(self, context: Context, error: FormatError) -> None:
        extra = {"peer": context.peer()}
        self.limited.warning("unreadable leader", key="unreadable", error=error, extra=extra)
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error)[:200])

    async def _converse(self, stream: ControlStream, context: Context) -> None:
        reads = asyncio.create_task(self._commanded(stream, context), name="control reads")
        reports = asyncio.create_task(
            stream.reports(self._commands, self._neighbours, self._interval), name="control reports"
        )
        superseded = asyncio.create_task(stream.superseded.wait(), name="control superseded")
        tasks = (reads, reports, superseded)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
        if superseded in tasks and stream.superseded.is_set():
            seen = self._commands.seen().epoch
            if seen > stream.epoch:
                await self._refuse_epoch(context, seen)
            await context.abort(grpc.StatusCode.ABORTED, "a newer stream of this epoch is up")
        for result in results:
            if isinstance(result, FormatError):
                await self._unreadable(context, result)
            if isinstance(result, Exception) and not _is_broken_stream(result):
                raise result

    async def _commanded(self, stream: ControlStream, context: Context) -> None:
        """Obey until the leader half-closes, or until a verdict ends this incarnation."""
        while (message := await _read(context)) is not None:
            if isinstance(message, Assign | AssignPart):
                self._assigned(stream, message)
            elif not self._obey(message):
                return

    def _assigned(self, stream: ControlStream, message: Assign | AssignPart) -> None:
        if message.peers is not None:
            self._neighbours.introduce(message.peers)
        share = stream.told(message)
        if share is not None:
            self._commands.assign(share)
        else:
            extra = {"leader": stream.leader.id}
            self.limited.warning("part of another share, asking for the whole", extra=extra)

    def _obey(self, message: LeaderHello | SetDrain | Verdict | Owners | Unknown) -> bool:
        """Do what the leader says; False ends the stream."""
        match message:
            case SetDrain(on):
                self._commands.set_drain(on)
            case Verdict():
                understood = understand(self._commands.member().incarnation, message)
                match understood.sentence:
                    case Sentence.REJOIN:
                        self._commands.rejoin(understood.reason)
                        return False
                    case Sentence.EXIT:
                        self._commands.duplicate(understood.reason)
                        return False
                    case Sentence.IGNORE:
                        log.warning("verdict ignored", extra={"reason": understood.reason})
            case Owners():
                self._neighbours.learn(message)
            case Unknown():
                pass  # of a later version
            case LeaderHello():
                raise FormatError("LeaderHello came twice")
        return True


def _is_broken_stream(error: BaseException) -> bool:
    return isinstance(error, grpc.RpcError | grpc.aio.UsageError | asyncio.InvalidStateError)


async def _read(context: Context) -> Down | Unknown | None:
    """The next message, or None at the end of the stream."""
    data = await context.read()
    end = grpc.aio.EOF  # type: ignore[attr-defined]  # missing in the stubs
    return None if data is end else decode_down(data)
