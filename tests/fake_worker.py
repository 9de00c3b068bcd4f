"""An in-process worker for tests of coordinators: the real control protocol over real gRPC.

It applies shares as a worker does and reports what it holds, but serves no traffic. Tests decide
how fast it opens groups, whether it is quiet, and how it fails: `kill` (ports refuse, as after
kill -9) or `hang` (ports accept, nothing is said).
"""

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import grpc
import grpc.aio

from fleet.control.codec import decode_down, encode
from fleet.control.messages import (
    CONTROL_METHOD,
    SEEN_EPOCH_KEY,
    AskShare,
    Assign,
    AssignPart,
    HoldReport,
    LeaderHello,
    Report,
    SetDrain,
    Verdict,
    WorkerHello,
)
from fleet.control.reporting import Shortening
from fleet.control.sharing import ShareMerging
from fleet.errors import FleetError
from fleet.model import Addresses, EpochVersion, GroupKey, Hold, Load, Member, Share, ShareEntry
from fleet.model.identity import NONE
from fleet.store.contract import Store
from tests.ports import free_port

HEARTBEAT_SECONDS = 0.5
_SILENT = ("ext_proc", "health", "http")


class FakeWorker:
    """One worker; start and stop it as often as you like, each start is a new incarnation.

    Attributes:
        opens: whether groups that it is told to open become synced.
        quiet: what it reports of groups that it drains.
        history: every share that it applied, in order.
        verdicts: every verdict that it heard.
        others: whether another worker could take over, as the leader said last.
    """

    def __init__(
        self,
        name: str,
        store: Store,
        token: str,
        *,
        fleet: str = "default",
        applied: Callable[[Share], None] = lambda _: None,
    ) -> None:
        """Args:
        applied: told of every share when it is applied.
        """
        self.name = name
        self._applied = applied
        self.opens = True
        self.quiet = False
        self.draining = False
        self.history: list[Share] = []
        self.verdicts: list[Verdict] = []
        self.seen = NONE
        self.others: bool | None = None
        self.loads: dict[GroupKey, float] = {}
        self._held: dict[int, tuple[ShareEntry, HoldReport]] = {}
        self._how: object = None
        self._fleet = fleet
        self._store = store
        self._token = token
        self._incarnation = ""
        self._ports = {each: free_port() for each in (*_SILENT, "internal")}
        self._sockets: list[asyncio.Server] = []
        self._server: grpc.aio.Server | None = None
        self._beats: asyncio.Task[None] | None = None
        self._hung = False
        self._changed = asyncio.Event()
        self._stream = 0

    # -- life -----------------------------------------------------------------------------------

    async def start(self) -> "FakeWorker":
        """Listen and beat, as a new incarnation that holds nothing; the same ports again."""
        self._incarnation = secrets.token_hex(4)
        self._hung = False
        self.history, self.seen = [], NONE
        for name in _SILENT:
            server = await asyncio.start_server(
                lambda _, writer: writer.close(), "127.0.0.1", self._ports[name]
            )
            self._sockets.append(server)
        self._server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
        self._server.add_generic_rpc_handlers((_Handlers(self._control, self._token),))
        self._server.add_insecure_port(f"127.0.0.1:{self._ports['internal']}")
        await self._server.start()
        self._beats = asyncio.create_task(self._beat(), name=f"beats of {self.name}")
        return self

    async def kill(self) -> None:
        """As kill -9: every port refuses, nothing is said any more."""
        if self._beats is not None:
            self._beats.cancel()
            await asyncio.gather(self._beats, return_exceptions=True)
            self._beats = None
        await self._refuse()
        if self._server is not None:
            server_, self._server = self._server, None
            await server_.stop(None)

    async def _refuse(self) -> None:
        """Listen no more. A connection that asyncio has accepted and not begun yet would be left
        open by a server that is closed now: those are begun first."""
        loop = asyncio.get_running_loop()
        for server in self._sockets:
            for listening in server.sockets:
                loop.remove_reader(listening.fileno())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for server in self._sockets:
            server.close()
        self._sockets.clear()

    async def restart(self) -> None:
        """Kill and start again at the same addresses."""
        await self.kill()
        await self.start()

    def hang(self) -> None:
        """Ports accept, but beats and reports stop."""
        self._hung = True

    def wake_up(self) -> None:
        """End `hang`."""
        self._hung = False
        self._changed.set()

    # -- facts ----------------------------------------------------------------------------------

    @property
    def member(self) -> Member:
        """This worker by its own words."""
        addresses = {name: f"127.0.0.1:{port}" for name, port in self._ports.items()}
        holds = {entry.group: entry.hold for entry in self.share.entries} if self.history else {}
        return Member(
            self.name,
            self._incarnation,
            Addresses(**addresses),
            draining=self.draining,
            seen=self.seen,
            holds=holds,
        )

    @property
    def share(self) -> Share:
        """The share that is applied now."""
        return self.history[-1]

    def holds(self, hold: Hold) -> set[GroupKey]:
        """The groups that it has in this hold."""
        if not self.history:
            return set()
        return {entry.group for entry in self.share.entries if entry.hold is hold}

    def changed(self) -> None:
        """Report at once."""
        self._changed.set()

    # -- protocol -------------------------------------------------------------------------------

    async def _beat(self) -> None:
        while True:
            if not self._hung:
                with contextlib.suppress(FleetError):
                    await self._store.beat(self.member)
            await asyncio.sleep(HEARTBEAT_SECONDS)

    def _report(self) -> Report:
        return Report(
            version=self.share.version if self.history else NONE,
            seen=self.seen,
            holds=self._holds(self.share.entries if self.history else ()),
            draining=self.draining,
            load=Load(),
        )

    def _holds(self, entries: Sequence[ShareEntry]) -> tuple[HoldReport, ...]:
        """Of an entry that stays it says the very same: a hundred of these share a few cores."""
        how = (self.opens, self.quiet, dict(self.loads))
        known = self._held if how == self._how else {}
        self._how = how
        self._held = {
            id(entry): known.get(id(entry)) or (entry, self._hold_report(entry))
            for entry in entries
        }
        return tuple(report for _, report in self._held.values())

    def _hold_report(self, entry: ShareEntry) -> HoldReport:
        return HoldReport(
            entry.group,
            entry.hold,
            synced=self.opens,
            quiet=self.quiet and entry.hold is Hold.DRAINING,
            streams_per_second=self.loads.get(entry.group, 0.0),
        )

    async def _control(self, _: Any, context: Any) -> None:
        hello = decode_down(await context.read())
        assert isinstance(hello, LeaderHello)
        if hello.epoch < self.seen.epoch:
            context.set_trailing_metadata(((SEEN_EPOCH_KEY, str(self.seen.epoch)),))
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "a higher epoch was seen")
        self.seen = max(self.seen, EpochVersion(hello.epoch, 0))
        self._stream += 1
        stream = self._stream
        if self._hung:
            await asyncio.sleep(3600)
        await context.write(encode(WorkerHello(self.member, deltas=True)))
        reports = asyncio.create_task(self._reports(context, stream, hello))
        merging = ShareMerging()
        try:
            while stream == self._stream:
                data = await context.read()
                if not isinstance(data, bytes):
                    return
                message = decode_down(data)
                if isinstance(message, AssignPart):
                    share = merging.merged(message)
                    if share is None:
                        await context.write(encode(AskShare()))
                        continue
                    message = Assign(share, message.others, message.peers)
                elif isinstance(message, Assign):
                    merging.whole(message.share)
                if not self._obey(message):
                    return
        finally:
            reports.cancel()
            await asyncio.gather(reports, return_exceptions=True)

    async def _reports(self, context: Any, stream: int, hello: LeaderHello) -> None:
        shortening = Shortening() if hello.deltas else None
        loop = asyncio.get_running_loop()
        while stream == self._stream:
            if not self._hung:
                report = self._report()
                if shortening is not None:
                    report = shortening.next(report, loop.time())
                await context.write(encode(report))
            try:
                async with asyncio.timeout(HEARTBEAT_SECONDS):
                    await self._changed.wait()
            except TimeoutError:
                pass
            self._changed.clear()

    def _obey(self, message: Any) -> bool:
        if isinstance(message, Assign):
            self.others = message.others
            self._apply(message.share)
        elif isinstance(message, SetDrain):
            self.draining = message.on
        elif isinstance(message, Verdict):
            self.verdicts.append(message)
            if message.kind == "dead" and message.incarnation == self._incarnation:
                self._incarnation = secrets.token_hex(4)
                self.history = []
            return False
        self._changed.set()
        return True

    def _apply(self, share: Share) -> None:
        if share.incarnation != self._incarnation:
            return
        if not self.history or share.version > self.share.version:
            self.history.append(share)
            self.seen = max(self.seen, share.version)
            self._applied(share)

    def claim(self, share: Share) -> None:
        """Remember this share as if an earlier leader had sent it."""
        self.history.append(replace(share, incarnation=self._incarnation))
        self.seen = max(self.seen, share.version)


class _Handlers(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # generic in the stubs only
    def __init__(self, control: Callable[[Any, Any], Any], token: str) -> None:
        self._control = control
        self._token = token

    def service(self, handler_call_details: Any) -> Any:
        metadata = dict(handler_call_details.invocation_metadata or ())
        if handler_call_details.method != CONTROL_METHOD:
            return None
        assert metadata.get("authorization") == f"Bearer {self._token}"
        return grpc.stream_stream_rpc_method_handler(self._control)
