"""Whom a stream goes to whose group is not held here, and what became of it."""

import asyncio
import logging
from collections.abc import Callable

from epp_worker.catalogue import Spawn
from epp_worker.forwarding.budget import Bytes
from epp_worker.forwarding.calls import Calls
from epp_worker.forwarding.rules import Known, Past, decide
from epp_worker.forwarding.stream import ForwardedStream
from epp_worker.http2.contract import GrpcStream, StreamHandler
from epp_worker.strays import INTERNAL, StrayGate
from epp_worker.whereabouts import Whereabouts
from fleet.model import GroupKey

log = logging.getLogger(__name__)

MAX_OPEN = 4096
"""Streams that are forwarded at once; more wait like those whose owner is not known."""


class Forwarder:
    """See `Forwards`.

    Args:
        named: the owner of a group that is held here, if another worker is.
        ask: the leader is to be asked soon.
        leader: whether one is connected.
        look_again: see whether streams that wait can go on.
    """

    def __init__(
        self,
        whereabouts: Whereabouts,
        calls: Calls,
        gate: StrayGate,
        held: Bytes,
        spawn: Spawn,
        *,
        named: Callable[[GroupKey], str | None],
        ask: Callable[[], None],
        leader: Callable[[], bool],
        look_again: Callable[[], None],
    ) -> None:
        self._whereabouts = whereabouts
        self._calls = calls
        self._gate = gate
        self._held = held
        self._spawn = spawn
        self._named = named
        self._ask = ask
        self._leader = leader
        self._look_again = look_again
        self.counts = gate.counts
        self.open = 0

    def take(
        self, stream: GrpcStream, group: GroupKey, past: Past, *, known: bool
    ) -> StreamHandler | None:
        """See `Forwards.take`."""
        if not past.onward:
            return None
        whereabouts = self._whereabouts
        named = self._named(group)
        said = whereabouts.known(group) if named is None else Known(named, 0.0)
        asked = whereabouts.asked(group)
        decision = decide(said, asked, leader=self._leader())
        if decision.ask and known and whereabouts.want(group):
            self._ask()
        owner = decision.owner
        incarnation = None if owner is None else self._calls.incarnation(owner)
        if owner is None or incarnation is None or not past.may_try(owner, incarnation):
            return None
        call = self._calls.open(owner, group) if self.open < MAX_OPEN else None
        if call is None:
            return None
        desk = _Desk(self, group, past.after(owner, incarnation))
        forwarded = ForwardedStream(stream, call, desk, self._held)
        task = self._spawn(self._live(forwarded, stream), f"forward to {owner}")
        forwarded.stop = task.cancel
        return forwarded

    def hold(self, stream: GrpcStream, group: GroupKey, past: Past) -> StreamHandler:
        """An owner did not answer: the stream waits for another one."""
        self._whereabouts.doubt(group)
        asyncio.get_running_loop().call_soon(self._look_again)
        return self._gate.hold(stream, past)

    async def _live(self, forwarded: ForwardedStream, stream: GrpcStream) -> None:
        self.open += 1
        try:
            await forwarded.run()
        except Exception as error:  # noqa: BLE001 - one stream's fault must not spread
            # Not the error's text: it may quote a prompt.
            log.error("forwarded stream failed", extra={"error": type(error).__name__})
            stream.end(INTERNAL, "internal error")
            forwarded.aborted()
        finally:
            self.open -= 1


class _Desk:
    """Counts one forwarded stream, and has it held again; see `Desk`."""

    __slots__ = ("_forwarder", "_group", "_past")

    def __init__(self, forwarder: Forwarder, group: GroupKey, past: Past) -> None:
        self._forwarder = forwarder
        self._group = group
        self._past = past

    def passed_on(self) -> None:
        """See `Desk.passed_on`."""
        self._forwarder.counts.forwarded += 1

    def failed(self) -> None:
        """See `Desk.failed`."""
        self._forwarder.counts.failed += 1

    def again(self, stream: GrpcStream) -> StreamHandler:
        """See `Desk.again`."""
        return self._forwarder.hold(stream, self._group, self._past)
