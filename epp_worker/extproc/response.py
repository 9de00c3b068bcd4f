"""The response's side of a stream: passes everything on, and sees what it can.

Without a request before it, it is the gateway's own reply.
"""

from collections.abc import Sequence
from typing import Final

from epp_worker.extproc import messages, replies
from epp_worker.extproc.messages import Headers, Message
from epp_worker.extproc.observer import SessionObserver
from epp_worker.extproc.phases import BodyMode
from epp_worker.extproc.renaming import Renaming
from epp_worker.extproc.usage import CopyBudget, UsageReader, is_event_stream
from epp_worker.scheduling.contract import Pick

_NOTHING: tuple[bytes, ...] = ()
_DUPLEX: Final = BodyMode.FULL_DUPLEX_STREAMED
_WHOLE: Final = (_DUPLEX, BodyMode.BUFFERED)
"""Modes in which a body can be changed."""


class ResponseSide:
    """See the module.

    Attributes:
        begun: a response message came.
        over: its end came.
        renaming: of the model; set by the request's side.
    """

    __slots__ = (
        "_copies",
        "_copy",
        "_observer",
        "_size",
        "_streamed",
        "_usage",
        "begun",
        "over",
        "renaming",
    )

    def __init__(self, copies: CopyBudget, observer: SessionObserver) -> None:
        self.begun = False
        self.over = False
        self.renaming: Renaming | None = None
        self._copies = copies
        self._copy = 0
        self._observer = observer
        self._usage: UsageReader | None = None
        self._size = 0
        self._streamed = False

    def headers(self, message: Message, pick: Pick | None, mode: BodyMode) -> Sequence[bytes]:
        """ResponseHeaders; `mode` is that of the response's body."""
        set_headers: Sequence[tuple[str, str]] = ()
        headers = Headers(message)
        plain = (headers.get("content-encoding") or "identity") == "identity"
        if pick is not None:
            served = messages.served_endpoint(message)
            if served is not None:
                pick.served_by(served)
            set_headers = pick.responded(headers.get)
            status = headers.get(":status") or ""
            self._observer.response(int(status) if _is_status(status) else 0)
            content_type = headers.get("content-type")
            self._streamed = is_event_stream(content_type)
            if plain:
                self.drop()
                self._usage = UsageReader(content_type)
        if not plain or mode not in _WHOLE:
            self.renaming = None
        ends = messages.headers_end_stream(message)
        if ends:
            self._complete()
        resized = self.renaming is not None and not ends and headers.get("content-length")
        if set_headers or resized:
            removed = ["content-length"] if resized else []
            return (replies.response_headers(set_headers, removed),)
        return (replies.CONTINUE_RESPONSE_HEADERS,)

    def body(self, message: Message, mode: BodyMode) -> Sequence[bytes]:
        """ResponseBody."""
        body, ends = messages.body_part(message)
        after_end = self.over
        if body:
            if not self._size:
                self._observer.first_bytes(self._streamed)
            self._size += len(body)
        if self._usage is not None:
            self._usage.feed(body)
            self._charge_copy()
        if ends:
            self._complete()
        renaming = self.renaming
        if mode is not _DUPLEX:
            if renaming is None:
                return (replies.CONTINUE_RESPONSE_BODY,)
            changed = renaming.feed(body, last=True)
            if changed == body:
                return (replies.CONTINUE_RESPONSE_BODY,)
            return (replies.response_body(changed),)
        if after_end:
            return _NOTHING
        if renaming is not None:
            body = renaming.feed(body, last=ends)
        return replies.response_chunks(body, end_of_stream=ends)

    def trailers(self, mode: BodyMode) -> Sequence[bytes]:
        """ResponseTrailers."""
        rest = b"" if self.renaming is None or mode is not _DUPLEX else self.renaming.rest()
        self._complete()
        if rest:
            return (
                *replies.response_chunks(rest, end_of_stream=False),
                replies.CONTINUE_RESPONSE_TRAILERS,
            )
        return (replies.CONTINUE_RESPONSE_TRAILERS,)

    def drop(self) -> None:
        """Let go of the copy that finds token usage."""
        self._usage = None
        if self._copy:
            self._copies.move(-self._copy)
            self._copy = 0

    def _charge_copy(self) -> None:
        """Account for the copy; none is kept when all are too many."""
        held = self._usage.held if self._usage is not None else 0
        if held != self._copy:
            if self._copies.move(held - self._copy):
                self._copy = held
            else:
                self.drop()
                self._observer.usage_unreadable(1)

    def _complete(self) -> None:
        if self.over:
            return
        self.over = True
        usage = self._usage
        if usage is not None:
            usage.finish()
            self.drop()
            if usage.prompt is not None or usage.completion is not None:
                self._observer.usage(usage.prompt, usage.completion, usage.cached)
            if usage.faults:
                self._observer.usage_unreadable(usage.faults)
        self._observer.came(self._size)


def _is_status(text: str) -> bool:
    return len(text) == 3 and text.isascii() and text.isdigit()
