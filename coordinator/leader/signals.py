"""What links and the store tell the leader, gathered for its next look.

The one place where control messages become facts of the pure rooms: membership and planning.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache

from coordinator.membership import Membership
from coordinator.metrics.leading import TermFigures
from coordinator.planning import Held, Told
from coordinator.verdicts import Answer, Connect
from fleet.clock import Clock
from fleet.control.messages import HoldReport, Report
from fleet.model import EpochVersion, GroupKey, Hold, Member
from fleet.placement.loads import GroupLoads
from fleet.store.contract import MAX_EPOCH, MemberBeat

log = logging.getLogger(__name__)

MAX_RATE = 1e9
"""Streams per second; a report above it (or not a number) is an error of the reporter."""


GATHER_SECONDS = 0.01
"""Acknowledgements of a map come from seventy workers within a few hundredths of a second, and each
look at them takes milliseconds and may make another map: one that asks for no hurry waits this long
for others."""

COUNT_SECONDS = 2.0
"""A worker's rates that stay the same to the last digit, as at rest, are counted this often."""

_held = cache(Held)
"""There are sixteen; one object each, of which two maps of many are compared in no time."""


class Signals:
    """Implements `coordinator.leader.links.LinkEvents`.

    Attributes:
        told: latest report by worker id, of its living incarnation.
        loads: streams per second of each group, as its owners report.
        seen_version: highest version that anybody saw in this epoch.
    """

    def __init__(
        self,
        membership: Membership,
        *,
        epoch: Callable[[], int],
        higher_epoch: Callable[[int], None],
        clock: Clock,
        figures: TermFigures | None = None,
    ) -> None:
        self.membership = membership
        self.told: dict[str, Told] = {}
        self._said: dict[str, tuple[tuple[HoldReport, ...], float]] = {}
        self._kept: Collection[GroupKey] = ()
        self._group_loads = GroupLoads()
        self.loads: Mapping[GroupKey, float] = self._group_loads.rates
        self.seen_version = 0
        self.store_reads = 0
        self._told_at = float("inf")
        self._epoch = epoch
        self._higher_epoch = higher_epoch
        self._clock = clock
        self._figures = figures or TermFigures()
        self._wake = asyncio.Event()
        self._urgent = asyncio.Event()

    # -- waiting --------------------------------------------------------------------------------

    def wake(self) -> None:
        """Have the leader look now."""
        self._urgent.set()
        self._wake.set()

    async def woken(self, seconds: float) -> None:
        """Return after the next `wake`, or after `seconds`; a while after an acknowledgement."""
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
                async with asyncio.timeout(GATHER_SECONDS):
                    await self._urgent.wait()
        except TimeoutError:
            pass
        self._wake.clear()
        self._urgent.clear()

    async def listen(self, seconds: float) -> None:
        """Tell membership every so often that this process runs, until cancelled: what passes
        between two of these beyond it is our own standstill, and nobody else's silence."""
        while True:
            self.membership.listening(self._clock.monotonic())
            await self._clock.sleep(seconds)

    # -- from links -----------------------------------------------------------------------------

    def hello(self, member: Member) -> Answer:
        """See `LinkEvents.hello`."""
        answer = self.membership.hello(member, self._clock.monotonic())
        if answer is Answer.JOINED:
            self.told.pop(member.id, None)
            log.info(
                "worker joined", extra={"worker": member.id, "incarnation": member.incarnation}
            )
        self.saw(member.seen)
        self.wake()
        return answer

    def reported(self, member: Member, report: Report) -> None:
        """See `LinkEvents.reported`; wakes the leader only for what may change the map."""
        current = self.membership.current(member.id)
        if current is None or current.incarnation != member.incarnation:
            return
        self.membership.reported(
            member,
            draining=report.draining,
            seen=report.seen,
            load=report.load,
            now=self._clock.monotonic(),
        )
        told = Told(report.version, self._held(member.id, report))
        self._figures.acknowledged(member.id, report.version, self._clock.monotonic())
        changed = self.told.get(member.id) != told
        self.told[member.id] = told
        self.saw(report.seen)
        if current.draining != report.draining:
            self.wake()
        elif changed:
            self._wake.set()

    def _held(self, worker: str, report: Report) -> Mapping[GroupKey, Held]:
        """What it holds; the same object as long as its reports say the same. Nearly all do: a
        hundred workers of 200 groups each say 40,000 times a second how far they are with one."""
        known, now = self.told.get(worker), self._clock.monotonic()
        said, counted = self._said.get(worker, ((), float("-inf")))
        same = known is not None and (said is report.holds or said == report.holds)
        if not same or now - counted >= COUNT_SECONDS:
            self._said[worker] = (report.holds, now)
            self._count(worker, report.holds, now)
        if known is not None and same:
            return known.holds
        return {each.group: _held(each.hold, each.synced, each.quiet) for each in report.holds}

    def _count(self, worker: str, holds: Sequence[HoldReport], now: float) -> None:
        for held in holds:
            rate = held.streams_per_second
            if held.hold is Hold.OWNER and 0.0 <= rate < MAX_RATE:
                self._group_loads.reported(held.group, worker, rate, now)

    def down(self, member: Member) -> None:
        """See `LinkEvents.down`."""
        self.membership.control_down(member, self._clock.monotonic())
        self.wake()

    def connects(self, member: Member, ext_proc: Connect, health: Connect) -> None:
        """See `LinkEvents.connects`."""
        self.membership.connects(member, ext_proc, health, self._clock.monotonic())
        if ext_proc is Connect.REFUSED:
            self.wake()

    def epoch_seen(self, epoch: int) -> None:
        """See `LinkEvents.epoch_seen`."""
        self.saw(EpochVersion(epoch, 0))

    def asked_again(self) -> None:
        """See `LinkEvents.asked_again`."""
        self._figures.shares_asked_again += 1

    # -- from the store -------------------------------------------------------------------------

    def told_for(self, now: float) -> float:
        """Seconds since the store first told of beats; negative before."""
        return now - self._told_at

    def beats(self, beats: Sequence[MemberBeat]) -> None:
        """One whole read of the store's members."""
        self.store_reads += 1
        self._told_at = min(self._told_at, self._clock.monotonic())
        self.membership.store_seen(
            [(beat.member, beat.age_seconds) for beat in beats], self._clock.monotonic()
        )
        for beat in beats:
            self.saw(beat.member.seen)

    # -- both -----------------------------------------------------------------------------------

    def saw(self, seen: EpochVersion) -> None:
        """Somebody has seen this epoch.version; one above ours must be passed."""
        epoch = self._epoch()
        if seen.epoch > MAX_EPOCH:
            log.error("impossible epoch reported, ignored", extra={"epoch": seen.epoch})
        elif seen.epoch > epoch:
            self._higher_epoch(seen.epoch)
        elif seen.epoch == epoch:
            self.seen_version = max(self.seen_version, seen.version)

    def forget(self, worker: str) -> None:
        """Drop the reports of a dead worker."""
        self.told.pop(worker, None)
        self._said.pop(worker, None)

    def keep_loads(self, groups: Collection[GroupKey]) -> None:
        """Drop the loads of groups that are no more; looked for when `groups` is another object, or
        has fewer than there are loads."""
        if groups is not self._kept or len(self.loads) > len(groups):
            self._kept = groups
            self._group_loads.keep(groups)
