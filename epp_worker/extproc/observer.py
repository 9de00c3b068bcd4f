"""What a session tells about itself: the worker counts, the session does not know how."""

from typing import Protocol

from epp_worker.scheduling.contract import Pick, PickRequest


class SessionObserver(Protocol):
    """Counts what happens. Each session tells `picked` or `refused` at most once, together."""

    def asked(self, request: PickRequest, size: int) -> None:
        """A request was read and is about to be picked for; its body came with `size` bytes."""
        ...

    def picked(self, pick: Pick) -> None:
        """An endpoint was chosen."""
        ...

    def refused(self, status: int) -> None:
        """The request was answered with this HTTP status (400, 413, 429, 503)."""
        ...

    def response(self, status: int) -> None:
        """Response headers came; 0 if their `:status` is no number."""
        ...

    def first_bytes(self, streamed: bool) -> None:
        """The body of a response begins; whether it comes as server-sent events."""
        ...

    def usage(self, prompt: int | None, completion: int | None, cached: int | None = None) -> None:
        """Tokens of a complete response; None = not told. At most once.

        Args:
            cached: the part of `prompt` that the model server had computed before.
        """
        ...

    def came(self, size: int) -> None:
        """The whole response is here; its body has `size` bytes."""
        ...

    def usage_unreadable(self, count: int) -> None:
        """The response held this many usage values that could not be read."""
        ...

    def left(self) -> None:
        """A picked request goes on without us; `finished` is not told then."""
        ...

    def finished(self, complete: bool) -> None:
        """A picked request is over; False: the stream broke before the response's end."""
        ...
