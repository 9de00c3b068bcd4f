"""Token usage in a response, read from a bounded side copy.

The response itself is never held, changed or judged here: whatever cannot be read costs one count.
By the response's content type, not by the request: `text/event-stream` is read event by event,
however the events are cut into chunks; anything else is taken for one JSON document.
"""

from typing import Any, Final

import msgspec

from epp_worker.extproc.said import UsageDocument, UsageHolder

MAX_EVENT_BYTES: Final = 256 * 1024
"""A longer event is skipped."""

MAX_DOCUMENT_BYTES: Final = 1024 * 1024
"""A longer JSON document is not read: usage is then unknown."""

MAX_COPIES_BYTES: Final = 64 * 1024 * 1024
"""Side copies of the whole worker; beyond it a response is passed on without one."""

_MOST: Final = 2**53
_PROMPT: Final = ("prompt_tokens", "input_tokens")
_COMPLETION: Final = ("completion_tokens", "output_tokens")
_CACHED: Final = ("cache_read_input_tokens", "cached_tokens")
_DETAILS: Final = ("prompt_tokens_details", "input_tokens_details")
_ENDS: Final = (b"\n\n", b"\n\r\n", b"\r\r")


_decode: Final = msgspec.json.Decoder(UsageDocument).decode
_decode_holder: Final = msgspec.json.Decoder(UsageHolder).decode


class CopyBudget:
    """Bytes of side copies that all sessions of a worker hold together."""

    __slots__ = ("held", "total")

    def __init__(self, total: int = MAX_COPIES_BYTES) -> None:
        self.total = total
        self.held = 0

    def move(self, size: int) -> bool:
        """Hold `size` more bytes, or fewer; False and no change if that is too much."""
        if size > 0 and self.held + size > self.total:
            return False
        self.held += size
        return True


def is_event_stream(content_type: str | None) -> bool:
    """Whether a response comes as server-sent events."""
    return "text/event-stream" in (content_type or "").lower()


class UsageReader:
    """Finds the tokens of one response.

    Attributes:
        prompt: tokens read; None = not found.
        completion: tokens written; None = not found.
        cached: of `prompt`, those that were not computed anew; None = not found.
        faults: usage that was there and could not be read.
    """

    __slots__ = ("_carry", "_lost", "_stream", "cached", "completion", "faults", "prompt")

    def __init__(self, content_type: str | None) -> None:
        self.prompt: int | None = None
        self.completion: int | None = None
        self.cached: int | None = None
        self.faults = 0
        self._stream = is_event_stream(content_type)
        self._carry = bytearray()
        self._lost = False

    @property
    def held(self) -> int:
        """Bytes of the response that are kept."""
        return len(self._carry)

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes of the body."""
        if self._stream:
            self._feed_events(chunk)
        elif not self._lost:
            if len(self._carry) + len(chunk) > MAX_DOCUMENT_BYTES:
                self._lost = True
                self._carry = bytearray()
            else:
                self._carry += chunk

    def finish(self) -> None:
        """The body is complete."""
        carry, self._carry = bytes(self._carry), bytearray()
        if self._stream:
            self._read_events(carry)
        elif carry.rfind(b'"usage"') >= 0:  # it stands near the end: found in a tenth of the time
            self._read_document(carry)

    def _feed_events(self, chunk: bytes) -> None:
        if not self._carry and not self._lost and chunk.endswith(b"\n\n"):
            self._read_events(chunk)  # the common case: whole events, nothing to keep
            return
        seam = max(0, len(self._carry) - 2)
        self._carry += chunk
        end = 0
        for mark in _ENDS:
            found = self._carry.rfind(mark, seam)
            if found >= 0:
                end = max(end, found + len(mark))
        if end:
            events = bytes(self._carry[:end])
            del self._carry[:end]
            if self._lost:  # the rest of a skipped event, up to its end
                self._lost = False
                events = events[_first_end(events) :]
            self._read_events(events)
        if len(self._carry) > MAX_EVENT_BYTES:
            self._lost = True
            del self._carry[:-2]

    def _read_events(self, events: bytes) -> None:
        if events.rfind(b'"usage"') < 0:
            return
        data: list[bytes] = []
        for line in events.splitlines():
            if line.startswith(b"data:"):
                data.append(line[5:])
            elif not line:
                self._read_event(data)
                data = []
        self._read_event(data)

    def _read_event(self, data: list[bytes]) -> None:
        document = b"\n".join(data)
        if document.rfind(b'"usage"') >= 0:
            self._read_document(document)

    def _read_document(self, document: bytes) -> None:
        try:
            read = _decode(document)
            self._note(read.usage)
            for part in (read.message, read.response):
                if part is not msgspec.UNSET and bytes(part).startswith(b"{"):
                    self._note(_decode_holder(part).usage)
        except (msgspec.DecodeError, ValueError, RecursionError):
            self.faults += 1

    def _note(self, usage: Any) -> None:
        if usage is None:
            return
        if not isinstance(usage, dict):
            self.faults += 1
            return
        prompt = self._count(usage, _PROMPT)
        completion = self._count(usage, _COMPLETION)
        self.prompt = self.prompt if prompt is None else prompt
        self.completion = self.completion if completion is None else completion
        cached = self._cached(usage)
        self.cached = self.cached if cached is None else cached

    def _cached(self, usage: dict[str, Any]) -> int | None:
        """Anthropic's at the top; OpenAI's among the details, which may be null."""
        for name in _DETAILS:
            details = usage.get(name)
            if isinstance(details, dict):
                return self._count(details, _CACHED)
        return self._count(usage, _CACHED)

    def _count(self, usage: dict[str, Any], names: tuple[str, ...]) -> int | None:
        for name in names:
            value = usage.get(name)
            if value is None:
                continue
            if type(value) is int and 0 <= value <= _MOST:  # bool is an int too
                return value
            self.faults += 1
        return None


def _first_end(events: bytes) -> int:
    """Where the first event ends; the bytes hold one end at least."""
    return min(at + len(mark) for mark in _ENDS if (at := events.find(mark)) >= 0)
