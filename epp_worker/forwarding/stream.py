"""The near side of a forwarded stream: between the gateway and the group's owner.

What the gateway sends waits here until the owner's window takes it; beyond a bound the gateway's
own window is opened no more. What the owner answers is read only when the gateway has taken the
answer before. Until the first answer all that was sent is kept, so that the stream can be given to
another owner; where memory does not suffice for that, a lost owner ends the stream.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import Protocol

from epp_worker.forwarding.budget import Bytes
from epp_worker.forwarding.calls import UNAVAILABLE, End, OwnerCall
from epp_worker.http2.contract import GrpcStream, StreamHandler

UNSENT_BYTES = 256 * 1024
"""More that waits for the owner holds the gateway back."""
_MESSAGE_BYTES = 64
"""What a message that waits costs beside its own bytes."""
LOST = "the worker that owns this route group was lost"
TOO_LARGE = "the streams that are being forwarded hold too much"


class Desk(Protocol):
    """Where a forwarded stream reports what became of it."""

    def passed_on(self) -> None:
        """The owner has answered, or ended it."""
        ...

    def failed(self) -> None:
        """It ended without that."""
        ...

    def again(self, stream: GrpcStream) -> StreamHandler:
        """The owner did not answer: hold the stream, or end it."""
        ...


class ForwardedStream:
    """One stream that is forwarded; see the module. `run` is its life."""

    def __init__(self, stream: GrpcStream, call: OwnerCall, desk: Desk, held: Bytes) -> None:
        self._stream = stream
        self._call = call
        self._desk = desk
        self._held = held
        self._unsent: deque[bytes] = deque()
        self._unsent_bytes = 0
        self._kept: list[bytes] | None = []
        """All that the owner got before it answered; None = no more to be given to another."""
        self._size = 0
        self._news = asyncio.Event()
        self._half_closed = False
        self._answered = False
        self._over = False
        self._inner: StreamHandler | None = None
        self.stop: Callable[[], object] = lambda: None
        """Cancels `run`."""
        held.may_spare(self)

    # What the gateway does.

    def received(self, message: bytes) -> None:
        """See `StreamHandler.received`."""
        if self._inner is not None:
            self._inner.received(message)
            return
        if self._over:
            return
        size = len(message) + _MESSAGE_BYTES
        if not self._held.take(size):
            self._give_up(TOO_LARGE)
            return
        self._size += size
        self._unsent.append(message)
        self._unsent_bytes += len(message)
        if self._unsent_bytes > UNSENT_BYTES:
            self._stream.hold_back(on=True)
        self._news.set()

    def half_closed(self) -> None:
        """See `StreamHandler.half_closed`."""
        if self._inner is not None:
            self._inner.half_closed()
        else:
            self._half_closed = True
            self._news.set()

    def aborted(self) -> None:
        """See `StreamHandler.aborted`."""
        if self._inner is not None:
            self._inner.aborted()
        elif not self._over:
            if not self._answered:
                self._desk.failed()
            self._close()
            self.stop()

    # What the owner does.

    async def run(self) -> None:
        """Until either side has ended it."""
        sending = asyncio.create_task(self._send(), name="forward: requests")
        try:
            self._ended(await self._pass_answers())
        finally:
            sending.cancel()
            self._call.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await sending

    async def _send(self) -> None:
        while True:
            while self._unsent:
                if not await self._call.send(self._unsent[0]):
                    return
                self._sent()
            if self._half_closed:
                await self._call.finish()
                return
            self._news.clear()
            await self._news.wait()

    def _sent(self) -> None:
        if not self._unsent:
            return  # it was given up meanwhile
        message = self._unsent.popleft()
        self._unsent_bytes -= len(message)
        if self._kept is None:
            self._let_go(len(message) + _MESSAGE_BYTES)
        else:
            self._kept.append(message)
        if self._unsent_bytes <= UNSENT_BYTES // 2:
            self._stream.hold_back(on=False)

    async def _pass_answers(self) -> End:
        while isinstance(said := await self._call.receive(), bytes):
            if not self._answered:
                self._answered = True
                self.forget_kept()
                self._desk.passed_on()
            self._stream.send(said)
            if not self._stream.fits(0):
                taken = asyncio.Event()
                self._stream.when_sent(taken.set)
                await taken.wait()
        return said

    def _ended(self, end: End) -> None:
        if self._over:
            return
        if self._answered:
            said = end if end.said else End(UNAVAILABLE, LOST, said=False)
            self._close()
            self._stream.end(said.code, said.message)
        elif end.said and end.code != UNAVAILABLE:
            self._desk.passed_on()
            self._close()
            self._stream.end(end.code, end.message)
        elif self._kept is None:
            self._give_up(LOST)
        else:
            self._begin_again(self._kept)

    def _begin_again(self, kept: list[bytes]) -> None:
        messages = (*kept, *self._unsent)
        self._close()
        self._inner = inner = self._desk.again(self._stream)
        for message in messages:
            inner.received(message)
        if self._half_closed:
            inner.half_closed()

    # The end.

    def _give_up(self, reason: str) -> None:
        if not self._answered:
            self._desk.failed()
        self._close()
        self._stream.end(UNAVAILABLE, reason)
        self._call.cancel()

    def _close(self) -> None:
        self._over = True
        self._unsent.clear()
        self._unsent_bytes = 0
        self._kept = None
        self._held.spares_nothing(self)
        self._let_go(self._size)
        self._stream.hold_back(on=False)

    def forget_kept(self) -> None:
        """See `Spare.forget_kept`: from now on the owner must not be lost."""
        self._held.spares_nothing(self)
        kept, self._kept = self._kept, None
        if kept:
            self._let_go(sum(len(message) + _MESSAGE_BYTES for message in kept))

    def _let_go(self, size: int) -> None:
        self._size -= size
        self._held.give_back(size)
