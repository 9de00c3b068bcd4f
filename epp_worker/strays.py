"""Streams of groups that are not here (yet): held for a while, within bounds, never guessed at.

Nothing times out at the gateway while a stream waits for its pick, so a moment of waiting costs
less than a failed request. A stream whose group opens here (its pods are being listed) is as good
as served: it waits on after the others' time is up, until the list is here or the hold is gone,
within a longer limit. What must never happen to a stream that waits: an immediate response (it is
final and defeats FailOpen) or an end with OK (Envoy would forward the request with an empty body).
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

from epp_worker.forwarding.rules import Past
from epp_worker.http2.contract import GrpcStream, StreamHandler
from epp_worker.wheel import Lane

log = logging.getLogger(__name__)

Serve = Callable[[GrpcStream], StreamHandler | None]
"""A handler for the stream if its group is here by now, else None."""

Opens = Callable[[str], bool]
"""Whether the group that an authority names is held here and its pods are still being listed."""

Forward = Callable[["HeldStream"], StreamHandler | None]
"""A handler that passes the stream on to the owner of its group if there is one, else None."""

NO_HOLDER = "no worker took this route group over in time"
TOO_SLOW = "the pods of this route group were not listed in time"
TOO_MANY = "too many streams wait for route groups that are not here"
TOO_LARGE = "the streams that wait for route groups that are not here hold too much"

RELEASED = 256
"""Streams that go on in one turn of the loop, 60 us each: when the pods of a large namespace are
listed at last, thousands may, and the loop has more to do."""

INTERNAL = 13
UNAVAILABLE = 14
HELD_BYTES = 256 * 1024
"""A stream that holds more is let send only what its window has left."""
_MESSAGE_BYTES = 64
"""What a message that waits costs beside its own bytes."""
_QUOTED = 120
"""Characters of an authority that an answer quotes."""


@dataclass(slots=True)
class StrayCounts:
    """Streams that came while another worker, or none, owned their group; each counts once, and
    one that was forwarded counts where the gateway's stream is.

    Attributes:
        served: answered at once, from a hold that is not the owner's.
        forwarded: answered, or ended, by the owner, to whom it was passed on.
        held: answered here after it had waited.
        failed: ended UNAVAILABLE, or given up by the gateway while it waited.
    """

    served: int = 0
    forwarded: int = 0
    held: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class StrayBounds:
    """How much may wait at once, in the whole worker. Streams whose authority names no pool that
    there is may take half of it: names can be made up without end."""

    streams: int
    bytes: int


class HeldStream:
    """A stream that waits for its group; afterwards it only passes on."""

    __slots__ = (
        "_gate",
        "_half_closed",
        "_inner",
        "_messages",
        "authority",
        "known",
        "overdue",
        "past",
        "size",
        "stream",
    )

    def __init__(self, gate: "StrayGate", stream: GrpcStream, past: Past, *, known: bool) -> None:
        self._gate = gate
        self.stream = stream
        self.past = past
        self._messages: list[bytes] = []
        self._half_closed = False
        self._inner: StreamHandler | None = None
        self.authority = stream.authority
        self.known = known
        self.size = 0
        """Bytes of messages that it holds."""
        self.overdue = False
        """Its first time is over; it waits only because its group opens here."""

    def received(self, message: bytes) -> None:
        """See `StreamHandler.received`."""
        if self._inner is not None:
            self._inner.received(message)
            return
        size = len(message) + _MESSAGE_BYTES
        if self._gate.admits(self, size):
            self.size += size
            self._messages.append(message)
            if self.size > HELD_BYTES:
                self.stream.hold_back(on=True)

    def half_closed(self) -> None:
        """See `StreamHandler.half_closed`."""
        if self._inner is not None:
            self._inner.half_closed()
        else:
            self._half_closed = True

    def aborted(self) -> None:
        """See `StreamHandler.aborted`."""
        if self._inner is not None:
            self._inner.aborted()
        else:
            self._gate.gave_up(self)

    def expired(self) -> None:
        """Its first time is over; nothing happens if it no longer waits."""
        self._gate.overdue(self)

    def outlasted(self) -> None:
        """The longer time of what opens is over, too."""
        self._gate.expire(self, TOO_SLOW)

    def fail(self, reason: str) -> None:
        """End it, so that the gateway's failure mode applies."""
        self._messages.clear()
        self.stream.end(UNAVAILABLE, f"{reason} ({self.authority[:_QUOTED]!a})")

    def serve(self, serve: Serve) -> bool:
        """Go on as a stream that is served, if its group is here by now."""
        inner = serve(self.stream)
        if inner is None:
            return False
        self.go_on(inner)
        return True

    def go_on(self, inner: StreamHandler) -> None:
        """Give all that came to another handler, and from now on whatever comes."""
        self._inner = inner
        self.stream.hold_back(on=False)
        messages, self._messages = self._messages, []
        try:
            for message in messages:
                inner.received(message)
            if self._half_closed:
                inner.half_closed()
        except Exception as error:  # noqa: BLE001 - one stream's fault must not keep others waiting
            # Not the error's text: it may quote a prompt.
            log.error("stream that had waited failed", extra={"error": type(error).__name__})
            self.stream.end(INTERNAL, "internal error")
            inner.aborted()


class StrayGate:
    """All streams that wait, oldest first within an authority."""

    def __init__(self, bounds: StrayBounds, lane: Lane, opening: Lane, opens: Opens) -> None:
        """Args:
        lane: the time that every stream may wait.
        opening: the time that one may wait on after it while `opens` says so.
        """
        self._bounds = bounds
        self._lane = lane
        self._opening = opening
        self._opens = opens
        self._waiting: dict[str, dict[HeldStream, None]] = {}
        self._count = 0
        self._bytes = 0
        self._unknown = 0
        self._unknown_bytes = 0
        self._releasing: asyncio.Handle | None = None
        self.counts = StrayCounts()

    def __len__(self) -> int:
        return self._count

    @property
    def bytes(self) -> int:
        """How much is held."""
        return self._bytes

    def now(self) -> float:
        """Loop time, by which streams wait."""
        return self._lane.now()

    def hold(
        self, stream: GrpcStream, past: Past | None = None, *, known: bool = True
    ) -> StreamHandler:
        """Let a stream wait for its group, or refuse it at once if too many do.

        Args:
            past: of a stream that is not new here: it waits for the rest of its time.
            known: its authority names a group of pools that there are.
        """
        held = HeldStream(self, stream, past or Past(self.now()), known=known)
        most = self._bounds.streams
        if self._count >= most or (not known and self._unknown * 2 >= most):
            self._failed(held, TOO_MANY)
            return held
        self._count += 1
        self._unknown += not known
        self._waiting.setdefault(held.authority, {})[held] = None
        if held.past.tried:
            due = held.past.since + self._lane.seconds
            asyncio.get_running_loop().call_at(due, held.expired)
        else:
            self._lane.add(held.expired)
        return held

    def admits(self, held: HeldStream, size: int) -> bool:
        """Whether a waiting stream may hold `size` more bytes; else it is ended."""
        if held not in self._waiting.get(held.authority, {}):
            return False
        most = self._bounds.bytes
        full = self._bytes + size > most
        if full or (not held.known and (self._unknown_bytes + size) * 2 > most):
            self.expire(held, TOO_LARGE)
            return False
        self._bytes += size
        if not held.known:
            self._unknown_bytes += size
        return True

    def gave_up(self, held: HeldStream) -> None:
        """The gateway reset a waiting stream."""
        if self._remove(held) and held.past.onward:
            self.counts.failed += 1

    def overdue(self, held: HeldStream) -> None:
        """The time of a stream is over: it ends, unless its group opens here."""
        if held not in self._waiting.get(held.authority, {}):
            return
        if self._opens(held.authority) or self._releasing is not None:
            held.overdue = True
            self._opening.add(held.outlasted)
        else:
            self.expire(held, NO_HOLDER)

    def expire(self, held: HeldStream, reason: str) -> None:
        """End a stream that still waits."""
        if self._remove(held):
            self._failed(held, reason)

    def release(self, serve: Serve) -> None:
        """Holds or pools have changed: serve every stream whose group is here now, and end those
        that waited on for a group that opens here no more. What is too much for this turn of the
        loop is left to the next ones."""
        if self._releasing is not None:
            self._releasing.cancel()
            self._releasing = None
        left = RELEASED
        for authority in list(self._waiting):
            waiting = tuple(islice(self._waiting.get(authority, ()), left))
            served = 0
            for held in waiting:
                if not held.serve(serve):
                    break
                self._remove(held)
                self.counts.held += held.past.onward
                served += 1
            left -= served
            if left == 0:
                loop = asyncio.get_running_loop()
                self._releasing = loop.call_soon(self._go_on_releasing, serve)
                return
            if not served and waiting and waiting[0].overdue and not self._opens(authority):
                self._give_up(authority)

    def _go_on_releasing(self, serve: Serve) -> None:
        self._releasing = None
        self.release(serve)

    def _give_up(self, authority: str) -> None:
        """What this group's streams waited on for does not come."""
        for held in list(self._waiting[authority]):
            if held.overdue:
                self.expire(held, NO_HOLDER)

    def forward(self, forward: Forward) -> None:
        """It may be known now who owns what: pass on every stream whose owner is."""
        for authority in list(self._waiting):
            for held in list(self._waiting[authority]):
                inner = forward(held)
                if inner is not None:
                    self._remove(held)
                    held.go_on(inner)
                elif held.past.onward and not held.past.tried:
                    break  # nor will the next one be

    def _failed(self, held: HeldStream, reason: str) -> None:
        self.counts.failed += held.past.onward
        held.fail(reason)

    def _remove(self, held: HeldStream) -> bool:
        waiting = self._waiting.get(held.authority)
        if waiting is None or held not in waiting:
            return False
        del waiting[held]
        if not waiting:
            del self._waiting[held.authority]
        self._count -= 1
        self._bytes -= held.size
        if not held.known:
            self._unknown -= 1
            self._unknown_bytes -= held.size
        return True
