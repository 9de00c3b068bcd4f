"""What a session tells about itself: the worker counts, the session does not know how."""

from typing import Protocol

from epp_worker.scheduling.contract import Pick


class SessionObserver(Protocol):
    """Counts what happens. Each session tells `picked` or `refused` at most once, together."""

    def picked(self, pick: Pick) -> None:
        """An endpoint was chosen."""
        ...

    def refused(self, status: int) -> None:
        """The request was answered with this HTTP status (400, 413, 429, 503)."""
        ...

    def response(self, status: int) -> None:
        """Response headers came; 0 if their `:status` is no number."""
        ...

    def usage(self, prompt: int | None, completion: int | None) -> None:
        """Tokens of a complete response; None = not told. At most once."""
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


class SilentObserver:
    """Counts nothing."""

    def picked(self, pick: Pick) -> None:
        """See `SessionObserver.picked`."""

    def refused(self, status: int) -> None:
        """See `SessionObserver.refused`."""

    def response(self, status: int) -> None:
        """See `SessionObserver.response`."""

    def usage(self, prompt: int | None, completion: int | None) -> None:
        """See `SessionObserver.usage`."""

    def usage_unreadable(self, count: int) -> None:
        """See `SessionObserver.usage_unreadable`."""

    def left(self) -> None:
        """See `SessionObserver.left`."""

    def finished(self, complete: bool) -> None:
        """See `SessionObserver.finished`."""
