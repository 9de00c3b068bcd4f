"""What became of the requests of a worker, counted for each session."""

from epp_worker.scheduling.contract import Pick, PickRequest

OUTCOMES = ("picked", "400", "413", "429", "503")


class PickCounts:
    """What became of requests: picked, or refused with an HTTP status; and of picked ones. See
    `SessionObserver`.

    Attributes:
        complete: picked requests whose response came to its end.
        aborted: picked requests whose stream broke before that.
        detached: picked requests whose stream ended with the pick.
        usage_unreadable_total: usage values in responses that could not be read.
    """

    def __init__(self) -> None:
        self.by_outcome = dict.fromkeys(OUTCOMES, 0)
        self.complete = 0
        self.aborted = 0
        self.detached = 0
        self.usage_unreadable_total = 0

    def asked(self, request: PickRequest, size: int) -> None:
        """See `SessionObserver.asked`."""

    def picked(self, pick: Pick) -> None:
        """See `SessionObserver.picked`."""
        self.by_outcome["picked"] += 1

    def refused(self, status: int) -> None:
        """See `SessionObserver.refused`."""
        outcome = str(status)
        self.by_outcome[outcome] = self.by_outcome.get(outcome, 0) + 1

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
        self.usage_unreadable_total += count

    def left(self) -> None:
        """See `SessionObserver.left`."""
        self.detached += 1

    def finished(self, complete: bool) -> None:
        """See `SessionObserver.finished`."""
        if complete:
            self.complete += 1
        else:
            self.aborted += 1
