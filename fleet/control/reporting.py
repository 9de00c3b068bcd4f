"""Reports as what has changed: shortened by the worker, put together again by the leader.

A worker of 200 groups says twice a second how far it is with each, 20 kB, and hardly any of it is
news. To a leader whose hello says that it reads parts (`LeaderHello.deltas`) it tells everything
once on each stream, and then only what is other than it has said on that stream. A stream keeps
its order and loses nothing without ending, so both sides know the same all the time.

Pure: monotonic seconds are handed in.
"""

import msgspec

from fleet.control.messages import HoldReport, Report
from fleet.errors import FormatError
from fleet.model import GroupKey

RATES_SECONDS = 5.0
"""A rate that is other by no more than noise is told this late: as often as placement looks at
loads for their own sake."""

NOISE_STREAMS_PER_SECOND = 0.5
NOISE_SHARE = 0.1
"""A rate that moves by more than both is told at once."""

MAX_HELD = 100_000
"""Groups of one worker that parts may add up to; one message is bounded by its size."""


class Shortening:
    """The worker's side of one stream."""

    def __init__(self) -> None:
        self._told: dict[GroupKey, HoldReport] | None = None
        self._rates_told = 0.0

    def next(self, report: Report, now: float) -> Report:
        """What to send for `report`: all of it the first time, afterwards what is news."""
        told, self._told = self._told, {each.group: each for each in report.holds}
        if told is None:
            self._rates_told = now
            return report
        exact = now - self._rates_told >= RATES_SECONDS
        if exact:
            self._rates_told = now
        gone = tuple(group for group in told if group not in self._told)
        news = []
        for held in report.holds:
            before = told.get(held.group)
            if before is held:
                continue
            if before is None or _is_news(before, held, exact=exact):
                news.append(held)
            else:
                self._told[held.group] = before
        return msgspec.structs.replace(report, holds=tuple(news), partial=True, gone=gone)


def _is_news(before: HoldReport, held: HoldReport, *, exact: bool) -> bool:
    if before == held:
        return False
    known, rate = before.streams_per_second, held.streams_per_second
    noise = max(NOISE_STREAMS_PER_SECOND, NOISE_SHARE * known)
    same = (before.hold, before.synced, before.quiet) == (held.hold, held.synced, held.quiet)
    return exact or not same or abs(rate - known) > noise


class Merging:
    """The leader's side of one stream.

    Args:
        most: groups that parts may add up to.
    """

    def __init__(self, most: int = MAX_HELD) -> None:
        self._most = most
        self._whole: tuple[HoldReport, ...] | None = None
        self._held: dict[GroupKey, HoldReport] | None = None

    def whole(self, report: Report) -> Report:
        """`report` as if it said everything; `holds` is the same object while nothing changes.

        Raises:
            FormatError: a part of what was never told, or parts of more than a worker can hold.
        """
        if not report.partial:
            self._whole, self._held = report.holds, None
            return report
        if self._whole is None:
            raise FormatError("a part of a report came before the whole")
        if report.holds or report.gone:
            self._whole = self._merged(self._whole, report)
        return msgspec.structs.replace(report, holds=self._whole, partial=False, gone=())

    def _merged(self, whole: tuple[HoldReport, ...], part: Report) -> tuple[HoldReport, ...]:
        if self._held is None:
            self._held = {each.group: each for each in whole}
        for group in part.gone:
            self._held.pop(group, None)
        self._held.update((each.group, each) for each in part.holds)
        if len(self._held) > self._most:
            raise FormatError(f"parts of a report add up to {len(self._held)} groups")
        return tuple(self._held.values())
