"""One ext_proc stream: a state machine, messages in, messages out, no I/O and no clock.

A stream is one HTTP request. The request side ends once, with one pick; whatever follows that end
is ignored. The answer's kind always mirrors the message's kind: newer Envoys fail a request over
anything else. In FULL_DUPLEX_STREAMED nothing is said before the decision, because a gateway that
was told to continue drops a later refusal; in the other modes the gateway waits for an answer to
each message and gets one at once. Bytes of bodies are passed on as they came.
"""

import logging
from collections.abc import Callable, Sequence
from enum import Enum, auto
from functools import cache

from epp_worker.extproc import messages, replies
from epp_worker.extproc.budget import BodyBudget, BodyShare, Taken
from epp_worker.extproc.buffer import BodyBuffer
from epp_worker.extproc.endings import (
    INCOMPLETE,
    NO_HEADERS,
    OK,
    SATURATED,
    TOO_LARGE,
    UNSUPPORTED,
    Status,
)
from epp_worker.extproc.messages import BodyMode, BodyPart, Headers, Kind, Message, Modes
from epp_worker.extproc.model import BadBody, model_of
from epp_worker.extproc.observer import SessionObserver
from epp_worker.extproc.usage import CopyBudget, UsageReader
from epp_worker.scheduling.contract import Pick, Picker, PickRequest, Refusal
from fleet.errors import FormatError

log = logging.getLogger(__name__)

WAIT_SECONDS = 0.1
"""After this long without a body message a gateway that told no body mode is taken to wait."""

_NOTHING: tuple[bytes, ...] = ()
_DUPLEX = BodyMode.FULL_DUPLEX_STREAMED
_ASSUMED = Modes(BodyMode.BUFFERED_PARTIAL, BodyMode.BUFFERED)
"""A gateway that told no mode and waits for an answer; its bodies may or may not be whole."""

_NO_HEADERS_READ = Headers(None)


class _Request(Enum):
    """Where the request side stands."""

    NEW = auto()
    OPEN = auto()
    """Headers came, the decision did not."""
    OVER = auto()
    """Decided, or the gateway answered by itself."""


class Session:
    """The state machine of one stream.

    Attributes:
        ended: set = send trailers after the returned messages; nothing more is to be said.
        waiting: call `waited()` if no message came for `WAIT_SECONDS` and this is still True.
        on_starved: called with the answer if the session must end because the worker holds too much
            and this body has made no progress for longest; `ended` is set by then.
    """

    __slots__ = (
        "_body",
        "_budget",
        "_copies",
        "_copy",
        "_counted",
        "_head",
        "_headers",
        "_held",
        "_modes",
        "_observer",
        "_pick",
        "_picker",
        "_request",
        "_responding",
        "_response_over",
        "_share",
        "_subset",
        "_usage",
        "ended",
        "on_starved",
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
    ) -> None:
        self.ended: Status | None = None
        self.waiting = False
        self.on_starved: Callable[[Sequence[bytes]], None] | None = None
        self._picker = picker
        self._budget = budget
        self._share = share
        self._observer = observer
        self._modes: Modes | None = None
        self._request = _Request.NEW
        self._responding = False
        self._response_over = False
        self._headers = _NO_HEADERS_READ
        self._subset: frozenset[str] | None = None
        self._body = BodyBuffer()
        self._held = 0
        self._head = 0
        self._copies = copies
        self._copy = 0
        self._pick: Pick | None = None
        self._usage: UsageReader | None = None

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
            if not self._responding:  # no response phase is configured, or the gateway ends early
                self._release(complete=True)
            self._fail(OK if self._request is _Request.OVER else INCOMPLETE)
        return _NOTHING

    def waited(self) -> Sequence[bytes]:
        """Nothing came for `WAIT_SECONDS`: a gateway of unknown body mode waits for an answer."""
        if not self.waiting:
            return _NOTHING
        self.waiting = False
        self._modes = _ASSUMED
        return (replies.CONTINUE_REQUEST_HEADERS,)

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
        if kind is Kind.UNKNOWN:
            _warn_unknown()
            return _NOTHING
        if self._modes is None and self._request is _Request.NEW:
            self._modes = messages.modes(message)
            if self._modes is not None and BodyMode.GRPC in self._modes:
                _warn_unsupported()
                return self._fail(UNSUPPORTED)
        if kind is Kind.REQUEST_BODY:
            return self._request_body(message)
        if kind is Kind.RESPONSE_BODY:
            return self._response_body(message)
        if kind is Kind.REQUEST_HEADERS:
            return self._request_headers(message)
        if kind is Kind.RESPONSE_HEADERS:
            return self._response_headers(message)
        if kind is Kind.REQUEST_TRAILERS:
            return self._request_trailers()
        return self._response_trailers()

    # The request side.

    def _request_headers(self, message: Message) -> Sequence[bytes]:
        if self._request is not _Request.NEW:
            return _NOTHING
        self._request = _Request.OPEN
        self._headers = Headers(message)
        self._subset = messages.subset_hint(message)
        if messages.headers_end_stream(message):
            return self._decide(None)
        mode = _DUPLEX if self._modes is None else self._modes.request
        size = len(message.data)
        if self._budget.take_head(size, self, self._share) is not Taken.OK:
            return self._refuse(SATURATED)
        self._head = size
        if mode is _DUPLEX:
            self.waiting = self._modes is None
            return _NOTHING
        if mode in (BodyMode.NONE, BodyMode.STREAMED):
            return self._decide(None)
        return (replies.CONTINUE_REQUEST_HEADERS,)

    def _request_body(self, message: Message) -> Sequence[bytes]:
        mode = _DUPLEX if self._modes is None else self._modes.request
        if self._request is _Request.NEW:
            return self._fail(NO_HEADERS)
        if self._request is _Request.OVER:
            return _NOTHING if mode is _DUPLEX else (replies.CONTINUE_REQUEST_BODY,)
        part = messages.body_part(message)
        hint = messages.subset_hint(message)
        if hint is not None:
            self._subset = hint
        size = len(part.body)
        taken = self._budget.take(size, self, self._share, already=self._held)
        if taken is not Taken.OK:
            return self._refuse(TOO_LARGE if taken is Taken.STREAM_FULL else SATURATED)
        self._held += size
        self._body.add(part.body)
        if mode is not _DUPLEX:
            return self._decide_buffered(whole=part.end_of_stream or mode is BodyMode.BUFFERED)
        return self._decide_duplex(end_of_stream=True) if part.end_of_stream else _NOTHING

    def _request_trailers(self) -> Sequence[bytes]:
        mode = _DUPLEX if self._modes is None else self._modes.request
        if self._request is _Request.OPEN:
            if mode is not _DUPLEX:  # no body came before: nowhere to put the pick
                return self._refuse(Refusal(400, "", "The request has trailers but no body."))
            answer = self._decide_duplex(end_of_stream=False)
            if self.ended is None:
                return (*answer, replies.CONTINUE_REQUEST_TRAILERS)
            return answer
        if self._request is _Request.OVER and mode is _DUPLEX:
            return _NOTHING
        return (replies.CONTINUE_REQUEST_TRAILERS,)

    def _decide_duplex(self, *, end_of_stream: bool) -> Sequence[bytes]:
        body = self._body.take()
        model = self._model(body)
        if isinstance(model, BadBody):
            return self._refuse(Refusal(model.status, "", model.message))
        answer = self._decide(model)
        if self.ended is not None or not (body or end_of_stream):
            return answer
        return (*answer, *replies.request_chunks(body, end_of_stream=end_of_stream))

    def _decide_buffered(self, *, whole: bool) -> Sequence[bytes]:
        model = self._model(self._body.take())
        if isinstance(model, BadBody):
            if whole:
                return self._refuse(Refusal(model.status, "", model.message))
            model = None  # a body cut short by the gateway: perhaps the group needs no model
        answer = self._decide(model)
        return answer if self.ended is not None else (replies.on_body(answer[0]),)

    def _model(self, body: bytes) -> str | BadBody | None:
        return model_of(body, self._headers.get, largest=self._budget.per_stream)

    def _decide(self, model: str | None) -> Sequence[bytes]:
        answer = self._picker.pick(PickRequest(model, self._subset, self._headers.get))
        if isinstance(answer, Refusal):
            return self._refuse(answer)
        self._request_over()
        self._pick = answer
        self._observer.picked(answer)
        return (answer.headers_reply,)

    def _refuse(self, refusal: Refusal) -> Sequence[bytes]:
        self._observer.refused(refusal.status)
        self._fail(OK)
        return (replies.immediate_reply(refusal.status, refusal.reason, refusal.message),)

    def _request_over(self) -> None:
        self._request = _Request.OVER
        self._body.clear()
        self._headers = _NO_HEADERS_READ
        self._subset = None
        held = self._held + self._head
        if held:
            self._held = self._head = 0
            self._budget.give_back(held, self, self._share)

    # The response side. Without a request before it, it is the gateway's own reply.

    def _response_headers(self, message: Message) -> Sequence[bytes]:
        self._response_begins()
        headers = Headers(message)
        if self._pick is not None:
            served = messages.served_endpoint(message)
            if served is not None:
                self._pick.served_by(served)
            status = headers.get(":status") or ""
            self._observer.response(int(status) if _is_status(status) else 0)
            if (headers.get("content-encoding") or "identity") == "identity":
                self._drop_copy()
                self._usage = UsageReader(headers.get("content-type"))
        if messages.headers_end_stream(message):
            self._response_complete()
        return (replies.CONTINUE_RESPONSE_HEADERS,)

    def _response_body(self, message: Message) -> Sequence[bytes]:
        self._response_begins()
        part = messages.body_part(message)
        after_end = self._response_over
        if self._usage is not None:
            self._usage.feed(part.body)
            self._charge_copy()
        if part.end_of_stream:
            self._response_complete()
        return self._pass_on(part, after_end=after_end)

    def _charge_copy(self) -> None:
        """Account for the copy that finds token usage; none is kept when all are too many."""
        held = self._usage.held if self._usage is not None else 0
        if held != self._copy:
            if self._copies.move(held - self._copy):
                self._copy = held
            else:
                self._drop_copy()
                self._observer.usage_unreadable(1)

    def _drop_copy(self) -> None:
        self._usage = None
        if self._copy:
            self._copies.move(-self._copy)
            self._copy = 0

    def _pass_on(self, part: BodyPart, *, after_end: bool) -> Sequence[bytes]:
        if self._modes is None or self._modes.response is _DUPLEX:
            if after_end:
                return _NOTHING
            return replies.response_chunks(part.body, end_of_stream=part.end_of_stream)
        return (replies.CONTINUE_RESPONSE_BODY,)

    def _response_trailers(self) -> Sequence[bytes]:
        self._response_begins()
        self._response_complete()
        return (replies.CONTINUE_RESPONSE_TRAILERS,)

    def _response_begins(self) -> None:
        if not self._responding:
            self._responding = True
            self._request_over()

    def _response_complete(self) -> None:
        if self._response_over:
            return
        self._response_over = True
        usage = self._usage
        if usage is not None:
            usage.finish()
            self._drop_copy()
            if usage.prompt is not None or usage.completion is not None:
                self._observer.usage(usage.prompt, usage.completion)
            if usage.faults:
                self._observer.usage_unreadable(usage.faults)
        self._release(complete=True)

    # The end.

    def _fail(self, status: Status) -> Sequence[bytes]:
        self.ended = status
        self._close()
        return _NOTHING

    def _close(self) -> None:
        self.waiting = False
        self._request_over()
        self._drop_copy()
        self._release(complete=False)

    def _release(self, *, complete: bool) -> None:
        pick, self._pick = self._pick, None
        if pick is not None:
            pick.release()
            self._observer.finished(complete)


def _is_status(text: str) -> bool:
    return len(text) == 3 and text.isascii() and text.isdigit()


@cache
def _warn_unknown() -> None:
    log.warning("ext_proc message of an unknown kind ignored")


@cache
def _warn_unsupported() -> None:
    log.warning("ext_proc body mode not supported", extra={"mode": "GRPC"})
