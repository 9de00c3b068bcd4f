"""One ext_proc stream: a state machine, messages in, messages out, no I/O and no clock.

A stream is one HTTP request. The request side ends once, with one pick; whatever follows that end
is ignored. The answer's kind always mirrors the message's kind: newer Envoys fail a request over
anything else. In FULL_DUPLEX_STREAMED nothing is said before the decision, because a gateway that
was told to continue drops a later refusal; in the other modes the gateway waits for an answer to
each message and gets one at once. Bytes of bodies are passed on as they came.
"""

import logging
import random
from collections.abc import Callable, Sequence
from functools import cache
from typing import Final

from epp_worker.extproc import messages, replies
from epp_worker.extproc.asking import Came, ask
from epp_worker.extproc.budget import OK as TAKEN
from epp_worker.extproc.budget import BodyBudget, BodyShare, Taken
from epp_worker.extproc.buffer import BodyBuffer
from epp_worker.extproc.detaching import ResponsePhases
from epp_worker.extproc.endings import (
    INCOMPLETE,
    NO_HEADERS,
    OK,
    SATURATED,
    TOO_LARGE,
    UNSUPPORTED,
    Status,
)
from epp_worker.extproc.messages import Headers, Message
from epp_worker.extproc.observer import SessionObserver
from epp_worker.extproc.phases import BodyMode, Kind, Modes
from epp_worker.extproc.response import ResponseSide
from epp_worker.extproc.usage import CopyBudget
from epp_worker.scheduling.contract import Pick, Picker, Refusal
from fleet.errors import FormatError

log = logging.getLogger(__name__)

WAIT_SECONDS: Final = 0.1
"""After this long without a body message a gateway that told no body mode is taken to wait."""

_NOTHING: tuple[bytes, ...] = ()
# Names of their own for what each stream is compared with: see `budget.OK`.
_DUPLEX: Final = BodyMode.FULL_DUPLEX_STREAMED
_GRPC: Final = BodyMode.GRPC
_UNKNOWN: Final = Kind.UNKNOWN
_REQUEST_HEADERS: Final = Kind.REQUEST_HEADERS
_REQUEST_BODY: Final = Kind.REQUEST_BODY
_REQUEST_TRAILERS: Final = Kind.REQUEST_TRAILERS
_RESPONSE_HEADERS: Final = Kind.RESPONSE_HEADERS
_RESPONSE_BODY: Final = Kind.RESPONSE_BODY

_ASSUMED: Final = Modes(BodyMode.BUFFERED_PARTIAL, BodyMode.BUFFERED)
"""A gateway that told no mode and waits for an answer; its bodies may or may not be whole."""

_NO_HEADERS_READ: Final = Headers(None)

# Where the request side stands.
_NEW: Final = 0
_OPEN: Final = 1  # headers came, the decision did not
_OVER: Final = 2  # decided, or the gateway answered by itself


class _Decided:
    """A pick: the reply that names it, and the body to send on if that is not what came."""

    __slots__ = ("body", "reply")

    def __init__(self, reply: bytes, body: bytes | None) -> None:
        self.reply: Final = reply
        self.body: Final = body


class Session:
    """The state machine of one stream.

    Attributes:
        ended: set = send trailers after the returned messages; nothing more is to be said.
        waiting: call `waited()` if no message came for `WAIT_SECONDS` and this is still True.
        detachable: set before the first message, if this gateway is known to let the response pass
            when the stream ends with the pick.
        parting: set = the stream may end with these messages, after what `receive` returned: call
            either `leave`, and end it, or `stay`.
        on_starved: called with the answer if the session must end because the worker holds too much
            and this body has made no progress for longest; `ended` is set by then.
    """

    __slots__ = (
        "_body",
        "_budget",
        "_head",
        "_headers",
        "_held",
        "_modes",
        "_observer",
        "_phases",
        "_pick",
        "_picker",
        "_request",
        "_response",
        "_rng",
        "_share",
        "_subset",
        "detachable",
        "ended",
        "on_starved",
        "parting",
        "waiting",
    )

    def __init__(
        self,
        picker: Picker,
        *,
        budget: BodyBudget,
        share: BodyShare,
        copies: CopyBudget,
        observer: SessionObserver,
        rng: random.Random,
        phases: ResponsePhases,
    ) -> None:
        self.detachable = False
        self.parting: tuple[bytes, ...] | None = None
        self.ended: Status | None = None
        self.waiting = False
        self.on_starved: Callable[[Sequence[bytes]], None] | None = None
        self._picker = picker
        self._budget = budget
        self._share = share
        self._observer = observer
        self._modes: Modes | None = None
        self._request = _NEW
        self._response = ResponseSide(copies, observer)
        self._rng = rng
        self._phases = phases
        self._headers = _NO_HEADERS_READ
        self._subset: frozenset[str] | None = None
        self._body = BodyBuffer()
        self._held = 0
        self._head = 0
        self._pick: Pick | None = None

    @property
    def picked(self) -> Pick | None:
        """The open pick, if there is one."""
        return self._pick

    def receive(self, message: bytes) -> Sequence[bytes]:
        """Take one ProcessingRequest; returns the ProcessingResponses to send, in order.

        A message that cannot be read ends the stream with INTERNAL.
        """
        if self.ended is not None:
            return _NOTHING
        self.waiting = False
        try:
            return self._receive(messages.read(message))
        except FormatError as error:
            return self._fail(Status(13, str(error)))

    def half_closed(self) -> Sequence[bytes]:
        """The gateway will send no more."""
        if self.ended is None:
            # No response phase is configured, or the gateway ends early.
            if not self._response.begun:
                self._release(complete=True)
            self._fail(OK if self._request is _OVER else INCOMPLETE)
        return _NOTHING

    def waited(self) -> Sequence[bytes]:
        """Nothing came for `WAIT_SECONDS`: a gateway of unknown body mode waits for an answer."""
        if not self.waiting:
            return _NOTHING
        self.waiting = False
        self._modes = _ASSUMED
        return (replies.CONTINUE_REQUEST_HEADERS,)

    def stay(self) -> Sequence[bytes]:
        """See the response through; returns what was held back of the request."""
        held, self.parting = self.parting or _NOTHING, None
        return held

    def leave(self) -> Sequence[bytes]:
        """The request goes on without us; returns the last messages. `ended` is set."""
        held = self.stay()
        pick, self._pick = self._pick, None
        if pick is not None:
            pick.detach()
            self._observer.left()
        self._fail(OK)
        return held

    def starve(self) -> None:
        """See `budget.Holder.starve`."""
        answer = self._refuse(SATURATED)
        if self.on_starved is not None:
            self.on_starved(answer)

    def aborted(self) -> None:
        """The stream is gone; nothing can be sent. Releases everything, once."""
        self.ended = self.ended or OK
        self._close()

    def _receive(self, message: Message) -> Sequence[bytes]:
        kind = message.kind
        if kind is _UNKNOWN:
            _warn_unknown()
            return _NOTHING
        if self._modes is None and self._request is _NEW:
            self._modes = messages.modes(message)
            if self._modes is not None and _GRPC in self._modes:
                _warn_unsupported()
                return self._fail(UNSUPPORTED)
        if kind is _REQUEST_BODY:
            return self._request_body(message)
        if kind is _REQUEST_HEADERS:
            return self._request_headers(message)
        if kind is _REQUEST_TRAILERS:
            return self._request_trailers()
        return self._respond(message)

    # The request side.

    def _request_headers(self, message: Message) -> Sequence[bytes]:
        if self._request is not _NEW:
            return _NOTHING
        self._request = _OPEN
        self._headers = Headers(message)
        self._subset = messages.subset_hint(message)
        if messages.headers_end_stream(message):
            return self._decide_at_once(ends=True)
        mode = _DUPLEX if self._modes is None else self._modes.request
        size = len(message.data)
        if self._budget.take_head(size, self, self._share) is not TAKEN:
            return self._refuse(SATURATED)
        self._head = size
        if mode is _DUPLEX:
            self.waiting = self._modes is None
            return _NOTHING
        if mode in (BodyMode.NONE, BodyMode.STREAMED):
            return self._decide_at_once(ends=False)
        return (replies.CONTINUE_REQUEST_HEADERS,)

    def _request_body(self, message: Message) -> Sequence[bytes]:
        mode = _DUPLEX if self._modes is None else self._modes.request
        if self._request is _NEW:
            return self._fail(NO_HEADERS)
        if self._request is _OVER:
            return _NOTHING if mode is _DUPLEX else (replies.CONTINUE_REQUEST_BODY,)
        body, ends = messages.body_part(message)
        hint = messages.subset_hint(message)
        if hint is not None:
            self._subset = hint
        size = len(body)
        taken = self._budget.take(size, self, self._share, already=self._held)
        if taken is not TAKEN:
            return self._refuse(TOO_LARGE if taken is Taken.STREAM_FULL else SATURATED)
        self._held += size
        self._body.add(body)
        if mode is not _DUPLEX:
            return self._decide_buffered(whole=ends or mode is BodyMode.BUFFERED)
        return self._decide_duplex(end_of_stream=True) if ends else _NOTHING

    def _request_trailers(self) -> Sequence[bytes]:
        mode = _DUPLEX if self._modes is None else self._modes.request
        if self._request is _OPEN:
            if mode is not _DUPLEX:  # no body came before: nowhere to put the pick
                return self._refuse(Refusal(400, "", "The request has trailers but no body."))
            answer = self._decide_duplex(end_of_stream=False)
            if self.ended is None:
                return (*answer, replies.CONTINUE_REQUEST_TRAILERS)
            return answer
        if self._request is _OVER and mode is _DUPLEX:
            return _NOTHING
        return (replies.CONTINUE_REQUEST_TRAILERS,)

    def _decide_at_once(self, *, ends: bool) -> Sequence[bytes]:
        decided = self._decide(None)
        if not isinstance(decided, _Decided):
            return decided
        if ends and self._may_leave():
            self.parting = _NOTHING
        return (decided.reply,)

    def _decide_duplex(self, *, end_of_stream: bool) -> Sequence[bytes]:
        body = self._body.take()
        decided = self._decide(body)
        if not isinstance(decided, _Decided):
            return decided
        if decided.body is not None:
            body = decided.body
        if end_of_stream and self._may_leave():
            self.parting = (replies.LAST_REQUEST_CHUNK,)
            end_of_stream = False
        if not (body or end_of_stream):
            return (decided.reply,)
        return (decided.reply, *replies.request_chunks(body, end_of_stream=end_of_stream))

    def _decide_buffered(self, *, whole: bool) -> Sequence[bytes]:
        decided = self._decide(self._body.take(), whole=whole)
        if not isinstance(decided, _Decided):
            return decided
        reply = replies.on_body(decided.reply)
        return (reply if decided.body is None else replies.with_body(reply, decided.body),)

    def _decide(self, body: bytes | None, *, whole: bool = True) -> _Decided | Sequence[bytes]:
        came = Came(self._headers.get, self._subset, body, whole)
        asked = ask(self._picker, came, largest=self._budget.per_stream, rng=self._rng)
        if isinstance(asked, Refusal):
            return self._refuse(asked)
        self._observer.asked(asked.request, self._held)
        answer = self._picker.pick(asked.request)
        if asked.hints is not None:
            asked.hints.forget()
        if isinstance(answer, Refusal):
            return self._refuse(answer)
        self._request_over()
        self._pick = answer
        self._response.renaming = asked.renaming
        self._observer.picked(answer)
        reply = answer.headers_reply
        if asked.set_headers or asked.remove_headers:
            reply = replies.with_headers(reply, asked.set_headers, asked.remove_headers)
        return _Decided(reply, asked.body)

    def _may_leave(self) -> bool:
        """Whether the stream may end with the pick; see `ResponsePhases`."""
        return (
            self.detachable
            and self._modes is not None
            and self._modes.request is _DUPLEX
            and self._pick is not None
            and self._response.renaming is None
            and not self._response.begun
            and self._phases.detaches(self._pick)
        )

    def _refuse(self, refusal: Refusal) -> Sequence[bytes]:
        self._observer.refused(refusal.status)
        self._fail(OK)
        return (replies.immediate_reply(refusal.status, refusal.reason, refusal.message),)

    def _request_over(self) -> None:
        self._request = _OVER
        self._body.clear()
        self._headers = _NO_HEADERS_READ
        self._subset = None
        held = self._held + self._head
        if held:
            self._held = self._head = 0
            self._budget.give_back(held, self, self._share)

    # The response side. Without a request before it, it is the gateway's own reply.

    def _respond(self, message: Message) -> Sequence[bytes]:
        response = self._response
        if not response.begun:
            response.begun = True
            self._request_over()
        mode = _DUPLEX if self._modes is None else self._modes.response
        if message.kind is _RESPONSE_BODY:
            answer = response.body(message, mode)
        elif message.kind is _RESPONSE_HEADERS:
            answer = response.headers(message, self._pick, mode)
        else:
            answer = response.trailers(mode)
        if response.over:
            self._release(complete=True)
        return answer

    # The end.

    def _fail(self, status: Status) -> Sequence[bytes]:
        self.ended = status
        self._close()
        return _NOTHING

    def _close(self) -> None:
        self.waiting = False
        self._request_over()
        self._response.drop()
        self._release(complete=False)

    def _release(self, *, complete: bool) -> None:
        pick, self._pick = self._pick, None
        if pick is not None:
            pick.release()
            self._observer.finished(complete)


@cache
def _warn_unknown() -> None:
    log.warning("ext_proc message of an unknown kind ignored")


@cache
def _warn_unsupported() -> None:
    log.warning("ext_proc body mode not supported", extra={"mode": "GRPC"})
