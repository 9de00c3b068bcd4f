"""An observer of sessions that wants to know nothing."""

from epp_worker.scheduling.contract import Pick, PickRequest


class SilentObserver:
    """Counts nothing."""

    def asked(self, request: PickRequest, size: int) -> None:
        """See `SessionObserver.asked`."""

    def picked(self, pick: Pick) -> None:
        """See `SessionObserver.picked`."""

    def refused(self, status: int) -> None:
        """See `SessionObserver.refused`."""

    def response(self, status: int) -> None:
        """See `SessionObserver.response`."""

    def first_bytes(self, streamed: bool) -> None:
        """See `SessionObserver.first_bytes`."""

    def usage(self, prompt: int | None, completion: int | None, cached: int | None = None) -> None:
        """See `SessionObserver.usage`."""

    def came(self, size: int) -> None:
        """See `SessionObserver.came`."""

    def usage_unreadable(self, count: int) -> None:
        """See `SessionObserver.usage_unreadable`."""

    def left(self) -> None:
        """See `SessionObserver.left`."""

    def finished(self, complete: bool) -> None:
        """See `SessionObserver.finished`."""
